"""What do single primary capsules hold, and does reconstruction need the couplings?"""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Default, Range, Seed
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
Decoder = Annotated[
    Path | None,
    Default("beside the weights, or runs/NAME-primary"),
    "Decoders of `capsviz primary-train`.",
]
Capsules = Annotated[int, Range(1), "Capsules to show, at most."]


class Result(NamedTuple):
    """One image decoded from each of K capsules, at L shares of its coupling."""

    image: np.ndarray  # (C, H, W) uint8
    types: np.ndarray  # (K,) capsule type, or number without a grid; most coupled first
    places: np.ndarray | None  # (K, 2) row and column in the grid; None: no grid
    fields: np.ndarray | None  # (K, 4) receptive field: top, bottom, left, right; px
    couplings: np.ndarray  # (K,) to the predicted class
    shares: np.ndarray  # (L,) of that coupling, 0 to 1
    pictures: np.ndarray  # (K, L, C, H, W) uint8, from one capsule
    sse: np.ndarray  # (K, L) sum of squared differences from the image, pixels in [0, 1]
    whole: np.ndarray  # (C, H, W) uint8, from all capsules
    whole_sse: float
    children: int  # I
    predicted: int
    classes: list[str]
    label: int | None  # true class, if it is known


def _left_out(self, inputs) -> str:
    """Return why the analysis is left out if there is no decoder, else ""."""
    from capsviz.experiments.primary_decoder import find

    with suppress(ValueError):  # a network without a checkpoint
        if find(inputs.source, inputs.name).is_file():
            return ""
    return "there is no primary-capsule decoder: capsviz primary-train trains one"


class Single(Analysis):
    """One image decoded from single primary capsules, and from all of them."""

    Result = Result
    left_out = _left_out
    needs = ("primary", "couplings")
    examples = """
    capsviz primary --digit 4  # 10 s
    capsviz primary --n 1000  # 20 s
    """

    def measure(
        self, network, image, label=None, *, classes, inputs, decoder: Decoder = None,
        capsules: Capsules = 6,
        levels: Annotated[int, Range(2, 12), "Number of fractions of the coupling to show."] = 5,
    ) -> Result:  # fmt: skip
        """Decode the most coupled capsules of one image (1, C, H, W), each alone, and all."""
        import torch

        from capsviz.experiments.primary_decoder import decode, look
        from capsviz.nn.functional import reconstruction_loss
        from capsviz.tracing import abilities
        from capsviz.transforms.augment import to_uint8

        image, decoders = image.cpu(), open_decoders(inputs, decoder)
        traced = look(network, image)
        scaled = traced.scaled()
        chosen = strongest(traced.couplings, abilities(network).grid, capsules)[0]
        shares = torch.linspace(0, 1, levels)
        single = torch.zeros(len(chosen), levels, *scaled.shape[1:])
        for k, i in enumerate(chosen):
            single[k, :, i] = shares[:, None] * scaled[0, i]
        decoded = decode(decoders["routed"], single.flatten(0, 1))
        sse = reconstruction_loss(image.expand_as(decoded), decoded)
        whole = decode(decoders["routed"], scaled)
        types, where, fields = positions(network, chosen.numpy())
        return Result(
            image=to_uint8(image[0]),
            types=types,
            places=where,
            fields=fields,
            couplings=traced.couplings[0, chosen].numpy(),
            shares=shares.numpy(),
            pictures=to_uint8(decoded).reshape(len(chosen), levels, *image.shape[1:]),
            sse=sse.numpy().reshape(len(chosen), levels),
            whole=to_uint8(whole[0]),
            whole_sse=float(reconstruction_loss(image, whole)),
            children=scaled.shape[1],
            predicted=int(traced.predicted),
            classes=list(classes),
            label=label,
        )

    def verdict(self, result) -> str:
        return (
            f"Predicted as {result.classes[result.predicted]}. The SSE is {result.whole_sse:.2f} "
            f"from all {result.children:,} capsules, and at least {result.sse[:, -1].min():.2f} "
            f"from a single one of the {len(result.sse)} chosen."
        )


class Statistics(NamedTuple):
    """N test images under M conditions; intervals are 95 %, by Student's t."""

    conditions: list[str]  # (M,) "all capsules" first
    sse: Estimate  # (M,) mean over images; difference: minus "all capsules", paired by image
    spread: float  # standard deviation of J c_ij over the capsules of an image, mean over images;
    # shuffling does not change it
    capsules: int  # single capsules of each image, averaged in the two conditions with those
    children: int  # I
    n: int
    dataset: str

    axes = {"sse": ("conditions",)}
    formats = {"sse": ".2f"}


class Couplings(Analysis):
    """N images decoded from primary capsules, with and without the couplings of routing."""

    Result = Statistics
    left_out = _left_out
    how = "of the mean, Student's t"
    panels = "draw:MANY"
    needs = ("primary", "couplings")
    headline = ("sse",)

    def measure(
        self, network, images, *, dataset, inputs, progress=iter, decoder: Decoder = None,
        capsules: Capsules = 6, seed: Seed = 0,
    ) -> Statistics:  # fmt: skip
        """Measure N images (N, C, H, W) with trained decoders."""
        return evaluate(
            network, open_decoders(inputs, decoder), images, dataset=dataset, capsules=capsules,
            seed=seed, progress=progress,
        )  # fmt: skip

    def verdict(self, result) -> str:
        return f"{result.n:,} {result.dataset} images, decoded from their primary capsules."


def open_decoders(inputs, file=None) -> dict:
    """Load the decoders of a network, from `file` or the default path of `primary-train`."""
    from capsviz.experiments import primary_decoder

    path = file or primary_decoder.find(inputs.source, inputs.name)
    return primary_decoder.load(
        path, inputs.model.card, checkpoint=inputs.source, device=inputs.device
    )


def evaluate(model, decoders, images, *, dataset, capsules=6, seed=0, progress=iter) -> Statistics:
    """Measure the SSE of N images (N, C, H, W), at least 2, under every condition.

    `decoders` come from `capsviz.experiments.primary_decoder.load`. Errors of single capsules are
    averaged over at most `capsules` of each image.
    """
    import torch

    from capsviz.experiments.primary_decoder import look
    from capsviz.statistics.comparison import student_means
    from capsviz.tracing import DRAWN_IMAGES, abilities

    images = images.cpu()
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
        capsules=strongest(traced.couplings, abilities(model).grid, capsules).shape[1],
        children=traced.primary.shape[1],
        n=len(images),
        dataset=dataset,
    )


def errors(model, decoders, images, *, capsules: int, generator):
    """Return the SSE (N, M) of images under every condition, and the s.d. (N,) of J c_ij."""
    import torch

    from capsviz.experiments.primary_decoder import decode, look
    from capsviz.nn.functional import reconstruction_loss
    from capsviz.tracing import abilities

    traced = look(model, images)
    scaled = traced.scaled()
    draws = torch.rand(2, *traced.couplings.shape, generator=generator)
    shuffled = traced.couplings.gather(1, draws[0].argsort(1))

    def error(inputs, decoder="routed"):
        return reconstruction_loss(images, decode(decoders[decoder], inputs)).cpu().double()

    def alone(strength):
        chosen = strongest(strength, abilities(model).grid, capsules)
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
    """Return the capsules (N, K) of highest strength (N, I), no two of one type or position.

    The grid is (types, rows, columns), with i = (type * rows + row) * columns + column; None: no
    grid. K is less than `count` if there are fewer types or positions.
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


def positions(model, chosen):
    """Return types, positions and receptive fields; without these, (numbers, None, None)."""
    from capsviz.tracing import abilities

    able = abilities(model)
    if (grid := able.grid) is None or not able.has_receptive_fields:
        return chosen, None, None
    _, rows, columns = grid
    where = np.stack([chosen // columns % rows, chosen % columns], 1)
    pairs = [model.receptive_field(int(row), int(column)) for row, column in where]
    fields = [[end for part in pair for end in (part.start, part.stop)] for pair in pairs]
    return chosen // (rows * columns), where, np.array(fields)
