"""The result of an image depends on the other images of its batch."""

import torch

from capsviz.checks.calling import DOUBLE
from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes

ABOUT = About(
    paper="§2, procedure 1: logits b_ij belong to one image",
    breaks="accuracy depends on the batch at test, and couplings belong to no image",
    fix="give each image logits of its own, zeros (B, I, J), and take no mean over the batch in "
    "the agreement",
    after=("not_repeatable", "wrong_softmax_axis"),
)
POSITION = 3  # of seven: a leak from the first image leaves the first unchanged


def examine(candidate: Candidate) -> Judgement:
    """Compare the results of one image among noise, black and white images, in float64."""
    candidate.caller.require_different()
    one = candidate.images(1)
    noise = [candidate.images(6, seed=seed) for seed in (1, 2)]
    flat = [one.new_full((6, *one.shape[1:]), value) for value in (0, 1)]

    def change(network, dtype) -> float:
        changes = []
        for position, others in ((0, noise), (POSITION, [*noise, *flat])):
            batches = [torch.cat((some[:position], one, some[position:])) for some in others]
            first, *rest = (
                [
                    tensor[position].cpu().double()
                    for tensor in candidate.caller.floats(batch.to(dtype), network)
                    if tensor.dim() > 0 and len(tensor) == len(batch)
                ]
                for batch in batches
            )
            if not first:
                raise SkippedError("no output has one part for each image")
            changes += [
                (a - b).abs().max() for other in rest for a, b in zip(first, other, strict=True)
            ]
        return float(torch.stack(changes).max())  # NaN if one is

    off, limit = candidate.caller.in_double(change)
    if not off <= limit:  # NaN too
        return fails(
            f"results of an image change by {off:.2g} with the other images of its batch, "
            "expected 0", change=off,
        )  # fmt: skip
    kind = "float64" if limit == DOUBLE else "float32"
    return passes(f"results change by {off:.1g} with the other images, in {kind}", change=off)
