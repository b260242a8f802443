"""Convert between nested tensors that a network takes and one tensor (N, ...) of inputs.

`capsviz.wrap(network, example=...)` takes a tensor, a tuple or a dict of tensors, for networks
whose inputs are not images. The rest of capsviz uses one tensor (N, ...). It has the shape of the
example's tensor; several tensors are flattened and concatenated.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from capsviz.wrapping.leaves import replaced, tensors

INTEGERS = 2**24  # float32 cannot represent all larger integers


@dataclass(frozen=True, eq=False)
class Example:
    """A few inputs of a network; the batch axis comes first in every tensor that has one.

    ValueError if there are no tensors, the first has no batch axis, or one is complex or sparse.
    """

    value: Any

    def __post_init__(self):
        if not tensors(self.value):
            raise ValueError(f"example= must hold tensors, got {type(self.value).__name__}")
        for one in tensors(self.value):
            if one.is_complex() or one.layout is not torch.strided:
                kind = "complex" if one.is_complex() else "sparse"
                instead = "torch.view_as_real(x)" if one.is_complex() else "dense tensors"
                raise ValueError(
                    f"example= holds a {kind} tensor: give {instead}, and call=lambda network, x: "
                    "... makes of it what the network takes"
                )
        if not all(one.dim() > 1 or one is not self.parts[0] for one in self.parts):
            raise ValueError(
                f"example= starts with a tensor {tuple(self.parts[0].shape)}, expected inputs "
                "along its first axis: one graph or sentence is a batch of one, tensor[None]"
            )

    @property
    def parts(self) -> list[Tensor]:
        """The tensors with a batch axis, of equal length in all; other tensors are constants."""
        every = tensors(self.value)
        count = len(every[0]) if every[0].dim() else 0
        return [one for one in every if one.dim() and len(one) == count] or every[:1]

    @property
    def is_double(self) -> bool:
        """Whether any of the tensors with a batch axis is float64."""
        return any(one.dtype == torch.float64 for one in self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input; flat if the example has several tensors."""
        first, *more = (tuple(one.shape[1:]) for one in self.parts)
        return first if not more else (sum(map(prod, (first, *more))),)

    def rows(self, value: Any) -> Tensor:
        """Convert inputs nested like the example to rows (N, ...), in float32 or float64.

        A float tensor that already has this shape is returned unchanged. ValueError if shapes
        differ from the example, or for integers that float32 cannot represent.
        """
        own = tensors(value)
        if len(own) == 1 and own[0].is_floating_point() and tuple(own[0].shape[1:]) == self.shape:
            return own[0]
        kept = [n for n, one in enumerate(tensors(self.value)) if any(one is p for p in self.parts)]
        given = [own[n] for n in kept] if len(own) == len(tensors(self.value)) else []
        if [one.shape[1:] for one in given] != [one.shape[1:] for one in self.parts]:
            shapes = (
                ", ".join(str(tuple(one.shape)) for one in some) for some in (self.parts, own)
            )
            raise ValueError("expected inputs as the example, {}, got {}".format(*shapes))
        whole = [one.double() for one in given if not one.is_floating_point()]  # includes booleans
        if any((one.abs() >= INTEGERS).any() for one in whole):
            raise ValueError(f"expected whole numbers below {INTEGERS:,}, as float32 holds them")
        kind = torch.float64 if self.is_double else torch.float32
        flat = [one.to(kind).reshape(len(one), prod(one.shape[1:])) for one in given]
        return torch.cat(flat, 1).reshape(len(flat[0]), *self.shape)

    def nested(self, rows: Tensor) -> Any:
        """Convert rows (N, ...) back to tensors nested like the example."""
        pieces = rows.flatten(1).split([prod(one.shape[1:]) for one in self.parts], 1)
        new = {}
        for own, piece in zip(self.parts, pieces, strict=True):
            piece = piece.reshape(len(rows), *own.shape[1:])
            whole = not own.is_floating_point()
            kept = not whole and torch.float64 not in (rows.dtype, own.dtype)
            new[id(own)] = piece if kept else (piece.round() if whole else piece).to(own.dtype)
        move = {id(one): one.to(rows.device) for one in tensors(self.value)}
        return replaced(self.value, move | new)

    def draw(self, count: int, seed: int = 0) -> Tensor:
        """Draw `count` random inputs like those of the example, as rows.

        Floats are uniform between the minimum and maximum of their tensor. Integers and booleans
        are drawn from the values in their tensor.
        """
        generator = torch.Generator().manual_seed(seed)
        made = []
        for own in self.parts:
            flat, size = own.detach().cpu().double().flatten(), (count, *own.shape[1:])
            if own.is_floating_point():
                low, high = flat.aminmax()
                one = low + torch.rand(size, generator=generator).double() * ((high - low) or 1)
            else:
                one = flat[torch.randint(len(flat), size, generator=generator)]
            made.append(one.flatten(1) if one.dim() > 1 else one[:, None])
        kind = torch.float64 if self.is_double else torch.float32
        return torch.cat(made, 1).reshape(count, *self.shape).to(kind)
