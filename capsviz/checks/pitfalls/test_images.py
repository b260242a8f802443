"""Test images are the same each time they are read."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, fails, passes
from capsviz.nn.random_state import seeded

ABOUT = About(
    paper="§5: images are shifted in training; no other augmentation is used",
    seen="the first test images read twice",
    breaks="the error is of other images than the test set's, and of others each time",
    mend="give random transforms to the training set alone",
    needs="`test_data`",
    pitfalls=(14,),
    after=(),
)


def examine(candidate: Candidate) -> Judgement:
    """Two readings of eight images, from two random states."""
    with seeded(0):
        first = candidate.pictures("test_data", 8)
    with seeded(1):
        second = candidate.pictures("test_data", 8)
    changed = int((first != second).flatten(1).any(1).sum())
    sentence = f"{changed} of {len(first)} test images differ when they are read again"
    return fails(sentence, changed=changed) if changed else passes(sentence, changed=changed)
