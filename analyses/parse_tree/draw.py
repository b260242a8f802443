"""Panels of `parse_tree`: trees of two images, what decides many, capsules over training."""

import textwrap
from functools import partial

import numpy as np
from matplotlib.colors import to_rgb

from capsviz.analysis import Panel
from capsviz.results import COLOURS
from capsviz.results.maps import GREY, are_short
from capsviz.results.panels import MARKERS, dots, name_rows, percent, room, rule, show
from capsviz.statistics.estimate import stack
from capsviz.statistics.words import UNTRAINED

OTHER, NONE = "#8C8C8C", "#E4E4E4"  # colours of a child that favours another class, or none
LEAVES = 40  # branches of a tree, at most
NARROW = 3.4  # inches: below this width a legend of long names has one column
MOST = 4  # images of a result, at most

NAMES = {
    "parents": "same: class capsules", "positions": "same: positions", "types": "same: types",
    "children": "same: single capsules", "classes": "class: all capsules alike",
    "by child": "class: each capsule", "images": "between images of a class",
}  # fmt: skip
SHADES = ("#08306B", "#2171B5", "#6BAED6", "#C6DBEF", "#A63603", "#FD8D3C", "#999999")


def _image(s: int, axes, result):
    """Draw an image and its predicted class."""
    show(axes, result.images[s], "untrained\nnetwork" if result.networks[s] == UNTRAINED else None)
    name = result.classes[result.predicted[s]]
    axes.set_xlabel(f"predicted: {name}", fontsize=6.5, labelpad=2)


def _favourites_of(s: int, axes, result):
    """Draw the class with the largest coupling of each capsule by position (paler: weaker)."""
    maps = _mosaics(result, _palette(result))
    tall, across = maps[0].shape[:2]
    axes.imshow(maps[s], interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    if tall * across <= LEAVES:  # a cell for each child
        line = {"color": "white", "linewidth": 2}
        axes.hlines(np.arange(1, tall) - 0.5, -0.5, across - 0.5, **line)
        axes.vlines(np.arange(1, across) - 0.5, -0.5, tall - 0.5, **line)
    if s == 0:
        types, rows, columns = result.grid or (result.favourites.shape[1], 1, 1)
        one = f"each of {types:,} {'types' if result.grid else 'primary capsules'}"
        blocks = f"a block: one of {types} types; in it: {rows} × {columns} positions"
        axes.set_title(one if rows * columns == 1 else blocks, fontsize=6.5)


def _tall_map(result, width: float) -> float:
    tall, across = _mosaics(result, {})[0].shape[:2]
    return min(1.25, width * tall / across + 0.15)


def _palette(result) -> dict[int, str]:
    """Return a colour for each class predicted by the trained network; other classes are grey."""
    each = zip(result.predicted, result.networks, strict=True)
    predicted = dict.fromkeys(int(j) for j, name in each if name != UNTRAINED)
    return dict(zip(predicted, COLOURS, strict=False))


def _mosaics(result, colours) -> np.ndarray:
    """Return colours of the children's favourites (S, rows, columns, 3), a block for each type.

    The weaker a preference, relative to the strongest of the image, the paler its colour.
    """
    S, I = result.favourites.shape
    types, rows, columns = result.grid or (I, 1, 1)
    base = np.array([[to_rgb(_colour(colours, j)) for j in one] for one in result.favourites])
    strength = result.margins / result.margins.max(1, keepdims=True).clip(1e-12)
    strength = np.where(result.favourites < 0, 1, 0.25 + 0.75 * strength)[..., None]
    gap = 0 if rows * columns == 1 else 1
    across = max(1, round(np.sqrt(types * (rows + gap) / (columns + gap) * 2)))
    down = -(-types // across)
    blocks = np.ones((S, down * across, rows + gap, columns + gap, 3))
    painted = (1 - strength * (1 - base)).reshape(S, types, rows, columns, 3)
    blocks[:, :types, :rows, :columns] = painted
    whole = blocks.reshape(S, down, across, rows + gap, columns + gap, 3).swapaxes(2, 3)
    whole = whole.reshape(S, down * (rows + gap), across * (columns + gap), 3)
    return whole[:, : whole.shape[1] - gap, : whole.shape[2] - gap]


def _colour(colours: dict[int, str], j) -> str:
    return NONE if j < 0 else colours.get(int(j), OTHER)


def _tree(s: int, axes, result):
    """Draw a tree, with a line to the class that most capsules of a type favour."""
    J, favourite, colours = len(result.classes), result.favourites[s], _palette(result)
    by_type = result.grid is not None and 1 < result.grid[0] <= LEAVES
    parts = np.array_split(favourite, result.grid[0] if by_type else min(len(favourite), LEAVES))
    counts = [np.bincount(part[part >= 0], minlength=J) for part in parts]
    ends = [int(count.argmax()) if count.any() else -1 for count in counts]
    order = sorted(range(len(parts)), key=lambda k: (ends[k], -counts[k].max()))
    x = np.linspace(0, J - 1, len(parts))
    for at, k in zip(x, order, strict=True):
        colour, share = _colour(colours, ends[k]), counts[k].max() / len(parts[k])
        if ends[k] >= 0:
            axes.plot([at, ends[k]], [0, 1], color=colour, linewidth=0.4 + 2 * share, zorder=1)
        axes.plot(at, 0, "s", color=colour, markersize=2.2, zorder=3)
    if (favourite < 0).all():
        axes.text((J - 1) / 2, 0.5, "uniform couplings: no favourite", ha="center", va="center",
                  fontsize=6.5)  # fmt: skip
    sizes = [6 + 110 * (favourite == j).mean() for j in range(J)]
    shades = [_colour(colours, j) for j in range(J)]
    axes.scatter(range(J), np.ones(J), s=sizes, c=shades, zorder=3, linewidths=0)
    for j, colour in colours.items():
        label = f"favours {result.classes[j]}, a predicted class"
        axes.plot([], [], "s", color=colour, label=label)
    axes.plot([], [], "s", color=OTHER, label="favours another class")
    step, words = max(1, -(-J // 20)), J > 6 and not are_short(result.classes)
    slanted = {"rotation": 30, "ha": "left", "rotation_mode": "anchor"} if words else {}
    axes.set(xlim=(-0.5, J - 0.5), ylim=(-0.15, 1.2), yticks=[])
    axes.set_xticks(range(0, J, step), result.classes[::step], fontsize=6, **slanted)
    axes.tick_params(length=0, pad=0)
    axes.xaxis.tick_top()
    for j, text in zip(range(0, J, step), axes.get_xticklabels(), strict=True):
        text.set_weight("bold" if j == int(result.predicted[s]) else "normal")
    axes.spines[:].set_visible(False)
    leaves = f"{len(favourite)} primary capsules in {len(parts)} groups"
    leaves = f"{len(parts)} capsule types" if by_type else leaves
    axes.set_xlabel(f"{leaves}; sd {result.coupling_sd[s]:.2g}", fontsize=6.5, labelpad=1)
    if s == 0:
        axes.set_title("classes (larger: favoured by more)", fontsize=6.5)


def _shares(axes, result):
    """Draw shares of the variance of capsules' preferences: trained, untrained, shuffled labels."""
    every = stack([*result.shares, result.shuffled])
    for y, (row, interval) in enumerate(zip(every.value, every.ci95, strict=True)):
        if np.isnan(row).any():
            axes.text(0.5, y, "uniform couplings: no variance", ha="center", va="center")
            continue
        for k, (value, left) in enumerate(zip(row, np.cumsum(row) - row, strict=True)):
            label = NAMES[result.components[k]] if y == 0 else None
            bar = axes.barh(y, value, left=left, color=SHADES[k], label=label, height=0.7)
            if value > 0.08:
                ink = "black" if k in (3, 5, 6) else "white"
                number = f"{100 * value:.0f} %"
                axes.bar_label(bar, [number], label_type="center", fontsize=6, color=ink)
        away = np.abs(interval[6] - row[6])[::-1, None]
        bar = {"ecolor": "black", "elinewidth": 0.8, "capsize": 1.5}
        axes.errorbar(row[:6].sum(), y + 0.27, xerr=away, fmt="none", **bar)  # below the numbers
    sd = zip([*result.networks, "labels shuffled"],
             [*result.coupling_sd, result.coupling_sd[0]], strict=True)  # fmt: skip
    name_rows(axes, [f"{name}\n(sd {value:.2g})" for name, value in sd], fontsize=6)
    axes.set(xlim=(0, 1), xlabel="mean square of preferences")
    percent(axes.xaxis)


def _dots(axes, title, unit, rows, series):
    """Draw values with intervals in named rows; a series is its name, colour and estimate."""
    kinds = zip(series, MARKERS, strict=False)
    dots(axes, ((one, colour, mark, name) for (name, colour, one), mark in kinds), 0.22)
    name_rows(axes, [_folded(name) for name in rows], fontsize=6)
    low = min(np.fmin.reduce(one.low - 0.05, None, initial=-0.03) for *_, one in series)  # no NaN
    axes.set(xlim=(low, 1.03), xlabel=unit)
    rule(axes)
    above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "borderaxespad": 0.2}
    above["ncols"] = 1 if room(axes) < NARROW and len(series) > 2 else 2
    axes.legend(title=title, title_fontsize=6.5, fontsize=6, handletextpad=0.2, **above)


def _tall(field: str, result, width: float) -> float:
    """Return the height in inches that the names of the rows need."""
    lines = sum(1 + _folded(name).count("\n") for name in getattr(result, field) or ())
    key = 0.6 if field == "controls" and width < NARROW else 0
    return 0.45 + key + max(1.2, 0.19 * lines)


def _by_network(field: str, rows: str, title: str, unit: str, axes, result):
    """Draw shares of each network: what favourites do, or variance that lies between classes."""
    colours = [COLOURS[0], *[GREY] * len(result.networks)]
    series = list(zip(result.networks, colours, getattr(result, field), strict=False))
    _dots(axes, title, unit, getattr(result, rows), series)
    percent(axes.xaxis)


def _frozen(axes, result):
    """Draw accuracy and activation of the true class with couplings frozen to those named."""
    series = [("accuracy", COLOURS[0], result.accuracy)]
    series.append(("true activation", COLOURS[1], result.true_activation))
    _dots(axes, "couplings frozen to", "share of images; mean activation", result.frozen, series)


def _shifted(axes, result):
    """Draw correlation of an image's tree with that of the image shifted by one position, also of
    untrained networks and with random matrices (one per position, or one for all).
    """
    own = result.networks[0]
    rows = [own, f"{own}, {result.trees[1]} tree", *(result.controls or ())]
    values = stack([*result.correlation, *(result.controlled or ())])
    series = [
        (name, colour, values[:, k])
        for k, (name, colour) in enumerate(zip(result.shifts, COLOURS[2:5], strict=True))
    ]
    _dots(axes, "image shifted by one position", "correlation of couplings", rows, series)


def _folded(name: str) -> str:
    """Return a name, folded into lines if it is long."""
    return name if len(name) < 19 else textwrap.fill(name, max(14, len(name) // 2 + 5))


PANELS = {
    f"{name}-{s + 1}": Panel(
        partial(draw, s), tall, *shares, shown=lambda result, s=s: s < len(result.images)
    )
    for s in range(MOST)
    for name, draw, tall, shares in (
        ("image", _image, 0.95, (0.14, 0.25)),
        ("tree", _tree, 1.1, (0.43, 0.75)),
        ("favourites", _favourites_of, _tall_map, (0.43, 1)),
    )
}
MANY = {
    "shares": Panel(
        _shares, lambda result, width: 0.3 * (len(result.networks) + 1) + 0.4, share=1, marks="bars"
    ),
    "favourites": Panel(
        partial(_by_network, "favourites", "choices", "favourite class", "primary capsules"),
        partial(_tall, "choices"), marks="bars",
        caption="how often the favourite class of a primary capsule differs",
    ),
    "sources": Panel(
        partial(
            _by_network, "with_class", "sources", "variance between classes", "share of variance"
        ),
        partial(_tall, "sources"), shown="sources", marks="bars",
        caption="share of the variance that lies between classes, for the couplings and what they "
        "are made of",
    ),
    "frozen": Panel(
        _frozen, partial(_tall, "frozen"), figure="shifted", shown="accuracy", marks="bars"
    ),
    "shifted": Panel(
        _shifted, partial(_tall, "controls"), figure="shifted", shown="correlation", marks="bars"
    ),
}  # fmt: skip
