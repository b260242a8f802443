"""Test images change each time they are read."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, fails, passes
from capsviz.nn.random_state import seeded

ABOUT = About(
    paper="§5: images are shifted in training; no other augmentation is used",
    breaks="the reported error is that of other images than the test set, and of others each time",
    fix="give random transforms to the training set only",
    needs="`test_data`",
    after=(),
)


def examine(candidate: Candidate) -> Judgement:
    """Read the first test images twice, from two random states."""
    with seeded(0):
        first = candidate.pictures("test_data", 8)
    with seeded(1):
        second = candidate.pictures("test_data", 8)
    changed = int((first != second).flatten(1).any(1).sum())
    message = f"{changed} of {len(first)} test images differ when they are read again"
    return fails(message, changed=changed) if changed else passes(message, changed=changed)
