"""Two overlapping digits: do the two longest capsules tell them apart and draw each?

Method: each image of MultiMNIST shows two digits (`capsviz.data.multimnist`). Its two longest class
capsules are the prediction, and each is decoded alone; the two drawings are laid over each other in
two colours (figure 5 of Sabour, Frosst & Hinton 2017, arXiv:1710.09829). The wrong pair, there
marked by an asterisk: one class that is in the image, and one that is neither in it nor predicted.

Over N images, with 95 % intervals: both digits right (in any order); SSE of each drawing from its
digit alone, pixels in [0, 1]; and the IoU of each digit's ink with the ink given to it, where every
pixel of ink in the image (above 0.5) goes to the brighter drawing. Where a prediction is wrong its
drawing is held against the digit that was missed. Controls, on the same images: decoded from the
labels; the drawings exchanged; a drawing from an absent class; nothing drawn, so that all ink goes
to both; and, for the IoU, the digits themselves in place of drawings, as a reference. Differences
from the prediction are taken image by image.

A reader should see each digit in a colour of its own, overlapping strokes in that of both, and no
ink, or ink that fits nothing, for the absent class. The misread images are chosen for being wrong
with a long capsule: they do not say how often that happens.

Do not conclude that a capsule found its digit's pixels: the decoder never sees the image, and draws
what a digit of that class and pose looks like; only the distance from the absent class and from the
exchanged drawings speaks for the image. Images that share a digit with another are not independent,
so the intervals are a little narrow; and they do not cover the luck of training.
"""

from __future__ import annotations

from typing import NamedTuple

import click
import numpy as np

from analyses._words import with_interval
from capsviz import options
from capsviz.intervals import require_two, wilson

SEVERAL = True  # for images that show several things each
DRAWN = ("predicted classes", "true classes", "exchanged", "absent class", "nothing drawn")
DIVIDED = (*DRAWN[:4], "all ink to both", "digits themselves")


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
    right: float  # share of the N images with both digits right
    right_ci95: tuple[float, float]  # Wilson
    one_right: float  # share with one or both right
    one_right_ci95: tuple[float, float]
    drawings: list[str]  # M names, the prediction first
    sse: np.ndarray  # (M,) of one digit, mean
    sse_ci95: np.ndarray  # (M, 2) normal approximation
    sse_more: np.ndarray  # (M - 1,) than from the prediction, mean
    sse_more_ci95: np.ndarray  # (M - 1, 2) of the differences image by image
    divisions: list[str]  # L names, the prediction first
    iou: np.ndarray  # (L,) of one digit, mean
    iou_ci95: np.ndarray  # (L, 2)
    iou_more: np.ndarray  # (L - 1,) than from the prediction, mean
    iou_more_ci95: np.ndarray  # (L - 1, 2)
    n: int
    classes: list[str]
    dataset: str


def compute(model, measured, *, shown, index=0, failures=4, seed=0, progress=iter) -> Result:
    """Read, draw and measure images with two things each.

    Parameters
    ----------
    measured  a `Dataset` with parts, N of at least 2 images.
    shown     a `Dataset` of the examples.
    index     place in the split of the first one of `shown`, for the record.
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

    from analyses import _segment_measures as measures
    from capsviz.augment import to_uint8
    from capsviz.tracing import CHUNK_IMAGES

    for part in (measured, shown):
        measures.require_pairs(part)
    require_two(len(measured))
    draw = measures.draws(measured, seed)
    hits, sse, iou, worst = [], [], [], []
    for start in progress(range(0, len(measured), CHUNK_IMAGES)):
        chunk = slice(start, start + CHUNK_IMAGES)
        seen = measures.look(model, measured.take(chunk), draw[chunk])
        right = seen.predicted == seen.labels
        hits.append(right.sum(1))
        sse.append(measures.errors(seen))
        iou.append(measures.overlaps(seen))
        longest = seen.lengths.masked_fill(right, 0).amax(1)
        for i in (~right).any(1).nonzero().flatten():
            worst.append((-float(longest[i]), start + int(i), seen.only(i)))
        worst = sorted(worst, key=lambda one: one[:2])[:failures]
    examples = measures.look(model, shown, measures.draws(shown, seed))
    examples = examples.join([one for *_, one in worst])
    hits, n = torch.cat(hits), len(measured)
    counts = int((hits == 2).sum()), int((hits >= 1).sum())
    wrong_pair = torch.stack([examples.from_labels[:, 0], examples.from_absent], 1)
    return Result(
        inputs=to_uint8(examples.images),
        parts=to_uint8(examples.parts),
        drawn=to_uint8(examples.drawn),
        wrong_pair=to_uint8(wrong_pair),
        labels=examples.labels.numpy(),
        predicted=examples.predicted.numpy(),
        lengths=examples.lengths.numpy(),
        absent=examples.absent.numpy(),
        first=index,
        failures=len(worst),
        right=counts[0] / n,
        right_ci95=wilson(counts[0], n),
        one_right=counts[1] / n,
        one_right_ci95=wilson(counts[1], n),
        **measures.summary("sse", torch.cat(sse)),
        **measures.summary("iou", torch.cat(iou)),
        drawings=list(DRAWN),
        divisions=list(DIVIDED),
        n=n,
        classes=list(measured.classes),
        dataset=measured.name,
    )


def plot(result: Result, *, width=7.16):
    """Examples in two colours, misread images beside them; SSE and IoU with their controls."""
    from analyses import _segment_drawing as drawing

    return drawing.sheet(result, width)


@click.command(help=__doc__.split("\n")[0])
@options.subject
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
@click.option(
    "--limit", "n", type=int, metavar="N",
    help=f"Test images measured.  [default: {options.USUAL}, or all if fewer]",
)  # fmt: skip
@options.seed
@options.figure
@options.as_json
def command(index, count, failures, n, seed, as_json, figure, subject):
    """Write the figure and its numbers."""
    if subject["checkpoint"] is None and subject["dataset"] is None:
        subject = {**subject, "dataset": "multimnist"}
    opened = options.open_subject(subject)
    result = _of_subject(
        opened, options.usual(n, opened), index, count,
        failures=failures, seed=seed, progress=options.progress("images"),
    )  # fmt: skip
    name = f"segment-{result.dataset}-{index}-{result.n}-images"
    paths = options.save(name, "segment", result, opened, figure)
    options.report(result, findings(result), paths, as_json)


def _of_subject(subject, n, index=0, count=6, **more) -> Result:
    """The result for n images of a subject's split, `count` of them shown from `index` on."""
    from analyses._segment_measures import require_pairs

    part = subject.dataset
    require_pairs(part)
    if index + count > len(part):
        raise ValueError(
            f"{part.name} {part.split} has {len(part)} images: expected an index from 0 to "
            f"{len(part) - count} for {count} of them, got {index}"
        )
    shown = part.take(slice(index, index + count))
    return compute(subject.model, subject.sample(n), shown=shown, index=index, **more)


def findings(result: Result) -> str:
    """What the numbers say: accuracy, error and overlap, a line each."""

    def said(name, names):
        values, intervals, more, more_intervals = (
            getattr(result, name + part) for part in ("", "_ci95", "_more", "_more_ci95")
        )
        controls = zip(values[1:], names[1:], more, more_intervals, strict=True)
        return ", ".join(
            [
                f"{with_interval(values[0], intervals[0], '.2f')} {names[0]}",
                *(f"{v:.2f} {what} ({with_interval(*m, '+.2f')})" for v, what, *m in controls),
            ]
        )

    both = with_interval(result.right, result.right_ci95, ".1%")
    one = with_interval(result.one_right, result.one_right_ci95, ".1%")
    return (
        f"{result.n:,} {result.dataset} images, with 95 % intervals: both digits right {both}, "
        f"at least one {one}; "
        "in brackets: more than from the predicted classes\n"
        f"SSE of a digit: {said('sse', result.drawings)}\n"
        f"IoU of its ink: {said('iou', result.divisions)}"
    )


def paper(subject, settings):
    """For `capsviz figures`, where the images show two things each."""
    if subject.dataset.parts is None:
        return
    result = _of_subject(
        subject, settings.n, settings.index, seed=settings.seed,
        progress=settings.progress("segmenting"),
    )  # fmt: skip
    yield f"segment-{result.dataset}-{settings.index}-{result.n}-images", result


def caption(result: Result) -> str:
    """What the figure shows, with its numbers."""
    misread = ""
    if result.failures:
        misread = " In the second block: misread images, those with the longest wrong capsule."
    return (
        "Two digits in one image, and what the two longest capsules draw, one colour each. L: "
        "labels, R: read as, *: the wrong pair, its second class neither label nor prediction."
        f"{misread} Below: error and overlap of the drawings with their controls. "
        f"{'. '.join(findings(result).splitlines())}."
    )
