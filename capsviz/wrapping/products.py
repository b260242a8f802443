"""Products of couplings with votes: multiply and sum, matmul, or einsum, under one form.

A product's *frame* is the set of axes over which it multiplies number by number before it sums:
weights and votes are brought into it, so that "which axis is summed" is asked in one way.
"""

from __future__ import annotations

import string
from dataclasses import dataclass

import torch
from torch import Tensor

from capsviz.wrapping.leaves import replaced, tensors
from capsviz.wrapping.recorder import Event


@dataclass(frozen=True)
class Product:
    """How one event multiplies what comes in at `position` with the rest.

    summed  axes of the frame that the event itself sums; () where a sum follows it.
    letters of the frame, for an einsum; of each operand too.
    """

    kind: str  # "mul", "left" or "right" operand of a matmul, "einsum"; "scale" of the weights
    position: int
    dims: int
    summed: tuple[int, ...] = ()
    letters: str = ""
    operands: tuple[str, ...] = ()
    output: str = ""

    def weights(self, inputs) -> Tensor:
        """What comes in at `position`, in the frame."""
        tensor = inputs[self.position]
        if self.kind == "left":
            return tensor.unsqueeze(-1)
        if self.kind == "right":
            return tensor.unsqueeze(-3)
        if self.kind == "einsum":
            return _to_letters(tensor, self.operands[self.position], self.letters)
        return _full(tensor, self.dims)

    def others(self, inputs) -> Tensor:
        """What it is multiplied with, in the frame."""
        if self.kind == "einsum":
            rest = [k for k in range(len(inputs)) if k != self.position]
            named = set("".join(self.operands[k] for k in rest))
            kept = "".join(letter for letter in self.letters if letter in named)
            equation = ",".join(self.operands[k] for k in rest) + "->" + kept
            return _to_letters(
                torch.einsum(equation, *(inputs[k] for k in rest)), kept, self.letters
            )
        other = inputs[1 - self.position]
        if self.kind == "left":
            return other.unsqueeze(-3)
        if self.kind == "right":
            return other.unsqueeze(-1)
        return _full(other, self.dims)

    def with_weights(self, function, args, kwargs, weights: Tensor):
        """What the event gives with other weights, given in the frame."""
        inputs = tensors((args, kwargs))
        if self.kind == "scale":
            other = {id(inputs[self.position]): weights}
            return function(*replaced(args, other), **replaced(kwargs, other))
        if self.kind == "einsum":
            keep = [k for k, size in enumerate(weights.shape) if size > 1]
            operands = list(self.operands)
            operands[self.position] = "".join(self.letters[k] for k in keep)
            inputs[self.position] = weights.reshape([weights.shape[k] for k in keep])
            return torch.einsum(",".join(operands) + "->" + self.output, *inputs)
        other = inputs[1 - self.position]
        if self.kind == "left":
            return torch.matmul(weights.squeeze(-1), other)
        if self.kind == "right":
            return torch.matmul(other, weights.squeeze(-3))
        return torch.mul(weights, other)


def product(event: Event, position: int) -> Product | None:
    """How an event multiplies one of its inputs with the others; None where it does not."""
    shapes = [tuple(t.shape) for t in event.inputs]
    if event.name in ("mul", "matmul", "rmatmul") and len(shapes) == 2:
        if event.name == "mul":
            return Product("mul", position, event.outputs[0].dim())
        if min(map(len, shapes)) < 2:
            return None
        left = (position == 0) == (event.name == "matmul")
        dims = max(map(len, shapes)) + 1
        return Product("left" if left else "right", position, dims, (dims - 2,))
    if event.name == "einsum" and event.args and isinstance(event.args[0], str):
        equation = letters_of(event.args[0], shapes)
        if equation is None:
            return None
        operands, output = equation
        if len(operands) < 2:
            return None
        extra = "".join(letter for letter in operands[position] if letter not in output)
        frame = output + extra
        summed = tuple(range(len(output), len(frame)))
        return Product("einsum", position, len(frame), summed, frame, operands, output)
    return None


def letters_of(equation: str, shapes) -> tuple[tuple[str, ...], str] | None:
    """Operands and output of an einsum with every axis named, its ellipsis written out."""
    text = equation.replace(" ", "")
    left, arrow, output = text.partition("->")
    operands = left.split(",")
    if len(operands) != len(shapes):
        return None
    free = [k for k in string.ascii_uppercase + string.ascii_lowercase if k not in text]
    longest = max(
        (len(s) - len(o) + 3 for o, s in zip(operands, shapes, strict=True) if "..." in o),
        default=0,
    )
    dots = "".join(free[:longest])
    written = []
    for operand, shape in zip(operands, shapes, strict=True):
        count = len(shape) - len(operand) + 3
        written.append(operand.replace("...", dots[longest - count :] if count else ""))
    if not arrow:
        everything = "".join(written)
        single = sorted(k for k in set(everything) - set(dots) if everything.count(k) == 1)
        output = dots + "".join(single)
    output = output.replace("...", dots)
    if any(len(set(operand)) != len(operand) for operand in written):
        return None  # a diagonal
    return tuple(written), output


def _full(tensor: Tensor, dims: int) -> Tensor:
    return tensor.reshape((1,) * (dims - tensor.dim()) + tuple(tensor.shape))


def _to_letters(tensor: Tensor, own: str, frame: str) -> Tensor:
    tensor = tensor.permute([own.index(k) for k in frame if k in own])
    for axis, letter in enumerate(frame):
        if letter not in own:
            tensor = tensor.unsqueeze(axis)
    return tensor
