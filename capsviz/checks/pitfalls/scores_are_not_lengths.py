"""The scores are not the lengths of the class capsules, but a softmax or a square of them."""

import math

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, fails, passes, warns

ABOUT = About(
    paper="§3, equation 4: the margins are of lengths",
    breaks="with 10 classes no softmax of lengths exceeds 0.232, so that a margin of 0.9 is never "
    "reached; squares move both margins",
    fix="give the lengths themselves to the margin loss",
)
CLOSE = 1e-4


def examine(candidate: Candidate) -> Judgement:
    """Compare scores with the lengths of the poses, their softmax and their squares."""
    images = candidate.images(7)
    lengths = candidate.poses(images).norm(dim=-1)
    scores = candidate.scores(images)
    plain, soft, square = (
        float((scores - own).abs().max()) for own in (lengths, lengths.softmax(1), lengths.square())
    )
    highest = math.e / (math.e + candidate.classes - 1)
    numbers = {"from_norms": plain, "from_softmax": soft, "from_squares": square,
               "highest_possible": highest}  # fmt: skip
    if plain <= CLOSE:
        return passes(f"scores are the lengths of the poses, within {plain:.1g}", **numbers)
    if soft <= CLOSE and candidate.capsules.by_length:
        return fails(
            f"scores are a softmax of the lengths: none can exceed {highest:.3f}", **numbers
        )
    if square <= CLOSE and candidate.capsules.by_length:
        return fails(f"scores are squared lengths, within {square:.1g}", **numbers)
    return warns(f"scores differ from the lengths of the poses by {plain:.2g}", **numbers)
