"""Drawing for `affine`: variants of an image, and accuracies with their intervals."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from capsviz.results.panels import groups, legend_columns, show

PICTURE = 0.62  # inches of an image at most
TITLE = 0.85  # inches of its title on one line
LINE = 0.13  # inches of a network in a group
KINDS = 3  # of images: untransformed, inside and outside the training shift range


def overview(result, width):
    """Examples above, if kept, a group of intervals for each kind of image below."""
    examples = () if result.examples is None else result.examples
    K, columns = len(result.networks), len(examples)
    across = legend_columns(width, result.networks)
    narrow = width < columns * TITLE
    tall = min(PICTURE, width / (columns + 1)) + (0.27 if narrow else 0.16) if columns else 0
    low = 0.5 + KINDS * (K * LINE + 0.12)
    figure = Figure(figsize=(width, tall + low + 0.16 * -(-K // across) + 0.25))
    heights = [tall, low] if columns else [low]
    rows = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    above = rows[0].subgridspec(1, columns, wspace=0.05).subplots() if columns else ()
    for i, axes in enumerate(above):
        show(axes, examples[i], _title(result, i, "\n" if narrow else ", "))
    lines = _accuracies(figure.add_subplot(rows[-1]), result)
    figure.legend(
        lines, result.networks, loc="outside lower center", ncols=across, title_fontsize=6.5,
        title=f"{result.n:,} images of {result.dataset}; bars: 95 %",
    )  # fmt: skip
    return figure


def _title(result, i, break_at) -> str:
    """Return whether an example lies inside the training shifts, and the larger of its own."""
    if i == 0:
        return "original"
    px = result.shifts_px[i]
    return f"{'inside' if px <= result.trained_px else 'outside'}{break_at}{px:.1f} px"


def _accuracies(axes, result):
    """Draw a group of intervals for each kind of image; return a marker of each network."""
    share = 100 * np.array([result.share_within, 1 - result.share_within])
    first, *others = result.axes["accuracy"][1]
    names = [first, *(f"{n}\n({s:.0f} %)" for n, s in zip(others, share, strict=True))]
    markers = groups(axes, [result.accuracy[:, kind] for kind in range(KINDS)], names)
    low = min(0.9, np.floor(10 * result.accuracy.low.min()) / 10)
    axes.set(xlim=(low, 1))
    axes.set_xlabel(f"accuracy; {result.variants} affine variants of {result.n:,} images")
    return markers
