"""Refuse results that are NaN or infinite: the largest of them would be the first class."""

from __future__ import annotations

from torch import Tensor

from capsviz.tracing.network import abilities
from capsviz.tracing.record import PER_ITERATION

CHECKED = {  # parts of a trace, in words
    "last": "activations",
    "activations": "activations",
    "children": "children",
    "couplings": "couplings",
    "poses": "poses",
    "reconstruction": "reconstructions",
}


class NotFiniteError(ArithmeticError, ValueError):
    """NaN or infinite results: weights that are damaged, or a precision that is too low."""


def require_finite(values: Tensor, what: str) -> Tensor:
    """Return the values (N, ...), if all of them are finite.

    Raises
    ------
    NotFiniteError  with the number of images that have others, and the first of these images.
    """
    wrong = ~values.flatten(1 if values.dim() > 1 else 0).isfinite()
    wrong = (wrong.any(1) if wrong.dim() > 1 else wrong).nonzero().flatten()
    if len(wrong):
        raise NotFiniteError(
            f"{what} for {len(wrong)} of {len(values)} images are no numbers, the first for image "
            f"{int(wrong[0])}: the weights are damaged, or overflow in this precision"
        )
    return values


def require_finite_parts(parts: dict[str, Tensor], model) -> None:
    """Raise NotFiniteError, with the network's name, for parts of a trace that are not finite.

    Votes, logits, weights and evidence are not checked: what is computed from them is.
    """
    for part, words in CHECKED.items():
        values = parts.get(part)
        if values is None or values.sum().isfinite():  # NaN and infinity are still in the sum
            continue
        require_finite(
            values.movedim(int(part in PER_ITERATION), 0),
            f"the {words} of the network '{abilities(model).name}'",
        )
