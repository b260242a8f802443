"""Numbers of primary capsules have both signs: no ReLU makes them."""

import torch

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, fails, passes, told

ABOUT = About(
    paper="§4: PrimaryCapsules is a convolution with equation 1 as its non-linearity",
    seen="signs of the children, for features of both signs",
    breaks="poses live in one corner of their space, so that they cannot point apart",
    mend="apply ReLU after the first convolution only",
    pitfalls=(7,),
)


def examine(candidate: Candidate) -> Judgement:
    """The share of negative numbers."""

    candidate = candidate.primary
    generator = torch.Generator().manual_seed(3)

    def change(tensor):
        return torch.randn(tensor.shape, generator=generator).to(tensor)

    children = candidate.children(change, candidate.images(7))
    share = float((children < 0).float().mean())
    if share > 0.01:
        return passes(f"{share:.0%} of the numbers are negative", negative=share)
    relus = [e.place for e in candidate.between() if e.name in ("relu", "clamp", "clamp_min")]
    where = f" (relu in {', '.join(dict.fromkeys(relus))})" if relus else ""
    sentence = f"no number of a child is negative{where}"
    return (
        fails(sentence, negative=share) if candidate.by_length else told(sentence, negative=share)
    )
