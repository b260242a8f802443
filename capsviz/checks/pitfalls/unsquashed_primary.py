"""Primary capsules are not squashed."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, fails, passes, warns

ABOUT = About(
    paper="§2, equation 1, and §4",
    breaks="the length of a primary capsule does not say whether its part is present; long ones "
    "outvote all others",
    fix="squash the vectors of the primary capsules, each over its own components",
)
SMALL, GROWTH, ONE, ALIKE = 1e-3, 10, 1.01, 0.01


def examine(candidate: Candidate) -> Judgement:
    """Measure lengths for large features, which must be 1.000, and small ones, which must not."""
    primary, by_length = candidate.primary, candidate.capsules.by_length
    first, second = primary.large_lengths()
    low, high = float(first.min()), float(first.max())
    grown = float(second.max() / first.max().clamp_min(1e-30))
    numbers = {"lowest": low, "highest": high, "growth": grown}
    if grown >= GROWTH:
        message = f"lengths grow with the features, to {high:.3g}, expected at most 1"
        if not by_length:
            return warns(f"{message}; length is not presence in this network", **numbers)
        return fails(message, **numbers)
    short = primary.lengths(SMALL)
    small = float(short.max())
    alike = max(high, small) - min(low, float(short.min())) < ALIKE
    if small > 0.5 and alike and high < ONE and by_length:
        return fails(
            f"lengths are {low:.3f} to {high:.3f} for large features and up to {small:.3f} for "
            "small ones, expected 0: lengths carry no information", **numbers, small=small,
        )  # fmt: skip
    return passes(f"lengths are {low:.3f} to {high:.3f} for large features", **numbers)
