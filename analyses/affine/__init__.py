"""Affine variants of the test images: are they read within and beyond the trained places?

`capsviz affine --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from typing import NamedTuple

import click
import numpy as np

from capsviz.cli import options
from capsviz.cli.analysis import analysis
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import within_one
from capsviz.statistics.words import number, sentences

EXAMPLES = """
capsviz affine --checkpoint mnist --checkpoint mnist-resnet --n 1000  # about 15 s
"""

OVER_RUNS = {"accuracy": within_one}
NEEDS = ()  # of a network: its scores


SMALL = 0.98  # mean scale, of which readers are told
# What the axes of estimates are: fields with their names, or the names; None: numbered from 1.
VARIANTS = "as they are", "within", "beyond"
AXES = {"accuracy": ("networks", VARIANTS), "gap": ("networks", VARIANTS[1:])}


class Result(NamedTuple):
    """K networks on N images and their affine variants; intervals are 95 %, of resampled images.

    A difference is less the first network's, paired over the images.
    """

    networks: list[str]
    accuracy: Estimate  # (K, 3) of the images as they are, of variants within and beyond
    gap: Estimate  # (K, 2) accuracy of the images as they are less that within, and beyond
    trained_px: float  # shifts up to which a variant lies within the trained places
    share_within: float  # of the variants
    examples: np.ndarray | None  # (E, C, H, W) uint8: an image as it is, and variants of it
    shifts_px: np.ndarray  # (E,) larger of the two shifts of each; 0 for the image as it is
    variants: int  # of each image
    n: int
    dataset: str
    mean_scale: float = float("nan")  # of the variants: below 1 where large ones do not fit


def compute(
    models,
    images,
    labels,
    *,
    names,
    dataset,
    trained_px=2.0,
    variants=4,
    seed=0,
    progress=iter,
) -> Result:
    """Look at N images (N, C, H, W) in [0, 1], and at affine variants of each, with K networks.

    Parameters
    ----------
    models      K networks of the same images and classes; the others are compared with the first.
    labels      (N,).
    names       of the networks.
    dataset     its name, for the record.
    trained_px  random shifts of the first network's training images, each way.
    variants    of each image.
    seed        of the variants and the resamples.
    progress    wraps the variants, for a progress bar.

    Raises
    ------
    ValueError  for fewer than 2 images, no variant, a negative seed or shift, images of which most
        have ink at their border, or too few variants within or beyond the trained places.
    """
    from capsviz.analyses.affine import measure
    from capsviz.statistics.comparison import draw_resamples

    for what, value, least in (("variants", variants, 1), ("a seed", seed, 0)):
        if value < least:
            raise ValueError(f"expected {what} of at least {least}, got {value}")
    if not trained_px >= 0:
        raise ValueError(f"expected trained shifts of at least 0 pixels, got {trained_px}")
    images, labels = measure.whole(images), labels.cpu()
    if not measure.framed(images):
        raise ValueError(
            "most images have ink at their border, which a variant would lose: pad them first"
        )
    counts = draw_resamples(len(images), seed=seed)
    drawn = [measure.draw(images, v, seed=seed) for v in range(variants)]
    within = np.stack([measure.shift_px(one) <= trained_px for one in drawn])
    measure.check(within, trained_px)
    right = [measure.right(models, measure.apply(images, one), labels) for one in progress(drawn)]
    plain = measure.right(models, images, labels)
    examples, shifts_px = measure.examples(images, drawn, within)
    return Result(
        networks=list(names),
        **measure.statistics(plain, np.stack(right, 1), within, counts),
        trained_px=float(trained_px),
        share_within=float(within.mean()),
        examples=examples,
        shifts_px=shifts_px,
        variants=variants,
        n=len(images),
        dataset=dataset,
        mean_scale=measure.mean_scale(drawn),
    )


def plot(result: Result, *, width=7.16):
    """Variants of some images, and accuracy as they are, within and beyond the trained places."""
    from capsviz.analyses.affine import draw as drawing

    return drawing.overview(result, width)


@analysis(__doc__, networks=True)
@options.n
@click.option("--variants", default=4, show_default=True, help="Affine variants of each image.")
@click.option(
    "--within",
    "trained_px",
    type=float,
    metavar="PX",
    help="Shifts that the trained places reach to. [default: the first network's recipe's]",
)
@options.seed
def command(run, n, variants, trained_px, seed):
    """Write the figure, its numbers and the table; say accuracies and gaps."""
    n = options.usual(n, run.inputs)
    more = {"variants": variants, "seed": seed, "progress": run.progress("variants")}
    result = _compare(run.networks, n, trained_px=trained_px, **more)
    yield f"affine-{result.dataset}-{result.n}-images", result


def _compare(opened, n, *, trained_px=None, **more) -> Result:
    """`compute` for networks with the same data, over n images of it."""
    from capsviz.inputs.networks import together

    trained_px = _trained_px(opened[0]) if trained_px is None else trained_px
    if trained_px is None:
        raise ValueError(
            f"no recipe tells how far training images of {opened[0].name} were moved: add "
            "--within PX"
        )
    return compute(**together(opened, n), trained_px=trained_px, **more)


def _trained_px(inputs) -> float | None:
    """How far a network's training images were moved, by its card; None: it does not tell."""
    from capsviz.tracing import abilities

    return abilities(inputs.model).card.get("recipe", {}).get("shift_px")


def findings(result: Result) -> str:
    """What the numbers say: a line for each network, the smallest gap within first."""
    lines = [
        f"{result.variants} affine variants of each of {result.n} {result.dataset} images, "
        f"{number(result.share_within, '.0%')} of them within the trained places, moved by up to "
        f"{result.trained_px:g} px"
    ]
    if result.mean_scale < SMALL:
        lines[0] += (
            f"; large ones lose ink and are drawn anew, so that scales are {result.mean_scale:.2f} "
            "on average, not 1"
        )
    for k in np.lexsort(result.gap.value.T[::-1]):
        text = f"{result.networks[k]} {number(result.accuracy.value[k, 0], '.1%')} as they are"
        for p, place in enumerate(("within", "beyond")):
            text += f", {place} {result.accuracy[k, p + 1]:.1%}, gap {100 * result.gap[k, p]:.1f}"
            text += " points"
            if k:
                less = 100 * result.gap.difference[k, p]
                text += f" ({less:+.1f} from {result.networks[0]}'s)"
        lines.append(text)
    return "\n".join(lines)


def caption(result: Result) -> str:
    """What the figure shows, with its numbers."""
    return (
        "An image and affine variants of it, rotated, sheared, scaled and moved at once, with the "
        "larger of the two shifts of each; accuracy of the images as they are, and of the "
        "variants within and beyond the places of training. Bars: 95 % intervals over the images. "
        + sentences(findings(result), result.networks)
    )


def table(result: Result) -> tuple[list[str], list[list[str]], str]:
    """Header, rows and caption of the table that is written beside the figure."""
    from capsviz.analyses.affine import draw

    return draw.table(result)


def paper(inputs, settings):
    """For `capsviz figures`: the network and the shipped baselines; none of images without room."""
    from capsviz.analyses.affine import measure
    from capsviz.inputs.networks import with_baselines

    if _trained_px(inputs) is None or not measure.framed(inputs.images(settings.few)[0]):
        return
    progress = settings.progress("affine variants")
    result = _compare(with_baselines(inputs), settings.few, seed=settings.seed, progress=progress)
    yield f"affine-{result.dataset}-{result.n}-images", result
