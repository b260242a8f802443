"""Drawings for `primary`: rows of single capsules, and the errors with their controls."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from capsviz.results.panels import label_end, name_rows, points, show

FIELD, ROUTED, CONTROL = "#D55E00", "#0072B2", "#D55E00"
GAP, GROUP = 0.04, 0.12  # inches between pictures, between groups of them
LABELS, SCALE, TITLES = 0.66, 0.56, 0.42  # inches: left of the pictures, right of them, above them
CELL = 0.85  # inches of a picture, at most


def rows(result, width):
    """Draw a row for each capsule: its receptive field, its growing coupling; beside it all."""
    K, L = result.sse.shape
    levels = range(L) if width >= 5 else sorted({0, L // 2, L - 1})
    columns = len(levels) + 2
    cell = min((width - LABELS - SCALE - (columns - 1) * GAP - 2 * GROUP) / columns, CELL)
    tall = cell * result.image.shape[1] / result.image.shape[2]
    below = (
        (0.26 if width < 5 else 0.14) if K == 1 else 0.06
    )  # the prediction stands under the middle row
    height = TITLES + K * (tall + GAP) + below
    figure = Figure(figsize=(width, height), layout="none")

    def place(column, row, group):
        x = LABELS + column * (cell + GAP) + group * GROUP
        y = height - TITLES - tall - row * (tall + GAP)
        return figure.add_axes([x / width, y / height, cell / width, tall / height])

    for k in range(K):
        axes = place(0, k, 0)
        picture = show(axes, result.image, "input" if k == 0 else None)
        name = f"capsule {result.types[k]}"
        if result.places is not None:
            top, bottom, left, right = result.fields[k]
            axes.add_patch(
                Rectangle(
                    (left - 0.5, top - 0.5), right - left, bottom - top,
                    fill=False, edgecolor=FIELD, linewidth=1.2, clip_on=False,
                )
            )  # fmt: skip
            row, column = result.places[k]
            name = f"type {result.types[k]}\nrow {row}, col {column}"
        axes.set_ylabel(
            f"{name}\nc = {result.couplings[k]:.3f}",
            rotation=0, ha="right", va="center", fontsize=6, labelpad=4,
        )  # fmt: skip
        for n, level in enumerate(levels):
            name = _share(result.shares[level]) if k == 0 else None
            show(place(n + 1, k, 1), result.pictures[k, level], name)
    axes = place(columns - 1, (K - 1) / 2, 2)
    show(axes, result.whole, f"all {result.children:,}")
    axes.set_xlabel(
        f"predicted{chr(10) if width < 5 else chr(32)}as {result.classes[result.predicted]}",
        fontsize=6.5,
        labelpad=2,
    )
    middle = LABELS + cell + GROUP + (len(levels) * (cell + GAP) + GAP) / 2
    title = "one capsule alone, its coupling growing to c"
    figure.text(middle / width, 1 - 0.14 / height, title, ha="center", fontsize=6.5)
    x = LABELS + columns * (cell + GAP) + 2 * GROUP + 0.04
    share = 1 - (TITLES + 0.1) / height
    bar = figure.add_axes([x / width, 0.1 / height, 0.07 / width, share])
    scale = figure.colorbar(picture, cax=bar)
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
