"""Errors of images decoded from primary capsules, with controls of the couplings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

from capsviz.analysis import Analysis, Default, Range, Seed
from capsviz.statistics.estimate import Estimate

Decoder = Annotated[
    Path | None,
    Default("beside the weights, or runs/NAME-primary"),
    "Decoders of `capsviz primary train`.",
]
Capsules = Annotated[int, Range(1), "Capsules to show, at most."]

MARGIN = 0.01  # of the SSE: a difference inside it counts as none
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


class Couplings(Analysis):
    """N images decoded from primary capsules, with and without the couplings of routing."""

    Result = Statistics
    needs = ("primary", "couplings")
    headline = ("sse",)

    def measure(
        self, network, images, *, dataset, inputs, progress=iter, decoder: Decoder = None,
        capsules: Capsules = 6, seed: Seed = 0,
    ) -> Statistics:  # fmt: skip
        """Measure N images (N, C, H, W), with the decoders of a file."""
        return evaluate(
            network, open_decoders(inputs, decoder), images, dataset=dataset, capsules=capsules,
            seed=seed, progress=progress,
        )  # fmt: skip

    def draw(self, result, *, width=7.16, part=""):
        from capsviz.analyses.primary import draw

        return draw.errors(result, width)

    def verdict(self, result) -> str:
        added = result.sse.difference[result.conditions.index(RETRAINED)]
        low, high = float(added.low), float(added.high)
        text = "A decoder trained with uniform couplings draws the images"
        if max(abs(low), abs(high)) <= MARGIN * result.sse.value[0]:
            return (
                f"{text} as well, within {MARGIN:.0%} of the SSE: drawing needs nothing of the "
                "couplings that the capsules do not hold."
            ).replace("%", " %")
        if low > 0:
            return f"{text} worse: the couplings help, or chance in training does."
        if high < 0:
            return f"{text} better: the couplings do not help, or chance in training does."
        return f"{text} no worse as far as is shown, but not clearly as well."

    def caption(self, result, part="") -> str:
        return (
            "Squared error of images decoded from primary capsules, with couplings replaced, and "
            "from single capsules. At the right, the difference from all capsules, paired by "
            f"image. Bars: 95 % intervals of the mean (Student's t) over {result.n:,} images of "
            f"{result.dataset}."
        )


def open_decoders(inputs, file=None) -> dict:
    """Return the decoders of a network, from a file or from where `train` writes them."""
    from capsviz.experiments import primary_decoder

    path = file or primary_decoder.find(inputs.source, inputs.name)
    return primary_decoder.load(
        path, inputs.model.card, checkpoint=inputs.source, device=inputs.device
    )


def evaluate(model, decoders, images, *, dataset, capsules=6, seed=0, progress=iter) -> Statistics:
    """Measure the SSE of N images (N, C, H, W), at least 2, under every condition.

    Parameters
    ----------
    decoders  of `capsviz.experiments.primary_decoder.load`.
    capsules  single capsules of each image to average over, at most.
    seed      of the shuffles and of the capsules at random.
    progress  wraps the chunks of images, for a progress bar.

    Raises
    ------
    ValueError  for fewer than 2 images, or less than 1 capsule.
    """
    import torch

    from capsviz.experiments.primary_decoder import look
    from capsviz.statistics.intervals import mean_interval, require_two
    from capsviz.tracing import CHUNK_IMAGES

    images = images.cpu()
    n = len(images)
    require_two(n)
    generator = torch.Generator().manual_seed(seed)
    chunks = [
        errors(model, decoders, batch, capsules=capsules, generator=generator)
        for batch in progress(images.split(CHUNK_IMAGES))
    ]
    every, spread = (torch.cat(part).numpy() for part in zip(*chunks, strict=True))
    added = Estimate(*mean_interval(every - every[:, :1]), n)
    traced = look(model, images[:1])
    return Statistics(
        conditions=list(CONDITIONS),
        sse=Estimate(*mean_interval(every), n, added),
        spread=float(spread.mean()),
        capsules=strongest(traced.couplings, model.grid, capsules).shape[1],
        children=traced.primary.shape[1],
        n=n,
        dataset=dataset,
    )


def errors(model, decoders, images, *, capsules: int, generator):
    """Return the SSE of a batch (N, C, H, W) under every condition, and the couplings' spread.

    Returns
    -------
    (N, M) float64, and (N,) the standard deviation of J c_ij over the capsules of each image.
    """
    import torch

    from capsviz.experiments.primary_decoder import decode, look
    from capsviz.nn.functional import reconstruction_loss

    traced = look(model, images)
    scaled = traced.scaled()
    draws = torch.rand(2, *traced.couplings.shape, generator=generator)
    shuffled = traced.couplings.gather(1, draws[0].argsort(1))

    def error(inputs, decoder="routed"):
        return reconstruction_loss(images, decode(decoders[decoder], inputs)).double()

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
    """Return the capsules of the highest strength, no two of one type or at one position.

    Parameters
    ----------
    strength  (N, I).
    grid      (types, rows, columns), i = (type * rows + row) * columns + column; None: no grid.
    count     how many; fewer are found where there are fewer types or positions.

    Returns
    -------
    (N, K) capsule numbers, the strongest first.
    """
    import torch

    if count < 1:
        raise ValueError(f"expected at least 1 capsule, got {count}")
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
