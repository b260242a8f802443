"""Panels of `affine`: variants of an image, and accuracies with their intervals."""

import numpy as np

from capsviz.analysis import Panel
from capsviz.results.panels import groups, room, show, split

PICTURE = 0.62  # inches: largest width of an image
TITLE = 0.85  # inches: width of its title on one line
LINE = 0.13  # inches: height of a network in a group
KINDS = 3  # kinds of images: untransformed, inside and outside the training shift range


def _examples(axes, result):
    """Draw an image and affine variants of it, with the larger of the two shifts."""
    gap = "\n" if room(axes) < len(result.examples) * TITLE else ", "
    for i, one in enumerate(split(axes, 1, len(result.examples), wspace=0.05)[0]):
        px = result.shifts_px[i]
        title = f"{'inside' if px <= result.trained_px else 'outside'}{gap}{px:.1f} px"
        show(one, result.examples[i], title if i else "original")


def _tall(result, width: float) -> float:
    count = len(result.examples)
    return min(PICTURE, width / (count + 1)) + (0.27 if width < count * TITLE else 0.16)


def _accuracies(axes, result):
    """Draw accuracy on originals, and on variants inside and outside the training shift range."""
    share = 100 * np.array([result.share_inside, 1 - result.share_inside])
    first, *others = result.axes["accuracy"][1]
    names = [first, *(f"{n}\n({s:.0f} %)" for n, s in zip(others, share, strict=True))]
    groups(axes, [result.accuracy[:, kind] for kind in range(KINDS)], names, result.networks)
    low = min(0.9, np.floor(10 * result.accuracy.low.min()) / 10)
    axes.set(xlim=(low, 1))
    axes.set_xlabel(f"accuracy; {result.variants} affine variants of {result.n:,} images")


PANELS = {
    "examples": Panel(_examples, _tall, 1, shown="examples"),
    "accuracy": Panel(
        _accuracies, lambda result, width: 0.5 + KINDS * (len(result.networks) * LINE + 0.12), 1,
        marks="bars",
    ),
}  # fmt: skip
