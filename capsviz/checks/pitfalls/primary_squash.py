"""Primary capsules are squashed."""

import torch

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes, told

ABOUT = About(
    paper="§2, equation 1, and §4",
    seen="features 10,000 times as large: lengths must come to 1.000",
    breaks="the length of a child does not say whether its part is there; large ones outvote all",
    mend="squash the vectors of the primary capsules, over their own axis",
    pitfalls=(6,),
)
LARGE, GROWTH, ONE = 1e4, 10, 1.01


def examine(candidate: Candidate) -> Judgement:
    """Lengths of children for large features, and for larger ones."""
    first, second = large_children(candidate)
    low, high = float(first.min()), float(first.max())
    grown = float(second.max() / first.max().clamp_min(1e-30))
    numbers = {"lowest": low, "highest": high, "growth": grown}
    if grown < GROWTH:
        return passes(f"lengths are bounded: {low:.3f} to {high:.3f} at large features", **numbers)
    sentence = f"lengths of children grow with the features, to {high:.3g}"
    if not candidate.by_length:
        return told(f"{sentence}; presence is not said by length in this network", **numbers)
    return fails(sentence, **numbers)


def large_children(candidate: Candidate):
    """Lengths (B, I) of children whose features are large, and 100 times as large."""
    images = candidate.images(7)

    def large(scale: float):
        generator = torch.Generator().manual_seed(2)  # one for all convolutions

        def change(tensor):
            return scale * torch.randn(tensor.shape, generator=generator).to(tensor)

        return candidate.children(change, images).norm(dim=-1)

    first, second = large(LARGE), large(100 * LARGE)
    if not (first.isfinite().all() and second.isfinite().all()):
        raise UnseenError("children of large features are not finite")
    return first, second
