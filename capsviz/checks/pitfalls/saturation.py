"""Class capsules are nearly saturated before training."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, fails, passes, warns

ABOUT = About(
    paper="none; the authors draw matrices with a deviation of 0.1",
    breaks="lengths start near 1, where the squash is flat: training starts slowly or dies",
    fix="draw the matrices small: `0.1 * torch.randn(...)`, smaller for more primary capsules",
    needs="an untrained network",
    after=(),
)
USUAL, HIGH = 0.1, 0.5


def examine(candidate: Candidate) -> Judgement:
    """Measure the mean activation of class capsules before training: about 0.04 if correct."""
    untrained = candidate.untrained()
    with untrained.caller.still():
        images, by_length = untrained.images(7), untrained.capsules.by_length
        lengths = untrained.poses(images).norm(dim=-1) if by_length else untrained.scores(images)
        mean = float(lengths.mean())
    message = f"mean activation before training is {mean:.2g}"
    if mean <= USUAL:
        return passes(message, mean=mean)
    judge = fails if by_length and mean > HIGH else warns
    return judge(f"{message} (usually ≤ {USUAL})", mean=mean)
