"""Panels of `affnist`: accuracy, gap and losses by network, variants, the table."""

from dataclasses import replace
from functools import partial

import numpy as np

from capsviz.analysis import Panel
from capsviz.results import COLOURS
from capsviz.results.panels import MARKERS, mosaic, name_rows, points, room, rule, upright
from capsviz.statistics.words import number

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
    "inside": ("o", "inside the training shifts"),
    "outside": ("v", "outside the training shifts"),
}
FACTOR_COLOURS = COLOURS[2:6]
NONE = "–"  # an empty cell of the table
SMALLEST = 0.21  # inches: smallest width of a variant; a narrow picture shows fewer


def _tall(result, width: float) -> float:
    both = len(set(result.states)) > 1
    return 0.32 * len(dict.fromkeys(result.networks)) * (1.6 if both else 1) + 0.55


def _rows(axes, result):
    """Name a row for each network, the first on top; yield (index, y, colour) of every result.

    The two states of a network are drawn above each other.
    """
    names = list(dict.fromkeys(result.networks))
    name_rows(axes, [TITLES.get(name, name).replace(", ", ",\n", 1) for name in names])
    rule(axes)
    both = len(set(result.states)) > 1
    for i, (name, state) in enumerate(zip(result.networks, result.states, strict=True)):
        yield i, names.index(name) + (0.22 if state == "full" else -0.22) * both, STATES[state]


def _accuracy(axes, result):
    """Draw accuracy on affine digits after training on shifted ones. Circles: images inside the
    training shift range; triangles: outside; open markers: shifted test digits.
    """
    for i, y, colour in _rows(axes, result):
        axes.plot(100 * result.test[i], y, "o", color=colour, markersize=4, fillstyle="none")
        _by_place(axes, result, i, y, colour, lambda one: one)
    axes.set_xlabel("accuracy on\naffnist_like, %")
    _mark(axes, "o", "0.4", "shifted test digits", fillstyle="none")
    for marker, text in PLACES.values():
        _mark(axes, marker, "0.4", text)
    if len(set(result.states)) > 1:
        for state, colour in STATES.items():
            _mark(axes, "o", colour, state)


def _gap(axes, result):
    """Draw accuracy on affine digits minus that of CapsNet."""
    for i, y, colour in _rows(axes, result):
        _by_place(axes, result, i, y, colour, lambda one: one.difference)
    axes.axvline(0, color="0.5", linewidth=0.6)
    axes.set_xlabel("accuracy minus\nCapsNet's, points")


def _by_place(axes, result, i, y, colour, of):
    for field, (marker, _) in PLACES.items():
        one = of(getattr(result, field))[i]
        if np.isfinite(one.value):
            points(axes, 100 * one, colour, marker, shift=y)


def _lost(axes, result):
    """Draw accuracy lost to each factor, by Shapley values of a logistic fit."""
    step = 0.09 if len(set(result.states)) > 1 else 0.17
    names = ("shift", *(factor.split(",")[0] for factor in result.factors[1:]))
    for i, y, _ in _rows(axes, result):
        for k, colour in enumerate(FACTOR_COLOURS):
            look = {"shift": y + step * (k - 1.5), "markersize": 2.5}
            points(axes, 100 * result.lost[i, k], colour, "s", None if i else names[k], **look)
    axes.axvline(0, color="0.5", linewidth=0.6)
    axes.set_xlabel("accuracy lost to each factor,\npercentage points")


def _by_factor(k: int, axes, result):
    """Draw accuracy of each network by one factor; the shift has its own scale."""
    names = list(dict.fromkeys(result.networks))
    for i, (name, state) in enumerate(zip(result.networks, result.states, strict=True)):
        n, estimate = names.index(name), 100 * result.by_factor[i, k]
        look = {"color": COLOURS[n], "marker": MARKERS[n], "markersize": 2.6}
        levels = result.levels[k]  # NaN for an empty bin
        spread = np.nanmax(levels) - np.nanmin(levels)
        x = levels + spread / (12 * len(result.networks)) * (i - (len(result.networks) - 1) / 2)
        estimate = replace(estimate, ci95=estimate.ci95.clip(0, 100))  # may exceed it (normal)
        line = "--" if state == "full" else "-"
        upright(axes, x, estimate, line, label=TITLES.get(name, name), **look)
    axes.set_xlabel(f"{result.factors[k]},\ninside the range" if k else result.factors[k])
    axes.set_ylabel("accuracy, %")
    if k:
        axes.set_ylim(5 * (100 * float(np.nanmin(result.by_factor.low[:, 1:])) // 5), 101)
    else:
        axes.axvline(6, color="0.5", linewidth=0.6, linestyle=":")
    rule(axes, "y")


def _mark(axes, marker, colour, label, **more):
    """Add a marker to the legend."""
    look = {"marker": marker, "color": colour, "markersize": 4, "linestyle": "none", **more}
    axes.plot([], [], label=label, **look)


def _columns(result, width: float) -> int:
    return min(result.images.shape[1], int((width - 0.35) / SMALLEST))


def _omits(result, width: float) -> list[str]:
    count = result.images.shape[1] - _columns(result, width)
    return [f"{count} variants of each class"] * (count > 0)


def _variants(axes, result):
    """Draw padded originals of each class and their affine variants, by affNIST's description."""
    columns = _columns(result, room(axes))
    rows, places = mosaic(axes, result.images[:, :columns], columns)
    axes.set_yticks(rows, result.classes)
    axes.set_xticks([places[0], places[1:].mean()], ["original", "variants of affnist_like"])
    axes.xaxis.tick_top()
    middle = places[0] + result.images.shape[-1] / 2 + 0.5
    axes.axvline(middle, color=COLOURS[1], linewidth=1)


def _tall_variants(result, width: float) -> float:
    return width * (len(result.images) + 0.7) / (_columns(result, width) + 0.6)


PANELS = {
    "accuracy": Panel(_accuracy, _tall, 0.38, 0.5, marks="bars"),
    "gap": Panel(_gap, _tall, 0.31, 0.5, marks="bars"),
    "lost": Panel(_lost, _tall, 0.31, shown="lost", marks="bars"),
    **{
        name: Panel(
            partial(_by_factor, k), 1.45, 1 / 4, 1 / 2, "factors", marks="bars",
            caption=f"accuracy {'inside training shifts' if k else 'on {n:,} images'} by |{name}",
        )
        for k, name in enumerate(("shift", "angle", "shear", "scale"))
    },
}  # fmt: skip
VARIANTS = {"variants": Panel(_variants, _tall_variants, 1, omits=_omits)}

HEADER = (
    "Network", "Parameters", "Weights", "Seeds", "Held-out %", "Test %", "affnist_like %",
    "Inside %", "Outside %", "Range over seeds", "Gap to CapsNet", "Gap inside", "Lost to shift",
    "to angle", "to shear", "to scale", "affNIST %",
)  # fmt: skip


def cells(result) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table, without empty columns."""
    rows = [_row(result, i) for i in range(len(result.networks))]
    kept = [k for k in range(len(HEADER)) if any(row[k] != NONE for row in rows)]
    return [HEADER[k] for k in kept], [[row[k] for k in kept] for row in rows]


def _row(result, i: int) -> list[str]:
    network, lost = result.networks[i], [NONE] * 4
    if result.lost is not None:
        lost = [f"{100 * one:.1f}" for one in result.lost[i]]
    means = (result.held_out[i], result.test[i], result.affine.value[i])
    *shares, low, high, affnist = (
        number(100 * one, ".2f") for one in (*means, *result.affine_range[i], result.affnist[i])
    )
    return [
        TITLES.get(network, network),
        f"{result.parameters[i] / 1e6:.2f} M",
        result.states[i],
        str(len(result.seeds[i])),
        *shares,
        *(f"{100 * place[i]:.1f}" for place in (result.inside, result.outside)),
        f"{low} to {high}" if len(result.seeds[i]) > 1 else NONE,
        f"{100 * result.affine.difference[i]:+.2f}",
        f"{100 * result.inside.difference[i]:+.1f}",
        *lost,
        affnist,
    ]
