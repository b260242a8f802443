"""Results that are no numbers are refused: NaN would be read as the first class."""

from __future__ import annotations

from torch import Tensor


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
