"""Drawings for `parse_tree`: trees of two images, what decides many, capsules over training."""

from __future__ import annotations

import textwrap

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from capsviz.results import COLOURS
from capsviz.results.maps import are_short
from capsviz.results.panels import MARKERS, percent, points, show
from capsviz.statistics.estimate import stack

WIDE, PANELS = 5.0, 6.0  # inches: trees, and other figures, from here on have a page's layout
FRESH = "freshly initialised"  # of the networks of a result
WORDS = {  # of these names, on pictures
    "differ, unlike classes": "differs, other class",
    "differ, same class": "differs, same class",
    "the class that is read": "the predicted class",
    "another image's class": "another image's prediction",
    "mean of the class it reads": "mean of its predicted class",
    "even": "uniform",
    "at the place that it moved to": "at the position it moved to",
    "at the same place": "at the same position",
    "one place the other way": "one position the other way",
    "freshly initialised": "untrained",
}
NONE = "#DDDDDD"  # a child that favours no parent, or one that is not named
LEAVES = 40  # branches of a tree at most
LEAST = 0.05  # share of a branch's children that a line stands for at least

NAMES = {
    "parents": "same: class capsules", "places": "same: positions", "types": "same: types",
    "children": "same: single capsules", "classes": "class: all capsules alike",
    "by child": "class: each capsule", "images": "between images of a class",
}  # fmt: skip
SHADES = ("#08306B", "#2171B5", "#6BAED6", "#C6DBEF", "#A63603", "#FD8D3C", "#999999")
GREY = "#7F7F7F"


def trees(result, width):
    """Draw each image, its tree by capsule type, and the favourite at each position of each type.

    Narrow figures have the maps below the trees.
    """
    wide = width >= WIDE
    S = len(result.images)
    colours = palette(result)
    maps = _mosaics(result, colours)
    tall, across = maps[0].shape[:2]
    if wide:
        ratios, cell = [0.55, 1.6, 1.5], width * 0.37
        heights = [min(1.9, max(0.95, cell * tall / across + 0.1))] * S
    else:
        ratios, cell = [0.45, 1.55], width * 0.56
        heights = [h for _ in range(S) for h in (0.97, min(1.7, cell * tall / across + 0.1))]
    figure = Figure(figsize=(width, sum(heights) + 0.7 + 0.15 * (not wide)))
    grid = figure.add_gridspec(len(heights), len(ratios), height_ratios=heights,
                               width_ratios=ratios)  # fmt: skip
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.03, wspace=0.01, hspace=0.01)
    for s in range(S):
        row = s if wide else 2 * s
        axes = figure.add_subplot(grid[row, 0])
        show(axes, result.images[s])
        fresh = result.networks[s] == FRESH
        name = result.classes[result.read[s]]
        axes.set_title("untrained\nnetwork" if fresh else "image" if s == 0 else None, fontsize=6.5)
        axes.set_xlabel(f"predicted: {name}", fontsize=6.5, labelpad=2)
        _tree(figure.add_subplot(grid[row, 1]), result, s, colours, titled=s == 0)
        axes = figure.add_subplot(grid[row, 2] if wide else grid[row + 1, :])
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
            blocks = f"blocks: {types} types; inside: {rows} x {columns} positions"
            axes.set_title(one if rows * columns == 1 else blocks, fontsize=6.5)
    handles = [Patch(color=c, label=result.classes[j]) for j, c in sorted(colours.items())]
    if len(result.classes) > len(colours) or (result.favourites < 0).any():
        handles.append(Patch(color=NONE, label="none, or another"))
    columns = 6 if are_short(result.classes) else 4
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(handles) if wide else columns,
        fontsize=6.5, title="favourite class (colour); paler: weaker, each row by itself",
        title_fontsize=6.5, handlelength=1, columnspacing=1,
    )  # fmt: skip
    return figure


def palette(result) -> dict[int, str]:
    """Colours of the classes; of more than ten, of the ten that most children favour."""
    J = len(result.classes)
    if len(COLOURS) >= J:
        return dict(zip(range(J), COLOURS, strict=False))
    counts = np.bincount(result.favourites[result.favourites >= 0], minlength=J)
    return dict(zip(np.argsort(-counts, kind="stable").tolist(), COLOURS, strict=False))


def _mosaics(result, colours) -> np.ndarray:
    """Favourites of the children of S images (S, rows, columns, 3): a block for each type.

    A paler colour is a weaker preference than the strongest of the image.
    """
    S, I = result.favourites.shape
    types, rows, columns = result.grid or (I, 1, 1)
    base = np.array([[to_rgb(colours.get(int(j), NONE)) for j in one] for one in result.favourites])
    strength = result.margins / result.margins.max(1, keepdims=True).clip(1e-12)
    strength = np.where(result.favourites < 0, 1, 0.12 + 0.88 * strength)[..., None]
    gap = 0 if rows * columns == 1 else 1
    across = max(1, round(np.sqrt(types * (rows + gap) / (columns + gap) * 2)))
    down = -(-types // across)
    blocks = np.ones((S, down * across, rows + gap, columns + gap, 3))
    painted = (1 - strength * (1 - base)).reshape(S, types, rows, columns, 3)
    blocks[:, :types, :rows, :columns] = painted
    whole = blocks.reshape(S, down, across, rows + gap, columns + gap, 3).swapaxes(2, 3)
    whole = whole.reshape(S, down * (rows + gap), across * (columns + gap), 3)
    return whole[:, : whole.shape[1] - gap, : whole.shape[2] - gap]


def _tree(axes, result, s, colours, *, titled):
    """Branches below, parents above; a line for each share of a branch that favours a parent."""
    J, favourite = len(result.classes), result.favourites[s]
    by_type = result.grid is not None and 1 < result.grid[0] <= LEAVES
    parts = np.array_split(favourite, result.grid[0] if by_type else min(len(favourite), LEAVES))
    x = np.linspace(0, J - 1, len(parts))
    for at, part in zip(x, parts, strict=True):
        for j in np.unique(part):
            share = (part == j).mean()
            if share >= LEAST and j >= 0:
                line = {"alpha": 0.15 + 0.7 * share, "linewidth": 0.3 + 1.2 * share, "zorder": 1}
                axes.plot([at, j], [0, 1], color=colours.get(int(j), NONE), **line)
    if (favourite < 0).all():
        axes.text((J - 1) / 2, 0.5, "uniform couplings: no favourite", ha="center", va="center",
                  fontsize=6.5)  # fmt: skip
    axes.plot(x, np.zeros(len(x)), "s", color="#555555", markersize=1.8, zorder=3)
    sizes = [6 + 110 * (favourite == j).mean() for j in range(J)]
    shades = [colours.get(j, NONE) for j in range(J)]
    axes.scatter(range(J), np.ones(J), s=sizes, c=shades, zorder=3, linewidths=0)
    step, words = max(1, -(-J // 20)), J > 6 and not are_short(result.classes)
    slanted = (
        {"rotation": 30, "ha": "left", "rotation_mode": "anchor"} if words else {"ha": "center"}
    )
    for j in range(0, J, step):
        name = str(result.classes[j])
        bold = "bold" if j == int(result.read[s]) else "normal"
        axes.annotate(name, (j, 1), xytext=(0, 7), textcoords="offset points", fontsize=6,
                      weight=bold, **slanted)  # fmt: skip
    axes.set(
        xlim=(-0.5, J - 0.5 + words), ylim=(-0.15, 2.1 if words else 1.4), xticks=[], yticks=[]
    )
    axes.spines[:].set_visible(False)
    leaves = f"{len(favourite)} primary capsules in {len(parts)} groups"
    leaves = f"{len(parts)} capsule types" if by_type else leaves
    axes.set_xlabel(f"{leaves}; sd {result.coupling_sd[s]:.2g}", fontsize=6.5, labelpad=1)
    if titled:
        axes.set_title("classes (larger: more favoured)", fontsize=6.5)


def statistics(result, width):
    """Draw shares of variance, favourites, and what else varies between classes."""
    wide = width >= PANELS
    S = len(result.networks) + 1
    below = [(_favourites, _tall(result.choices))]
    below += [(_sources, _tall(result.sources))] if result.sources else []
    tall = [inches for _, inches in below]
    heights = [0.24 * S + 0.35, *([max(tall)] if wide else tall)]
    figure = Figure(figsize=(width, sum(heights) + (0.85 if wide else 1.5)))
    grid = figure.add_gridspec(len(heights), len(below) if wide else 1, height_ratios=heights)
    _shares(figure, figure.add_subplot(grid[0, :]), result, wide)
    for k, (draw, _) in enumerate(below):
        draw(figure.add_subplot(grid[1, k] if wide else grid[1 + k, 0]), result)
    return figure


def moved(result, width):
    """Draw frozen couplings, and trees of moved images."""
    wide = width >= PANELS
    panels = [_frozen] if result.accuracy is not None else []
    panels += [_moved] if result.correlation is not None else []
    shape = (1, len(panels)) if wide else (len(panels), 1)
    tall = 0.75 + max(_tall(result.frozen or ()), _tall(result.controls or ()))
    figure = Figure(figsize=(width, tall if wide else tall * len(panels)))
    for draw, axes in zip(panels, figure.subplots(*shape, squeeze=False).flat, strict=True):
        draw(axes, result)
    figure.suptitle(f"{result.n:,} images of {result.dataset}; bars: 95 %", fontsize=6.5)
    return figure


def _shares(figure, axes, result, wide):
    """Draw a bar for each network, and one for shuffled labels."""
    rows = [*result.shares.value, result.shuffled.value]
    ends = [*result.shares.ci95, result.shuffled.ci95]
    names = [*map(_word, result.networks), "labels shuffled"]
    sd = [*result.coupling_sd, result.coupling_sd[0]]
    for y, (row, interval) in enumerate(zip(rows, ends, strict=True)):
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
    labels = [f"{n}\n(sd {v:.2g})" for n, v in zip(names, sd, strict=True)]
    axes.set_yticks(range(len(rows)), labels, fontsize=6)
    axes.set(xlim=(0, 1), ylim=(len(rows) - 0.5, -0.5), xlabel="mean square of preferences")
    percent(axes.xaxis)
    axes.tick_params(axis="y", length=0)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=4 if wide else 2, fontsize=6.5,
        title=f"{result.n:,} images of {result.dataset}, bars: 95 %"
        f"{'; what capsules prefer is ...' if handles else ''}",
        title_fontsize=6.5, handlelength=1, columnspacing=1,
    )  # fmt: skip


def _dots(axes, title, unit, rows, series):
    """Values with intervals in named rows; of a series its name, colour and estimate."""
    for k, (name, colour, values) in enumerate(series):
        shift = (k - (len(series) - 1) / 2) * 0.22
        points(axes, values, colour, MARKERS[k], _word(name), shift)
    axes.set_yticks(range(len(rows)), [_folded(name) for name in rows], fontsize=6)
    low = min(np.fmin.reduce(one.low - 0.05, None, initial=-0.03) for *_, one in series)  # no NaN
    axes.set(xlim=(low, 1.03), ylim=(len(rows) - 0.5, -0.5), xlabel=unit)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "borderaxespad": 0.2}
    axes.legend(title=title, title_fontsize=6.5, fontsize=6, ncols=2, handletextpad=0.2, **above)


def _tall(rows) -> float:
    """Inches in which the names of rows have room."""
    return max(1.45, 0.2 * sum(1 + _folded(name).count("\n") for name in rows))


def _of_networks(result, estimate):
    """Series of `_dots`: a value of each network."""
    colours = [COLOURS[0], *[GREY] * len(result.networks)]
    return list(zip(result.networks, colours, estimate, strict=False))


def _favourites(axes, result):
    series = _of_networks(result, result.favourites)
    _dots(axes, "favourite class", "primary capsules", result.choices, series)
    percent(axes.xaxis)


def _sources(axes, result):
    series = _of_networks(result, result.with_class)
    _dots(axes, "variance between classes", "share of variance", result.sources, series)
    percent(axes.xaxis)


def _frozen(axes, result):
    series = [("accuracy", COLOURS[0], result.accuracy)]
    series.append(("true activation", COLOURS[1], result.true_activation))
    _dots(axes, "couplings frozen to", "share of images; mean activation", result.frozen, series)


def _moved(axes, result):
    own = result.networks[0]
    rows = [own, f"{_word(own)}, {result.trees[1]} tree", *(result.controls or ())]
    values = stack([*result.correlation, *(result.controlled or ())])
    series = [
        (name, colour, values[:, k])
        for k, (name, colour) in enumerate(zip(result.moves, COLOURS[2:5], strict=True))
    ]
    _dots(axes, "image moved by one position", "correlation of couplings", rows, series)


def _word(name: str) -> str:
    """A name as pictures have it: "untrained, seed 1"."""
    first, comma, rest = name.partition(", seed")
    return f"{WORDS.get(first, first)}{comma}{rest}"


def _folded(name: str) -> str:
    """A name as pictures have it, a long one in two lines."""
    name = _word(name)
    return name if len(name) < 19 else textwrap.fill(name, max(14, len(name) // 2 + 5))


def epochs(result, width):
    """Draw activations, gradients and variance against the epoch."""
    wide = width >= PANELS
    shape = (1, 3) if wide else (3, 1)
    figure = Figure(figsize=(width, 2.1 if wide else 5.2))
    active, gradient, tree = figure.subplots(*shape)
    T = result.epochs
    _band(active, T, result.largest, COLOURS[0])
    active.axhline(result.dead_norm, color=GREY, linestyle="--", linewidth=0.8)
    active.set(ylim=(0, 1.05 * max(1, result.largest.max())), ylabel="largest activation")
    counts = f"{result.dead[-1]} of {result.children} dead at the end, {result.dead.max()} at most"
    active.set_title(counts, fontsize=6.5)
    _band(gradient, T, result.gradient, COLOURS[1])
    gradient.axhline(result.starved_share, color=GREY, linestyle="--", linewidth=0.8)
    floor = max(result.gradient[result.gradient > 0].min(initial=1.0), 1e-9)
    gradient.set(yscale="log", ylim=(min(floor, result.starved_share) / 2, 1.5))
    gradient.set_ylabel("gradient / largest capsule's")
    last = result.starved[-1]
    few = f"{int(last.value)} [{last.low:.0f}, {last.high:.0f}]"
    gradient.set_title(f"{few} of {result.children} starved at the end", fontsize=6.5)
    shares = np.nan_to_num(result.shares.value)
    groups = np.stack([shares[:, :4].sum(1), shares[:, 4:6].sum(1), shares[:, 6]])
    names = ("always the same", "with the class", "between images of a class")
    for row, colour, marker, name in zip(groups, (SHADES[1], SHADES[5], SHADES[6]), "osD", names,
                                         strict=True):  # fmt: skip
        tree.plot(T, row, f"{marker}-", color=colour, label=name)
    images = result.shares[:, 6]
    tree.fill_between(T, np.nan_to_num(images.low), np.nan_to_num(images.high), color=SHADES[6],
                      alpha=0.3, linewidth=0)  # fmt: skip
    tree.set(ylim=(0, 1), ylabel="variance of preferences")
    percent(tree.yaxis)
    tree.legend(fontsize=6)
    tree.set_title("what decides the tree", fontsize=6.5)
    for axes in (active, gradient, tree):
        axes.set_xlabel("epoch (0: as the run began)")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    bands = "bands: 5 to 95 and 25 to 75 % of capsules"
    figure.suptitle(f"{result.run}, {result.n:,} images of {result.dataset}; {bands}", fontsize=6.5)
    return figure


def _band(axes, epochs, quantiles, colour):
    """Median, and two bands of quantiles (T, 5)."""
    for low, high, alpha in ((0, 4, 0.15), (1, 3, 0.3)):
        axes.fill_between(epochs, quantiles[:, low], quantiles[:, high], color=colour, alpha=alpha,
                          linewidth=0)  # fmt: skip
    axes.plot(epochs, quantiles[:, 2], "o-", color=colour)
