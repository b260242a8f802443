"""A new network does not saturate its class capsules."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, fails, passes, told

ABOUT = About(
    paper="none; the authors' code draws the matrices with a deviation of 0.1",
    seen="mean score before training: about 0.04 or less where it is right",
    breaks="lengths begin near 1, where the squash has no slope: training starts slowly or dies",
    mend="draw the matrices small: `0.1 * torch.randn(...)`, less for more children",
    needs="an untrained network",
    pitfalls=(23,),
    after=(),
)
USUAL, HIGH = 0.1, 0.5


def examine(candidate: Candidate) -> Judgement:
    """Mean score of the new network."""
    fresh = candidate.fresh()
    with fresh.still():
        mean = float(fresh.scores(fresh.images(7)).mean())
        by_length = fresh.by_length
    sentence = f"the mean score before training is {mean:.2g}"
    if mean <= USUAL:
        return passes(sentence, mean=mean)
    return fails(sentence, mean=mean) if by_length and mean > HIGH else told(sentence, mean=mean)
