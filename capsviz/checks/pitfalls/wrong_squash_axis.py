"""Primary capsules are squashed over another axis than their own components."""

from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.primary import PrimaryCapsules, noise
from capsviz.checks.squashing import judge_lengths
from capsviz.checks.verdict import About, Judgement, SkippedError

ABOUT = About(
    paper="§2, equation 1",
    breaks="the length of a capsule depends on other capsules, and is no probability",
    fix="use `squash(s, dim=-1)`, where the last axis holds the components of one capsule",
    after=("not_repeatable", "unsquashed_primary"),
)
USUAL, SAME = 0.1, 1e-3


def examine(candidate: Candidate) -> Judgement:
    """Measure lengths of primary capsules for large features, which must be 1.000 each."""
    primary = candidate.primary
    large, _ = primary.large_lengths()
    if float((large - primary.lengths(USUAL)).abs().max()) < SAME:
        raise SkippedError("features are normalised before the squash: their size has no effect")
    return judge_lengths(large, lambda size: _moved(primary, size))


def _moved(primary: PrimaryCapsules, size: float) -> Tensor:
    """How much the components of capsules (I, D) move with one number of the features."""
    random = noise(size, seed=4)
    changed_one: list[bool] = []

    def change(tensor):
        changed = random(tensor[:1]).repeat(2, *[1] * (tensor.dim() - 1))
        if not changed_one:  # of several convolutions the first
            changed[1].view(-1)[0] *= -3
        changed_one.append(True)
        return changed

    first, second = primary.of(change, primary.caller.images(2))
    return (first - second).abs()
