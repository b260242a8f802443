"""Primary capsules are squashed."""

import torch

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes, told

ABOUT = About(
    paper="§2, equation 1, and §4",
    seen="features 10,000 times as large: lengths must come to 1.000; and a thousandth: not so",
    breaks="the length of a child does not say whether its part is there; large ones outvote all",
    mend="squash the vectors of the primary capsules, over their own axis",
    pitfalls=(6,),
)
LARGE, SMALL, GROWTH, ONE, ALIKE = 1e4, 1e-3, 10, 1.01, 0.01


def examine(candidate: Candidate) -> Judgement:
    """Lengths of children for large features, and for larger ones."""
    candidate = candidate.primary
    first, second = large_children(candidate)
    low, high = float(first.min()), float(first.max())
    grown = float(second.max() / first.max().clamp_min(1e-30))
    numbers = {"lowest": low, "highest": high, "growth": grown}
    if grown < GROWTH:
        short = lengths(candidate, SMALL)
        small = float(short.max())
        alike = max(high, small) - min(low, float(short.min())) < ALIKE
        if small > 0.5 and alike and high < ONE and candidate.by_length:
            return fails(
                f"lengths of children are {low:.3f} to {high:.3f} at large features and up to "
                f"{small:.3f} at small ones: they say nothing", **numbers, small=small,
            )  # fmt: skip
        return passes(f"lengths are bounded: {low:.3f} to {high:.3f} at large features", **numbers)
    sentence = f"lengths of children grow with the features, to {high:.3g}"
    if not candidate.by_length:
        return told(f"{sentence}; presence is not said by length in this network", **numbers)
    return fails(sentence, **numbers)


def large_children(candidate: Candidate):
    """Lengths (B, I) of children whose features are large, and 100 times as large."""
    first, second = lengths(candidate, LARGE), lengths(candidate, 100 * LARGE)
    if not (first.isfinite().all() and second.isfinite().all()):
        raise UnseenError("children of large features are not finite")
    return first, second


def lengths(candidate: Candidate, scale: float) -> torch.Tensor:
    """(B, I) of children whose features are drawn at random, and that large."""
    generator = torch.Generator().manual_seed(2)  # one for all convolutions

    def change(tensor):
        return scale * torch.randn(tensor.shape, generator=generator).to(tensor)

    return candidate.children(change, candidate.images(7)).norm(dim=-1)
