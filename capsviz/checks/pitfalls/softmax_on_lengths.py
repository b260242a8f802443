"""Scores are lengths, not a softmax of them."""

import math

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, fails, passes, told

ABOUT = About(
    paper="§3, equation 4: the margins are of lengths",
    seen="scores compared with the norms of the poses, and with a softmax of them",
    breaks="with 10 classes no score passes 0.232, so that no margin of 0.9 is ever met",
    mend="give the lengths themselves to the margin loss",
    pitfalls=(8,),
)
CLOSE = 1e-4


def examine(candidate: Candidate) -> Judgement:
    """Scores against norms of the poses."""
    images = candidate.images(7)
    norms = candidate.poses(images).norm(dim=-1)
    scores = candidate.scores(images)
    plain, soft = (float((scores - own).abs().max()) for own in (norms, norms.softmax(1)))
    highest = math.e / (math.e + candidate.classes - 1)
    numbers = {"from_norms": plain, "from_softmax": soft, "highest_possible": highest}
    if plain <= CLOSE:
        return passes(f"scores are the norms of the poses, within {plain:.1g}", **numbers)
    if soft <= CLOSE and candidate.by_length:
        return fails(f"scores are a softmax of the lengths: none can pass {highest:.3f}", **numbers)
    return told("scores are something else than lengths of poses", **numbers)
