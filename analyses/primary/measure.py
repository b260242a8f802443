"""What `primary` finds over a test set: errors under every condition, and a verdict."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.statistics.estimate import Estimate
from capsviz.statistics.words import number

MARGIN = 0.01  # of the SSE: a difference inside it counts as none


# What the axes of estimates are: fields with their names, or the names; None: numbered from 1.
AXES = {"sse": ("conditions",)}


class Statistics(NamedTuple):
    """N test images under M conditions; intervals are 95 %, by Student's t."""

    conditions: list[str]  # (M,) "all capsules" first
    sse: Estimate  # (M,) mean over images; difference: less "all capsules", image by image
    spread: float  # standard deviation of J c_ij over the capsules of an image, mean over images,
    # of routing's couplings and, because they are the same ones, of the shuffled
    capsules: int  # single capsules of each image behind the two means of single capsules
    children: int  # I
    n: int
    dataset: str


def evaluate(model, decoders, images, *, dataset, capsules=6, seed=0, progress=iter) -> Statistics:
    """SSE of N images (N, C, H, W), at least 2, from all capsules, single ones and the controls.

    Parameters
    ----------
    decoders  of `capsviz.experiments.primary_decoder.load`.
    dataset   its name, for the record.
    capsules  single capsules of each image to average over, at most.
    seed      of the shuffles and of the capsules at random.
    progress  wraps the chunks of images, for a progress bar.

    Raises
    ------
    ValueError  for fewer than 2 images, or less than 1 capsule.
    """
    import torch

    from capsviz.analyses.primary import controls
    from capsviz.experiments.primary_decoder import look
    from capsviz.statistics.intervals import mean_interval, require_two
    from capsviz.tracing import CHUNK_IMAGES

    images = images.cpu()
    n = len(images)
    require_two(n)
    generator = torch.Generator().manual_seed(seed)
    chunks = [
        controls.errors(model, decoders, batch, capsules=capsules, generator=generator)
        for batch in progress(images.split(CHUNK_IMAGES))
    ]
    errors, spread = (torch.cat(part).numpy() for part in zip(*chunks, strict=True))
    added = Estimate(*mean_interval(errors - errors[:, :1]), n)
    traced = look(model, images[:1])
    return Statistics(
        conditions=list(controls.CONDITIONS),
        sse=Estimate(*mean_interval(errors), n, added),
        spread=float(spread.mean()),
        capsules=controls.strongest(traced.couplings, model.grid, capsules).shape[1],
        children=traced.primary.shape[1],
        n=n,
        dataset=dataset,
    )


def places(model, chosen):
    """Types, places and receptive fields of capsules; without a grid their numbers alone."""
    if model.grid is None:
        return chosen, None, None
    _, rows, columns = model.grid
    where = np.stack([chosen // columns % rows, chosen % columns], 1)
    pairs = [model.receptive_field(int(row), int(column)) for row, column in where]
    fields = [[end for part in pair for end in (part.start, part.stop)] for pair in pairs]
    return chosen // (rows * columns), where, np.array(fields)


def findings(statistics: Statistics) -> str:
    """What the numbers say: the error under every condition, and a verdict."""
    s = statistics
    named = ", ".join(f"{name} {s.sse[k]:.2f}" for k, name in enumerate(s.conditions))
    head = f"mean SSE of {s.n:,} {s.dataset} images, of single capsules over {s.capsules} of each"
    return f"{head}, with 95 % intervals: {named}; {verdict(s)}"


def verdict(statistics: Statistics) -> str:
    """What the couplings are good for, by the decoder that was trained without them."""
    place = statistics.conditions.index("trained with uniform couplings")
    estimate = statistics.sse.difference[place]
    added, low, high = float(estimate.value), float(estimate.low), float(estimate.high)
    margin = number(MARGIN, ".0%")
    inside = max(abs(low), abs(high)) <= MARGIN * statistics.sse.value[0]
    if low > 0:
        outcome, meaning = (
            f"worse by {added:.2f}",
            "the couplings help by that, or training luck does",
        )
    elif high < 0:
        outcome, meaning = (
            f"better by {-added:.2f}",
            "the couplings do not help, or training luck does",
        )
    else:
        outcome = "no difference shown"
        meaning = f"more than {margin} of the SSE is not ruled out"
    if inside:
        meaning = (
            f"within {margin} of the SSE, so to draw the image nothing is needed of the couplings "
            "that the capsules do not hold; which class they carry, `capsviz transplant` measures"
        )
    spread = number(statistics.spread, ".0%")
    return (
        f"a decoder trained without the couplings: {outcome} (interval {low:+.2f} to {high:+.2f}); "
        f"{meaning} (over the capsules of an image their standard deviation is {spread} of "
        "uniform, shuffled ones' the same)"
    )
