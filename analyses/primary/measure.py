"""Errors of images decoded from primary capsules, with controls of the couplings."""

from __future__ import annotations

from typing import NamedTuple

from capsviz.statistics.estimate import Estimate

ALL, SHUFFLED, UNIFORM, RETRAINED, STRONGEST, RANDOM, NONE = CONDITIONS = (
    "all capsules",
    "couplings shuffled",
    "couplings uniform",
    "trained with uniform couplings",
    "single capsules, the most coupled",
    "single capsules, at random",
    "no capsule",
)


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

    axes = {"sse": ("conditions",)}
    formats = {"sse": ".2f"}


def open_decoders(inputs, file=None) -> dict:
    """Return the decoders of a network, from a file or from where `train` writes them."""
    from capsviz.experiments import primary_decoder

    path = file or primary_decoder.find(inputs.source, inputs.name)
    return primary_decoder.load(
        path, inputs.model.card, checkpoint=inputs.source, device=inputs.device
    )


def evaluate(model, decoders, images, *, dataset, capsules=6, seed=0, progress=iter) -> Statistics:
    """Measure the SSE of N images (N, C, H, W), at least 2, under every condition.

    `decoders` are those of `capsviz.experiments.primary_decoder.load`, `capsules` the single
    capsules of each image to average over, at most.
    """
    import torch

    from capsviz.experiments.primary_decoder import look
    from capsviz.statistics.comparison import student_means
    from capsviz.statistics.intervals import require_two
    from capsviz.tracing import DRAWN_IMAGES

    images = images.cpu()
    n = len(images)
    require_two(n)
    generator = torch.Generator().manual_seed(seed)
    chunks = [
        errors(model, decoders, batch, capsules=capsules, generator=generator)
        for batch in progress(images.split(DRAWN_IMAGES))
    ]
    every, spread = (torch.cat(part).numpy() for part in zip(*chunks, strict=True))
    traced = look(model, images[:1])
    return Statistics(
        conditions=list(CONDITIONS),
        sse=student_means(every),
        spread=float(spread.mean()),
        capsules=strongest(traced.couplings, model.grid, capsules).shape[1],
        children=traced.primary.shape[1],
        n=n,
        dataset=dataset,
    )


def errors(model, decoders, images, *, capsules: int, generator):
    """Return the SSE (N, M) of images under every condition, and the s.d. (N,) of their J c_ij."""
    import torch

    from capsviz.experiments.primary_decoder import decode, look
    from capsviz.nn.functional import reconstruction_loss

    traced = look(model, images)
    scaled = traced.scaled()
    draws = torch.rand(2, *traced.couplings.shape, generator=generator)
    shuffled = traced.couplings.gather(1, draws[0].argsort(1))

    def error(inputs, decoder="routed"):
        return reconstruction_loss(images, decode(decoders[decoder], inputs)).cpu().double()

    def alone(strength):
        chosen = strongest(strength, model.grid, capsules)
        masks = (torch.zeros(strength.shape).scatter(1, one[:, None], 1) for one in chosen.T)
        return torch.stack([error(scaled * mask[..., None]) for mask in masks]).mean(0)

    values = {
        ALL: error(scaled),
        SHUFFLED: error(traced.scaled(shuffled)),
        UNIFORM: error(traced.primary),
        RETRAINED: error(traced.primary, "uniform"),
        STRONGEST: alone(traced.couplings),
        RANDOM: alone(draws[1]),
        NONE: error(torch.zeros_like(scaled)),
    }
    spread = (traced.classes * traced.couplings).std(1)
    return torch.stack([values[name] for name in CONDITIONS], 1), spread.double()


def strongest(strength, grid: tuple[int, int, int] | None, count: int):
    """Return capsules (N, K) of the highest strength (N, I), no two of one type or position.

    Of a grid (types, rows, columns), with i = (type * rows + row) * columns + column; None: no
    grid. Fewer than `count` are found where there are fewer types or positions.
    """
    import torch

    if grid is None:
        return strength.topk(min(count, strength.shape[1]), dim=1).indices
    types, rows, columns = grid
    places = rows * columns
    left = strength.clone().view(len(strength), types, places)
    image, chosen = torch.arange(len(strength)), []
    for _ in range(min(count, *(size for size in (types, places) if size > 1), types * places)):
        best = left.flatten(1).argmax(1)
        kind, place = best // places, best % places
        left[image, kind, place] = -torch.inf
        if types > 1 and places > 1:
            left[image, kind] = -torch.inf
            left[image, :, place] = -torch.inf
        chosen.append(best)
    return torch.stack(chosen, 1)
