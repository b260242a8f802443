"""Name the evidence of a routing in words and formulas, without torch, for drawings."""

from typing import NamedTuple


class Quantity(NamedTuple):
    """Words and formulas for the evidence of a routing, for captions."""

    part: str  # contribution of one child, in mathtext
    plain: str  # the same without mathtext
    whole: str  # sum of the parts of all children, in mathtext
    words: str  # the same without mathtext


ALONG_POSE = Quantity(
    r"$c_{ij}\,\hat u_{ij}\cdot\hat v_j$", "c (û·v̂)", r"$s_j\cdot\hat v_j$", "s·v̂"
)


def words_of(quantity: dict[str, str] | None) -> dict[str, str]:
    """Return the quantity of a result as a dictionary; None stands for `ALONG_POSE`."""
    return ALONG_POSE._asdict() if quantity is None else quantity
