"""Drawings for `primary`: rows of single capsules, and the errors with their controls."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from capsviz.results.panels import label_end, name_rows, points, show

FIELD, ROUTED, CONTROL = "#D55E00", "#0072B2", "#D55E00"
AROUND, TITLES = 1.3, 0.5  # inches: names and scale beside the pictures, titles above and below
CELL = 0.85  # inches of a picture, at most


def rows(result, width):
    """Draw a row for each capsule: its receptive field, its growing coupling; beside it all."""
    K, L = result.sse.shape
    levels = range(L) if width >= 5 else sorted({0, L // 2, L - 1})
    columns = len(levels) + 2
    cell = min((width - AROUND) / columns, CELL)
    tall = cell * result.image.shape[1] / result.image.shape[2]
    figure = Figure(figsize=(width, TITLES + K * (tall + 0.04)))
    figure.suptitle("one capsule alone, its coupling growing to c", fontsize=6.5)
    grid = figure.add_gridspec(K, columns)
    for k in range(K):
        first, *alone = (figure.add_subplot(grid[k, column]) for column in range(columns - 1))
        picture = show(first, result.image, "" if k else "input")
        name = f"capsule {result.types[k]}"
        if result.places is not None:
            top, bottom, left, right = result.fields[k]
            size, look = (right - left, bottom - top), {"edgecolor": FIELD, "linewidth": 1.2}
            field = Rectangle((left - 0.5, top - 0.5), *size, fill=False, clip_on=False, **look)
            first.add_patch(field)
            name = "type {}\nrow {}, col {}".format(result.types[k], *result.places[k])
        text = f"{name}\nc = {result.couplings[k]:.3f}"
        first.set_ylabel(text, rotation=0, ha="right", va="center", fontsize=6, labelpad=4)
        for axes, level in zip(alone, levels, strict=True):
            show(axes, result.pictures[k, level], "" if k else _share(result.shares[level]))
    last = figure.add_subplot(grid[:, -1])
    show(last, result.whole, f"all {result.children:,}")
    last.set_xlabel(f"predicted\nas {result.classes[result.predicted]}", fontsize=6.5, labelpad=2)
    scale = figure.colorbar(picture, ax=figure.axes, fraction=0.05, aspect=8 * K, pad=0.02)
    scale.set_ticks([0, 127.5, 255], labels=["0", "0.5", "1"])
    scale.set_label("pixel value", labelpad=4)
    return figure


def errors(result, width):
    """Draw the mean SSE under every condition; beside it, what replaced couplings add."""
    side = width >= 6
    figure = Figure(figsize=(width, 2.1 if side else 3.6))
    left, right = figure.subplots(
        *((1, 2) if side else (2, 1)), **({} if side else {"height_ratios": [7, 4]})
    )
    controls = [i for i, name in enumerate(result.conditions) if "couplings" in name]
    every = list(range(len(result.conditions)))
    for axes, which, estimate in (
        (left, every, result.sse),
        (right, controls, result.sse.difference),
    ):
        for y, i in enumerate(which):
            one, colour = estimate[i], CONTROL if i in controls else ROUTED
            points(axes, one, colour, "o", shift=y)
            note = f"{one.value:.2f}" if axes is left else f"{one.value:+.2f}"
            label_end(axes, one.high, y, note)
        name_rows(axes, [result.conditions[i] for i in which])
    left.set(xlim=(0, 1.25 * result.sse.high.max()), xlabel="SSE, mean per image")
    figure.suptitle(f"{result.n:,} images of {result.dataset}, bars: 95 %")
    right.axvline(0, color="#7F7F7F", linewidth=0.6)
    right.margins(x=0.3)
    right.set(xlabel="added to the SSE of all capsules")
    right.set_title("replacing the couplings")
    return figure


def _share(share) -> str:
    return {0.0: "0", 1.0: "c"}.get(float(share), f"{share:.2g} c")
