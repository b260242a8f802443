"""An image's result does not depend on the images beside it."""

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.precision import DOUBLE, in_double
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes
from capsviz.wrapping.leaves import tensors

ABOUT = About(
    paper="§2, procedure 1: logits b_ij belong to one image",
    seen="one image among noise, black and white ones, in batches of one size, in float64",
    breaks="accuracy depends on the batch at test, and couplings are of no image",
    mend="logits of shape (B, I, J), zeros for each image; no mean over the batch in the agreement",
    pitfalls=(3,),
    after=("repeats", "couplings_sum"),
)
PLACE = 3  # of seven: what leaks from the first image leaves the first as it is


def examine(candidate: Candidate) -> Judgement:
    """Compare results of one of seven images, the first or a later one, among others."""
    candidate.require_different()
    one = candidate.images(1)
    noise = [candidate.images(6, seed=seed) for seed in (1, 2)]
    even = [one.new_full((6, *one.shape[1:]), value) for value in (0, 1)]
    off, limit = 0.0, DOUBLE
    for place, others in ((0, noise), (PLACE, [*noise, *even])):
        batches = [torch.cat((some[:place], one, some[place:])) for some in others]
        change, precision = in_double(
            candidate.network,
            lambda network, dtype, place=place, batches=batches: _change(
                candidate, place, [batch.to(dtype) for batch in batches], network
            ),
        )
        off, limit = (change if not change <= off else off), max(limit, precision)
    kind = "float64" if limit == DOUBLE else "float32"
    if not off <= limit:  # NaN too
        return fails(f"results of an image change by {off:.2g} with its neighbours", change=off)
    return passes(f"results change by {off:.1g} with the neighbours, in {kind}", change=off)


def _change(candidate: Candidate, place: int, batches, network) -> float:
    first, *others = (
        [t[place].double() for t in tensors(candidate.call(b, network)) if _of_images(t, len(b))]
        for b in batches
    )
    if not first:
        raise UnseenError("no output has one part for each image")
    changes = [(a - b).abs().max() for other in others for a, b in zip(first, other, strict=True)]
    return float(torch.stack(changes).max())  # NaN if one is


def _of_images(tensor: Tensor, count: int) -> bool:
    return tensor.dim() > 0 and len(tensor) == count and tensor.is_floating_point()
