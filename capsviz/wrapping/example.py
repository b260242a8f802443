"""Inputs of a network that are no images: any nesting of tensors, as one row of numbers each.

`capsviz.wrap(network, example=...)` takes a tensor, a tuple or a dict of tensors. Elsewhere inputs
are one tensor (N, ...), as images are (N, C, H, W): like that of the example, or, if it has several
tensors, with all their numbers in a row.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from capsviz.wrapping.leaves import replaced, tensors

WHOLE = 2**24  # whole numbers from here on are not all float32 numbers


@dataclass(frozen=True, eq=False)
class Example:
    """A few inputs of a network, with the images' axis first in every tensor that has one.

    ValueError for an example without tensors or without such an axis, complex or sparse ones, or
    whole numbers that a float32 cannot hold.
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
        """Tensors with an axis of inputs, the same length in all; the others are constants."""
        every = tensors(self.value)
        count = len(every[0]) if every[0].dim() else 0
        return [one for one in every if one.dim() and len(one) == count] or every[:1]

    @property
    def is_double(self) -> bool:
        """Return whether any of its numbers are float64."""
        return any(one.dtype == torch.float64 for one in self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input, as a row of numbers."""
        first, *more = (tuple(one.shape[1:]) for one in self.parts)
        return first if not more else (sum(map(prod, (first, *more))),)

    def rows(self, value: Any) -> Tensor:
        """Return inputs, nested as the example, as rows (N, ...) in float32, or float64 if one is.

        A tensor of rows is returned as it is. ValueError for inputs that differ from the example.
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
        whole = [one.double() for one in given if not one.is_floating_point()]  # truth values, too
        if any((one.abs() >= WHOLE).any() for one in whole):
            raise ValueError(f"expected whole numbers below {WHOLE:,}, as float32 holds them")
        kind = torch.float64 if self.is_double else torch.float32
        flat = [one.to(kind).reshape(len(one), prod(one.shape[1:])) for one in given]
        return torch.cat(flat, 1).reshape(len(flat[0]), *self.shape)

    def nested(self, rows: Tensor) -> Any:
        """Return rows (N, ...) as the network takes them."""
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
        """Return `count` random inputs like those of the example, as rows.

        Floats lie between the smallest and the largest of their tensor; other numbers are drawn
        from those that it holds.
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
