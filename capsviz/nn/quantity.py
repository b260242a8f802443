"""What the evidence of a routing is, in words and signs. No torch: drawings take it from here."""

from typing import NamedTuple


class Quantity(NamedTuple):
    """What the evidence of a routing is, in words and signs for captions."""

    part: str  # of one child, in mathtext
    plain: str  # the same without mathtext
    whole: str  # what the parts of all children add up to, in mathtext
    words: str  # the same without mathtext


ALONG_POSE = Quantity(
    r"$c_{ij}\,\hat u_{ij}\cdot\hat v_j$", "c (û·v̂)", r"$s_j\cdot\hat v_j$", "s·v̂"
)


def words_of(quantity: dict[str, str] | None) -> dict[str, str]:
    """The quantity of a result by its parts; None, as results have it, is `ALONG_POSE`."""
    return ALONG_POSE._asdict() if quantity is None else quantity
