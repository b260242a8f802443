"""Results that are no numbers are refused: NaN would be read as the first class."""

from __future__ import annotations

from torch import Tensor

from capsviz.tracing.record import PER_ITERATION

READ = {  # parts of a trace that are read as they are, in words
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
    """The values (N, ...), if all of them are numbers.

    Raises
    ------
    NotFiniteError  an ArithmeticError and ValueError, for others, with their number and the place
                    of the first.
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
    """NotFiniteError, with the network's name, for parts of a trace of which one is no number.

    Votes, logits, weights and evidence are not looked at: what becomes of them is.
    """
    for part, words in READ.items():
        values = parts.get(part)
        if values is None or values.sum().isfinite():  # NaN and infinity are still in the sum
            continue
        require_finite(
            values.movedim(int(part in PER_ITERATION), 0), f"the {words} of {name(model)}"
        )


def name(model) -> str:
    """A network in an error message."""
    return f"the network '{(getattr(model, 'card', None) or {}).get('name', type(model).__name__)}'"
