"""Products of couplings with votes: multiply and sum, matmul, or einsum; and who their axes are.

A product's *frame* is the set of axes over which it multiplies number by number before it sums.
Weights and votes are brought into the frame, so that all products are handled in one way.
"""

from __future__ import annotations

import string
from dataclasses import dataclass

import torch
from torch import Tensor

from capsviz.wrapping.flow import Roles, Step, axes_after, varying
from capsviz.wrapping.leaves import replaced, tensors
from capsviz.wrapping.recorder import Event


@dataclass(frozen=True)
class Product:
    """How one event multiplies its input at `position` with the others.

    Attributes
    ----------
    kind      "mul", "left" or "right" operand of a matmul, "einsum"; "scale" of the weights.
    dims      the number of axes of the frame.
    summed    axes of the frame that the event itself sums; () where a sum follows it.
    letters   of the frame, for an einsum; `operands` and `output` are its equation.
    """

    kind: str
    position: int
    dims: int
    summed: tuple[int, ...] = ()
    letters: str = ""
    operands: tuple[str, ...] = ()
    output: str = ""

    def weights(self, inputs) -> Tensor:
        """Return the input at `position`, in the frame."""
        tensor = inputs[self.position]
        if self.kind == "left":
            return tensor.unsqueeze(-1)
        if self.kind == "right":
            return tensor.unsqueeze(-3)
        if self.kind == "einsum":
            return _to_letters(tensor, self.operands[self.position], self.letters)
        return _full(tensor, self.dims)

    def others(self, inputs) -> Tensor:
        """Return the product of the other inputs, in the frame."""
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
        """Call the event with other weights, given in the frame."""
        inputs = tensors((args, kwargs))
        if self.kind == "scale":
            new = {id(inputs[self.position]): weights}
            return function(*replaced(args, new), **replaced(kwargs, new))
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
    """Return how an event multiplies one of its inputs with the others; None if it does not."""
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
    """Return operands and output of an einsum, its ellipsis written out; None for a diagonal."""
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
        return None
    return tuple(written), output


def _full(tensor: Tensor, dims: int) -> Tensor:
    return tensor.reshape((1,) * (dims - tensor.dim()) + tuple(tensor.shape))


def _to_letters(tensor: Tensor, own: str, frame: str) -> Tensor:
    tensor = tensor.permute([own.index(k) for k in frame if k in own])
    for axis, letter in enumerate(frame):
        if letter not in own:
            tensor = tensor.unsqueeze(axis)
    return tensor


def roles_in(
    weights: Tensor, votes: Tensor, frame, children, batch: int, classes: int
) -> Roles | None:
    """Return the roles of the axes of a frame; None if it is no capsule layer of this batch."""
    weights, votes = (
        t.reshape((1,) * (len(frame) - t.dim()) + tuple(t.shape)) for t in (weights, votes)
    )
    images = [k for k, n in enumerate(votes.shape) if n == batch and k not in children]
    if len(images) != 1 or any(weights.shape[axis] != frame[axis] for axis in children):
        return None
    rest = [k for k, n in enumerate(frame) if n > 1 and k not in (*children, *images)]
    wide = [k for k in rest if weights.shape[k] > 1]
    differ = [k for k in wide if not repeats(weights, k)]
    parents = wide if len(wide) == 1 else differ or [k for k in wide if frame[k] == classes]
    if not parents or (not differ and len(parents) > 1) or set(parents) == set(rest):
        return None
    names = dict.fromkeys(parents, "J") | dict.fromkeys(children, "I") | {images[0]: "B"}
    return tuple(names.get(k, "E" if n > 1 else ".") for k, n in enumerate(frame))


def repeats(tensor: Tensor, axis: int) -> bool:
    """Return whether the numbers of a tensor are repeated along an axis, but for rounding."""
    first = tensor.narrow(axis, 0, 1)
    return bool(torch.allclose(tensor, first.expand_as(tensor), rtol=1e-6, atol=0))


def roles_of_total(
    event: Event, how: Product, views: list[Step], total: Event, roles: Roles
) -> Roles | None:
    """Return the roles of the axes of the sum over children that follows a product."""
    if how.kind != "mul":
        return tuple(role for k, role in enumerate(roles) if k not in how.summed)
    along = axes_after(event.outputs[0], views, total.inputs[0])
    known = [_one(roles, axes) for axes in along]
    before = tuple(role for role in known if role is not None)
    if len(before) < len(known):
        return None
    if total.outputs[0].dim() == total.inputs[0].dim():
        return tuple("." if role == "I" else role for role in before)
    dims = summed_dims(total)
    return tuple(role for axis, role in enumerate(before) if axis not in dims)


def _one(roles: Roles, axes: set[int]) -> str | None:
    """Return the role that axes share; "." for no axes, None where they differ."""
    own = {roles[axis] for axis in axes}
    return "." if not own else own.pop() if len(own) == 1 else None


def roles_before(start: Tensor, path: list[Step], how: Product, roles: Roles) -> Roles | None:
    """Return the roles of the axes of `start`, followed to the product at the end of a path."""
    last = path[-1]
    end = last.event.inputs[last.position]
    along = axes_after(start, path[:-1], end)
    letters = ["."] * start.dim()
    for axis in range(end.dim()):
        inputs = list(last.event.inputs)
        shape = [-1 if k == axis else 1 for k in range(end.dim())]
        inputs[last.position] = torch.arange(float(end.shape[axis])).view(shape).expand(end.shape)
        inside = how.weights(inputs)
        inside = inside.reshape((1,) * (len(roles) - inside.dim()) + tuple(inside.shape))
        for origin in along[axis]:
            role = _one(roles, varying(inside))
            if role is None or letters[origin] not in (".", role):
                return None
            letters[origin] = role
    return tuple(letters)


def summed_dims(event: Event) -> tuple[int, ...]:
    """Return the axes that a sum or mean goes over; () where it goes over all."""
    axes = event.kwargs.get("dim", event.kwargs.get("axis"))
    if axes is None and len(event.args) > 1:
        axes = event.args[1]
    axes = () if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)
    return tuple(d % event.inputs[0].dim() for d in axes)
