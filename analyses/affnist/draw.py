"""Drawings for `affnist`: accuracy, gap and losses by network, variants, the table."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from capsviz.results import COLOURS
from capsviz.results.panels import MARKERS, mosaic, name_rows, points, rule

TITLES = {
    "capsnet": "CapsNet, 3 iterations",
    "capsnet-1": "CapsNet, 1 iteration",
    "cnn": "CNN of the paper, 5×5",
    "cnn-9": "CNN, 9×9, unpadded",
    "average": "ConvNet, average pooling",
    "resnet": "ResNet-20",
}
STATES = {"matched": COLOURS[0], "full": COLOURS[1]}
PLACES = {
    "within": ("o", "inside the training shifts"),
    "beyond": ("v", "outside the training shifts"),
}
FACTOR_COLOURS = COLOURS[2:6]
NONE = "–"  # in the table
SMALLEST = 0.21  # inches of a variant: of fewer there is room in a column
WIDE = 6.5  # inches from which on three panels stand side by side


def table(result, width):
    """Draw accuracy and gap to CapsNet of every network and state, and losses by factor."""
    names = list(dict.fromkeys(result.networks))
    both, wide = len(set(result.states)) > 1, width >= WIDE
    tall, fitted = 0.32 * len(names) * (1.6 if both else 1), result.lost is not None
    heights = [tall + 0.85] if wide else [tall + 0.95, tall + 0.75][: 1 + fitted]
    figure = Figure(figsize=(width, sum(heights)))
    if wide:
        axes = figure.subplots(1, 2 + fitted, width_ratios=[1.25, 1, 1][: 2 + fitted])
    else:
        grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
        cells = [grid[0, 0], grid[0, 1], *([grid[1, :]] if fitted else [])]
        axes = [figure.add_subplot(cell) for cell in cells]
    handles = _by_place(axes[0], axes[1], result, names, both)
    if fitted:
        handles += _losses(axes[2], result, names, both)
    for i, one in enumerate(axes):
        _network_axis(one, names, labelled=i == 0 or (i == 2 and not wide), wide=wide)
    columns = len(handles) if wide else 3
    figure.legend(handles=handles, loc="outside upper center", ncols=columns)
    return figure


def _network_axis(axes, names, *, labelled, wide):
    """Draw a row for each network, the first on top, named where there is room."""
    titles = [TITLES.get(name, name) for name in names]
    titles = titles if wide else [title.replace(", ", ",\n", 1) for title in titles]
    name_rows(axes, titles)
    axes.tick_params(axis="y", labelleft=labelled)
    rule(axes)


def _rows(result, names, both):
    """Yield (row, y, colour) of every row, the two states of a network one above the other."""
    for i, (name, state) in enumerate(zip(result.networks, result.states, strict=True)):
        y = names.index(name) + (0.22 if state == "full" else -0.22) * both
        yield i, y, STATES[state]


def _by_place(left, right, result, names, both) -> list:
    """Draw accuracies and gaps; return what the marks are."""
    for i, y, colour in _rows(result, names, both):
        left.plot(100 * result.test[i], y, "o", color=colour, markersize=4, fillstyle="none")
        for field, (marker, _) in PLACES.items():
            estimate = getattr(result, field)
            for axes, one in ((left, estimate[i]), (right, estimate.difference[i])):
                if np.isfinite(one.value):
                    points(axes, 100 * one, colour, marker, shift=y)
    right.axvline(0, color="0.5", linewidth=0.6)
    left.set_xlabel("accuracy on\naffnist_like, %")
    right.set_xlabel("accuracy minus\nCapsNet's, points")
    handles = [_mark("o", "0.4", "shifted test digits", fillstyle="none")]
    handles += [_mark(marker, "0.4", text) for marker, text in PLACES.values()]
    if both:
        handles += [_mark("o", colour, state) for state, colour in STATES.items()]
    return handles


def _losses(axes, result, names, both) -> list:
    """Draw the accuracy that each factor takes; return what the colours are."""
    step = 0.09 if both else 0.17
    for i, y, _ in _rows(result, names, both):
        for k, colour in enumerate(FACTOR_COLOURS):
            shift = y + step * (k - 1.5)
            points(axes, 100 * result.lost[i, k], colour, "s", shift=shift, markersize=2.5)
    axes.axvline(0, color="0.5", linewidth=0.6)
    axes.set_xlabel("accuracy lost to each factor,\npercentage points")
    names = ("shift", *(factor.split(",")[0] for factor in result.factors[1:]))
    return [_mark("s", c, name) for c, name in zip(FACTOR_COLOURS, names, strict=True)]


def factors(result, width):
    """Draw accuracy of each network by each factor; the shift has its own scale."""
    names, wide = list(dict.fromkeys(result.networks)), width >= WIDE
    columns = min(len(names), int(width / 1.6))
    height = (1.6 if wide else 2.75) + 0.14 * -(-len(names) // columns)
    figure = Figure(figsize=(width, height))
    grid = figure.subplots(*((1, 4) if wide else (2, 2)))
    low = 100 * float(np.nanmin(result.by_factor.low[:, 1:]))
    lines = {}
    for k, (axes, factor) in enumerate(zip(np.ravel(grid), result.factors, strict=True)):
        for i, (name, state) in enumerate(zip(result.networks, result.states, strict=True)):
            n, estimate = names.index(name), 100 * result.by_factor[i, k]
            look = {"color": COLOURS[n], "marker": MARKERS[n], "markersize": 2.6}
            look["linestyle"] = "--" if state == "full" else "-"
            spread = np.ptp(result.levels[k]) / (12 * len(result.networks))  # bars side by side
            x = result.levels[k] + spread * (i - (len(result.networks) - 1) / 2)
            ends = np.clip(estimate.ci95.T, 0, 100)  # normal ones leave the range of a share
            axes.vlines(x, *ends, color=COLOURS[n], linewidth=0.7)
            (line,) = axes.plot(x, estimate.value, **look)
            lines.setdefault(TITLES.get(name, name), line)
        axes.set_xlabel(f"{factor},\ninside the range" if k else factor)
        if k:
            axes.set_ylim(5 * (low // 5), 101)
        rule(axes, "y")
    first = grid[0] if wide else grid[0, 0]
    first.axvline(6, color="0.5", linewidth=0.6, linestyle=":")
    for axes in np.ravel(grid)[:: 4 if wide else 2]:
        axes.set_ylabel("accuracy, %")
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=columns)
    return figure


def _mark(marker, colour, label, **more):
    return Line2D(
        [], [], marker=marker, color=colour, markersize=4, linestyle="none", label=label, **more
    )


def variants(result, width):
    """Rows: classes. Left the padded original, then its variants."""
    J, columns, _, _, side = result.images.shape
    columns = min(columns, int((width - 0.35) / SMALLEST))
    figure = Figure(figsize=(width, width * (J + 0.7) / (columns + 0.6)))
    axes = figure.add_subplot()
    rows, places = mosaic(axes, result.images[:, :columns], columns)
    axes.set_yticks(rows, result.classes)
    axes.set_xticks([places[0], places[1:].mean()], ["original", "variants of affnist_like"])
    axes.xaxis.tick_top()
    axes.axvline(places[0] + side / 2 + 0.5, color=COLOURS[1], linewidth=1)
    return figure


HEADER = (
    "Network", "Parameters", "Weights", "Seeds", "Held-out %", "Test %", "affnist_like %",
    "Inside %", "Outside %", "Range over seeds", "Gap to CapsNet", "Gap inside", "Lost to shift",
    "to angle", "to shear", "to scale", "affNIST %",
)  # fmt: skip


def cells(result) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table, without columns that are empty in all rows."""
    rows = [_row(result, i) for i in range(len(result.networks))]
    kept = [k for k in range(len(HEADER)) if any(row[k] != NONE for row in rows)]
    return [HEADER[k] for k in kept], [[row[k] for k in kept] for row in rows]


def _row(result, i: int) -> list[str]:
    network, (low, high) = result.networks[i], result.affine_range[i]
    lost = [None] * 4 if result.lost is None else [result.lost[i, k] for k in range(4)]
    return [
        TITLES.get(network, network),
        f"{result.parameters[i] / 1e6:.2f} M",
        result.states[i],
        str(len(result.seeds[i])),
        *map(_percent, (result.held_out[i], result.test[i], result.affine.value[i])),
        *(_interval(place[i], ".1f") for place in (result.within, result.beyond)),
        f"{_percent(low)} to {_percent(high)}" if len(result.seeds[i]) > 1 else NONE,
        _interval(result.affine.difference[i], "+.2f"),
        _interval(result.within.difference[i], "+.1f"),
        *(_interval(one, ".1f") for one in lost),
        _percent(result.affnist[i]),
    ]


def _percent(value) -> str:
    return NONE if np.isnan(value) else f"{100 * value:.2f}"


def _interval(estimate, form: str) -> str:
    """An estimate in percent."""
    return NONE if estimate is None or np.isnan(estimate.value) else f"{100 * estimate:{form}}"
