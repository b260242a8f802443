"""Find scores and reconstructions among the outputs of a network."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from capsviz.wrapping.flow import Flow
from capsviz.wrapping.leaves import named_tensors

WAYS = {
    "softmax": lambda result: result.softmax(1),
    "sigmoid": lambda result: result.sigmoid(),
    "exp": lambda result: result.exp(),
    "as they are": lambda result: result,
}
NAMES = ("softmax", "sigmoid", "exp", "norms")  # that scores= takes; "norms" of the poses


class Scores(NamedTuple):
    """How scores are made of the output of a network."""

    of: Callable  # output -> (B, J) in [0, 1]
    evidence: str


def require_scores(scores) -> None:
    """Raise ValueError for a name that scores= does not take."""
    if isinstance(scores, str) and scores not in NAMES:
        raise ValueError(f"unknown scores '{scores}', expected a function or one of {NAMES}")


def described(output) -> str:
    """Return names and shapes of the tensors in an output."""
    candidates = named_tensors(output)
    if not candidates:
        return f"{type(output).__name__} without tensors"
    return ", ".join(f"output{name} {tuple(t.shape)}" for name, t in candidates)


def pick(output, name: str) -> Tensor:
    """Return the tensor of a name as `named_tensors` gives it."""
    return dict(named_tensors(output))[name]


def find_scores(output, flow: Flow | None, batch: int, classes: int, way=None) -> Scores | None:
    """Find the scores among the tensors of an output; None if there are none.

    Parameters
    ----------
    way  "softmax", "sigmoid" or "exp" of the output that is found; None takes one in [0, 1], or the
         exponential of logarithms of probabilities.

    Raises
    ------
    ValueError  for several candidates, or one that is neither.
    """
    candidates = _without_logits(_candidates(output, batch, classes))
    if not candidates:
        return None
    if len(candidates) > 1:
        names = "; ".join(f"output{name}{_maker(flow, pick(output, name))}" for name in candidates)
        raise ValueError(
            f"{len(candidates)} outputs could be the scores ({batch}, {classes}): {names}; "
            f"say which: scores=lambda out: out{next(iter(candidates))}"
        )
    ((name, values),) = candidates.items()
    where = f"output{name} {tuple(pick(output, name).shape)}{_maker(flow, pick(output, name))}"
    way = way or _way(values, where)
    suffix = "" if way == "as they are" else f", {way} of it"
    return Scores(lambda result: WAYS[way](pick(result, name).flatten(1)), where + suffix)


def values_of_scores(output, batch: int, classes: int, scores=None) -> list[Tensor]:
    """Return the tensors of an output that may be scores (B, J), or the result of a function."""
    if callable(scores):
        value = scores(output)
        fits = isinstance(value, Tensor) and tuple(value.shape) == (batch, classes)
        return [value] if fits else []
    return [] if scores == "norms" else list(_candidates(output, batch, classes).values())


def _candidates(output, batch: int, classes: int) -> dict[str, Tensor]:
    """Return different tensors of the scores' shape (B, J), by name; no one-hot ones."""
    candidates: dict[str, Tensor] = {}
    for name, tensor in named_tensors(output):
        shape = tuple(n for n in tensor.shape[1:] if n > 1)
        if tensor.dim() < 2 or len(tensor) != batch or shape != (classes,):
            continue
        flat = tensor.reshape(batch, classes)
        if not tensor.is_floating_point() or _one_hot(flat):
            continue
        if not any(flat.equal(other) for other in candidates.values()):
            candidates[name] = flat
    return candidates


def _without_logits(candidates: dict[str, Tensor]) -> dict[str, Tensor]:
    """Leave out logits: what is called so or leaves [0, 1], if its softmax is there too."""

    def is_logits(name: str, one: Tensor) -> bool:
        if "logit" not in name and bool(((one >= 0) & (one <= 1)).all()):
            return False
        others = (other for other in candidates.values() if other is not one)
        return any(torch.allclose(one.softmax(1), other, atol=1e-5) for other in others)

    return {name: one for name, one in candidates.items() if not is_logits(name, one)}


def find_reconstruction(output, images: Tensor, image_shape) -> list[str]:
    """Return names of the outputs that have the images' size, and are not the images."""
    size = prod(image_shape)
    return [
        name
        for name, tensor in named_tensors(output)
        if tensor.dim() >= 2
        and len(tensor) == len(images)
        and tensor[0].numel() == size
        and not tensor.reshape(images.shape).equal(images)
    ]


def _way(values: Tensor, where: str) -> str:
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 1 + 1e-5:
        return "as they are"
    if high <= 0 and bool(((values.exp().sum(1) - 1).abs() < 1e-4).all()):
        return "exp"
    raise ValueError(
        f"{where} runs from {low:.3g} to {high:.3g}, expected scores in [0, 1]: say what makes "
        'scores of it, scores="softmax" or scores="sigmoid", or a function of the output'
    )


def _one_hot(values: Tensor) -> bool:
    return bool(((values == 0) | (values == 1)).all() and (values.sum(1) == 1).all())


def _maker(flow: Flow | None, tensor: Tensor) -> str:
    port = flow.port(tensor) if flow is not None else None
    return "" if flow is None or port is None else f", made by {flow.events[port[0]].where}"
