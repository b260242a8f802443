"""Two overlapping digits: do the two longest capsules tell them apart and draw each?

`capsviz segment --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from typing import NamedTuple

import click
import numpy as np

from capsviz.cli import options
from capsviz.cli.analysis import analysis
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import require_two, wilson
from capsviz.statistics.words import sentences

EXAMPLES = """
capsviz segment --n 1000  # 10 s
"""

NEEDS = ("poses", "decode")  # of a network, see tracing.needs

SEVERAL = True  # for images that show several things each
DRAWN = ("predicted classes", "true classes", "exchanged", "absent class", "nothing drawn")
DIVIDED = (*DRAWN[:4], "all ink to both", "digits themselves")


# What the axes of estimates are: fields with their names, or the names; None: numbered from 1.
AXES = {"sse": ("drawings",), "iou": ("divisions",)}


class Result(NamedTuple):
    """Examples P, the last F of them misread ones; measures of N images."""

    inputs: np.ndarray  # (P, C, H, W) uint8
    parts: np.ndarray  # (P, 2, C, H, W) uint8, each digit alone
    drawn: np.ndarray  # (P, 2, C, H, W) uint8, from the two longest capsules
    wrong_pair: np.ndarray  # (P, 2, C, H, W) uint8, from the first label and the absent class
    labels: np.ndarray  # (P, 2)
    predicted: np.ndarray  # (P, 2) each right one in the place of its label
    lengths: np.ndarray  # (P, 2) of the predicted capsules
    absent: np.ndarray  # (P,) class of the wrong pair that is neither label nor prediction
    first: int  # place in the split of the first example; those that are not misread ones follow it
    failures: int  # F
    right: Estimate  # share of the N images with both digits right; Wilson
    one_right: Estimate  # share with one or both right; Wilson
    drawings: list[str]  # M names, the prediction first
    sse: Estimate  # (M,) of one digit, mean; the difference is from the prediction
    divisions: list[str]  # L names, the prediction first
    iou: Estimate  # (L,) of one digit, mean; the difference is from the prediction
    n: int
    classes: list[str]
    dataset: str


def compute(model, measured, *, examples, index=0, failures=4, seed=0, progress=iter) -> Result:
    """Read, draw and measure images with two things each.

    Parameters
    ----------
    measured  a `Dataset` with parts, N of at least 2 images.
    examples  a `Dataset` of those to be drawn.
    index     place in the split of the first one of `examples`, for the record.
    failures  how many misread images of `measured` to show beside them, at most; those first whose
              wrong capsule is longest.
    seed      of the absent classes.
    progress  wraps the chunks of images, for a progress bar.

    Raises
    ------
    ValueError  for fewer than 2 images, images without two parts, or fewer than 5 classes; from the
                network, if it has no capsules or no decoder.
    """
    import torch

    from capsviz.analyses.segment import measure as measures
    from capsviz.tracing import CHUNK_IMAGES
    from capsviz.transforms.augment import to_uint8

    for part in (measured, examples):
        measures.require_pairs(part)
    require_two(len(measured))
    draw = measures.draws(measured, seed)
    hits, sse, iou, worst = [], [], [], []
    for start in progress(range(0, len(measured), CHUNK_IMAGES)):
        chunk = slice(start, start + CHUNK_IMAGES)
        drawn = measures.look(model, measured.take(chunk), draw[chunk])
        right = drawn.predicted == drawn.labels
        hits.append(right.sum(1))
        sse.append(measures.errors(drawn))
        iou.append(measures.overlaps(drawn))
        longest = drawn.lengths.masked_fill(right, 0).amax(1)
        for i in (~right).any(1).nonzero().flatten():
            worst.append((-float(longest[i]), start + int(i), drawn.only(i)))
        worst = sorted(worst, key=lambda one: one[:2])[:failures]
    pairs = measures.look(model, examples, measures.draws(examples, seed))
    pairs = pairs.join([one for *_, one in worst])
    hits, n = torch.cat(hits), len(measured)
    both, one = int((hits == 2).sum()), int((hits >= 1).sum())
    wrong_pair = torch.stack([pairs.from_labels[:, 0], pairs.from_absent], 1)
    return Result(
        inputs=to_uint8(pairs.images),
        parts=to_uint8(pairs.parts),
        drawn=to_uint8(pairs.drawn),
        wrong_pair=to_uint8(wrong_pair),
        labels=pairs.labels.numpy(),
        predicted=pairs.predicted.numpy(),
        lengths=pairs.lengths.numpy(),
        absent=pairs.absent.numpy(),
        first=index,
        failures=len(worst),
        right=Estimate(both / n, wilson(both, n), n),
        one_right=Estimate(one / n, wilson(one, n), n),
        sse=measures.summary(torch.cat(sse)),
        iou=measures.summary(torch.cat(iou)),
        drawings=list(DRAWN),
        divisions=list(DIVIDED),
        n=n,
        classes=list(measured.classes),
        dataset=measured.name,
    )


def parts(result: Result) -> tuple[str, ...]:
    """Names of its pictures."""
    return ("", "measures")


def plot(result: Result, *, width=7.16, part=""):
    """Digits in two colours, misread images beside them; or the "measures" with their controls."""
    from capsviz.analyses.segment import draw

    return (draw.measures if part == "measures" else draw.sheet)(result, width)


@analysis(__doc__, dataset="multimnist")
@click.option(
    "--index", type=click.IntRange(0), default=0, show_default=True, help="First image to show."
)
@click.option(
    "--images", "count", type=click.IntRange(1, 24), default=6, show_default=True,
    help="How many to show, from that one on.",
)  # fmt: skip
@click.option(
    "--failures", type=click.IntRange(0, 24), default=4, show_default=True,
    help="Misread images to show beside them, at most.",
)  # fmt: skip
@options.n
@options.seed
def command(run, index, count, failures, n, seed):
    """Write the figure and its numbers."""
    result = _of_inputs(
        run.inputs, options.usual(n, run.inputs), index, count,
        failures=failures, seed=seed, progress=run.progress("images"),
    )  # fmt: skip
    yield f"segment-{result.dataset}-{index}-{result.n}-images", result


def _of_inputs(inputs, n, index=0, count=6, **more) -> Result:
    """The result for n images of its split, `count` of them drawn from `index` on."""
    from capsviz.analyses.segment.measure import require_pairs

    part = inputs.dataset
    require_pairs(part)
    if index + count > len(part):
        raise ValueError(
            f"{part.name} {part.split} has {len(part)} images: expected an index from 0 to "
            f"{len(part) - count} for {count} of them, got {index}"
        )
    examples = part.take(slice(index, index + count))
    return compute(inputs.model, inputs.sample(n), examples=examples, index=index, **more)


def findings(result: Result) -> str:
    """What the numbers say: accuracy, error and overlap, a line each."""

    def compared(estimate, names):
        controls = (
            f"{estimate.value[k]:.2f} {name} ({estimate.difference[k]:+.2f})"
            for k, name in enumerate(names[1:], 1)
        )
        return ", ".join([f"{estimate[0]:.2f} {names[0]}", *controls])

    return (
        f"{result.n:,} {result.dataset} images, with 95 % intervals: both digits right "
        f"{result.right:.1%}, at least one {result.one_right:.1%}; "
        "in brackets: more than from the predicted classes\n"
        f"SSE of a digit: {compared(result.sse, result.drawings)}\n"
        f"IoU of its ink: {compared(result.iou, result.divisions)}"
    )


def paper(inputs, settings):
    """For `capsviz figures`, where the images show two things each."""
    if inputs.dataset.parts is None:
        return
    result = _of_inputs(
        inputs, settings.n, settings.index, seed=settings.seed,
        progress=settings.progress("segmenting"),
    )  # fmt: skip
    yield f"segment-{result.dataset}-{settings.index}-{result.n}-images", result


def caption(result: Result, part: str = "") -> str:
    """What a picture shows, with its numbers."""
    if part == "measures":
        return (
            "Error and overlap of what the two longest capsules of an image draw, with their "
            f"controls. {sentences(findings(result))}"
        )
    of = f"misread ones of the {result.n:,} that the measures are of, by the longest wrong capsule"
    return (
        "Two digits in one image, and what the two longest capsules draw, one colour each. "
        "*: the wrong pair, its second class neither label nor prediction."
        f"{f' In the second block: {of}.' if result.failures else ''}"
    )
