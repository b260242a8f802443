"""What `primary` finds over a test set: errors under every condition, and a verdict."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analyses._words import number, with_interval

MARGIN = 0.01  # of the SSE: a difference inside it counts as none


class Statistics(NamedTuple):
    """N test images under M conditions; intervals are 95 %, normal approximation."""

    conditions: list[str]  # (M,) "all capsules" first
    sse: np.ndarray  # (M,) mean over images
    sse_ci95: np.ndarray  # (M, 2)
    added: np.ndarray  # (M,) mean difference from "all capsules", image by image
    added_ci95: np.ndarray  # (M, 2)
    spread: float  # standard deviation of J c_ij over the capsules of an image, mean over images
    capsules: int  # single capsules of each image behind the two means of single capsules
    children: int  # I
    n: int
    dataset: str


def evaluate(model, decoders, images, *, dataset, capsules=6, seed=0, progress=iter) -> Statistics:
    """SSE of N images (N, C, H, W), at least 2, from all capsules, single ones and the controls.

    Parameters
    ----------
    decoders  of `capsviz.primary_decoder.load`.
    dataset   its name, for the record.
    capsules  single capsules of each image to average over, at most.
    seed      of the shuffles and of the capsules at random.
    progress  wraps the chunks of images, for a progress bar.

    Raises
    ------
    ValueError  for fewer than 2 images, or less than 1 capsule.
    """
    import torch

    from analyses._primary_controls import CONDITIONS, errors
    from capsviz.intervals import mean_interval, require_two
    from capsviz.tracing import CHUNK_IMAGES

    images = images.cpu()
    n = len(images)
    require_two(n)
    generator = torch.Generator().manual_seed(seed)
    chunks = [
        errors(model, decoders, batch, capsules=capsules, generator=generator)
        for batch in progress(images.split(CHUNK_IMAGES))
    ]
    found, spread = (torch.cat(part).numpy() for part in zip(*chunks, strict=True))
    sse, sse_ci95 = mean_interval(found)
    added, added_ci95 = mean_interval(found - found[:, :1])
    types, rows, columns = model.grid
    return Statistics(
        conditions=list(CONDITIONS),
        sse=sse,
        sse_ci95=sse_ci95,
        added=added,
        added_ci95=added_ci95,
        spread=float(spread.mean()),
        capsules=min(capsules, types, rows * columns),
        children=types * rows * columns,
        n=n,
        dataset=dataset,
    )


def said(statistics: Statistics) -> str:
    """What the numbers say: the error under every condition, and a verdict."""
    s = statistics
    rows = zip(s.conditions, s.sse, s.sse_ci95, strict=True)
    named = ", ".join(f"{name} {with_interval(sse, ends, '.2f')}" for name, sse, ends in rows)
    head = f"mean SSE of {s.n:,} {s.dataset} images, of single capsules over {s.capsules} of each"
    return f"{head}, with 95 % intervals: {named}; {verdict(s)}"


def verdict(statistics: Statistics) -> str:
    """What the couplings are good for, by the decoder that was trained without them."""
    place = statistics.conditions.index("trained with uniform couplings")
    added, (low, high) = statistics.added[place], statistics.added_ci95[place]
    margin = number(MARGIN, ".0%")
    inside = max(abs(low), abs(high)) <= MARGIN * statistics.sse[0]
    if low > 0:
        found, meaning = (
            f"worse by {added:.2f}",
            "the couplings help by that, or training luck does",
        )
    elif high < 0:
        found, meaning = (
            f"better by {-added:.2f}",
            "the couplings do not help, or training luck does",
        )
    else:
        found, meaning = "no difference shown", f"more than {margin} of the SSE is not ruled out"
    if inside:
        meaning = f"within {margin} of the SSE, so the couplings carry nothing that it needs"
    return (
        f"a decoder trained without the couplings: {found} (interval {low:+.2f} to {high:+.2f}); "
        f"{meaning} (they spread by {number(statistics.spread, '.0%')} about uniform)"
    )
