"""Results that are no numbers are refused: NaN would be read as the first class."""

from __future__ import annotations

from torch import Tensor


def require_finite(values: Tensor, what: str) -> Tensor:
    """The values (N, ...), if all of them are numbers.

    Raises
    ------
    ArithmeticError  for others, with their number and the place of the first.
    """
    wrong = ~values.flatten(1 if values.dim() > 1 else 0).isfinite()
    wrong = (wrong.any(1) if wrong.dim() > 1 else wrong).nonzero().flatten()
    if len(wrong):
        raise ArithmeticError(
            f"{what} of {len(wrong)} of {len(values)} images are no numbers, first those of image "
            f"{int(wrong[0])}: the weights are damaged, or overflow in this precision"
        )
    return values
