"""Drawings for `parse_tree`: what decides trees over many images, and capsules over training."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from capsviz.results import COLOURS
from capsviz.results.panels import MARKERS, percent, points

WIDE = 6.0  # inches: a figure from here on has a page's layout, below it a column's
NAMES = {
    "parents": "same: parents", "places": "same: places", "types": "same: types",
    "children": "same: single children", "classes": "class: all children alike",
    "by child": "class: child by child", "images": "between images of a class",
}  # fmt: skip
SHADES = ("#08306B", "#2171B5", "#6BAED6", "#C6DBEF", "#A63603", "#FD8D3C", "#999999")
FRESH = "#7F7F7F"


def statistics(result, width):
    """Shares of variance and favourites; single children where no image can be moved."""
    wide = width >= WIDE
    S = len(result.networks) + 1
    below = [_favourites] + ([_children] if result.correlation is None else [])
    panels = [1.45] * len(below)
    heights = [0.24 * S + 0.35] + ([max(panels)] if wide else panels)
    figure = Figure(figsize=(width, sum(heights) + (0.85 if wide else 1.5)))
    grid = figure.add_gridspec(len(heights), len(below) if wide else 1, height_ratios=heights)
    _shares(figure, figure.add_subplot(grid[0, :]), result, wide)
    for k, draw in enumerate(below):
        draw(figure.add_subplot(grid[1, k] if wide else grid[1 + k, 0]), result)
    return figure


def moved(result, width):
    """Frozen couplings; trees of moved images."""
    wide = width >= WIDE
    panels = [_frozen] if result.accuracy is not None else []
    panels += [_moved] if result.correlation is not None else []
    tall = 2.2
    shape = (1, len(panels)) if wide else (len(panels), 1)
    figure = Figure(figsize=(width, tall if wide else tall * len(panels)))
    for draw, axes in zip(panels, figure.subplots(*shape, squeeze=False).flat, strict=True):
        draw(axes, result)
    figure.suptitle(f"{result.n:,} images of {result.dataset}; bars: 95 %", fontsize=6.5)
    return figure


def _shares(figure, axes, result, wide):
    """A bar for each network, and one for shuffled labels."""
    rows = [*result.shares.value, result.shuffled.value]
    ends = [*result.shares.ci95, result.shuffled.ci95]
    names = [*result.networks, "labels shuffled"]
    sd = [*result.coupling_sd, result.coupling_sd[0]]
    for y, (row, interval) in enumerate(zip(rows, ends, strict=True)):
        if np.isnan(row).any():
            axes.text(0.5, y, "even couplings: nothing to share out", ha="center", va="center")
            continue
        lefts = np.cumsum(row) - row
        for k, (value, left) in enumerate(zip(row, lefts, strict=True)):
            label = NAMES[result.components[k]] if y == 0 else None
            axes.barh(y, value, left=left, color=SHADES[k], label=label, height=0.7)
            if value > 0.08:
                light = k in (3, 5, 6)
                axes.text(left + value / 2, y, f"{100 * value:.0f} %", ha="center", va="center",
                          fontsize=6, color="black" if light else "white")  # fmt: skip
        edge = row[:6].sum()
        away = np.abs(interval[6] - row[6])[::-1, None]
        bar = {"ecolor": "black", "elinewidth": 0.8, "capsize": 1.5}
        axes.errorbar(edge, y + 0.27, xerr=away, fmt="none", **bar)  # below the numbers
    labels = [f"{n}\n(sd {v:.2g})" for n, v in zip(names, sd, strict=True)]
    axes.set_yticks(range(len(rows)), labels, fontsize=6)
    axes.set(xlim=(0, 1), ylim=(len(rows) - 0.5, -0.5), xlabel="mean square of preferences")
    percent(axes.xaxis)
    axes.tick_params(axis="y", length=0)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=4 if wide else 2, fontsize=6.5,
        title=f"{result.n:,} images of {result.dataset}, bars: 95 %"
        f"{'; what children prefer is ...' if handles else ''}",
        title_fontsize=6.5, handlelength=1, columnspacing=1,
    )  # fmt: skip


def _favourites(axes, result):
    for s, name in enumerate(result.networks):
        colour, marker = (COLOURS[0], "o") if s == 0 else (FRESH, MARKERS[s])
        shift = (s - (len(result.networks) - 1) / 2) * 0.22
        points(axes, result.favourites[s], colour, marker, name, shift)
    _rows(axes, [_folded(name) for name in result.choices])
    axes.set(xlim=(-0.03, 1.03), xlabel="children")
    axes.set_title("favourite parent", fontsize=6.5)
    percent(axes.xaxis)
    axes.legend(fontsize=6, loc="best", handletextpad=0.2)


def _frozen(axes, result):
    points(axes, result.accuracy, COLOURS[0], "o", "accuracy", -0.12)
    points(axes, result.true_activation, COLOURS[1], "s", "true activation", 0.12)
    _rows(axes, [_folded(name) for name in result.frozen])
    axes.set(xlim=(-0.03, 1.03), xlabel="share of images; mean activation")
    axes.set_title("couplings frozen to", fontsize=6.5)
    axes.legend(fontsize=6, loc="best", handletextpad=0.2)


def _moved(axes, result):
    for k, (name, colour) in enumerate(zip(result.trees, COLOURS[2:4], strict=True)):
        points(axes, result.correlation[k], colour, "Ds"[k], name, (k - 0.5) * 0.25)
    _rows(axes, [_folded(name) for name in result.moves])
    low = np.fmin.reduce(result.correlation.low - 0.05, None, initial=0.0)  # NaN: nothing is left
    axes.set(xlim=(low, 1.03), xlabel="correlation")
    axes.axvline(0, color="#DDDDDD", linewidth=0.8, zorder=0)
    axes.set_title("image moved by one place", fontsize=6.5)
    axes.legend(fontsize=6, loc="best", handletextpad=0.2)


def _children(axes, result):
    """Of single children, what part of the preferences is the same in all images."""
    axes.set_title("single children", fontsize=6.5)
    if np.isnan(result.shares.value[0]).any():
        axes.text(0.5, 0.5, "even couplings:\nnothing to share out", ha="center", va="center")
        axes.set_axis_off()
        return
    whole = result.by_child.sum(1)
    share = np.divide(result.by_child, whole[:, None], where=whole[:, None] > 0,
                      out=np.zeros_like(result.by_child))  # fmt: skip
    names = ("always the same", "with the class", "between images")
    for k, colour in enumerate((SHADES[1], SHADES[5], SHADES[6])):
        axes.hist(share[:, k], np.linspace(0, 1, 21), color=colour, alpha=0.6, label=names[k])
    axes.set(xlabel="share of a child's variance", ylabel="children")
    axes.legend(fontsize=6)


def _folded(name: str) -> str:
    """A long name in two lines."""
    if len(name) < 19:
        return name
    words, first = name.split(" "), ""
    while words and len(first) + len(words[0]) < max(14, len(name) // 2 + 2):
        first = f"{first} {words.pop(0)}".strip()
    return f"{first}\n{' '.join(words)}"


def _rows(axes, names):
    axes.set_yticks(range(len(names)), names, fontsize=6)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)


def epochs(result, width):
    """Activations, gradients and variance against the epoch."""
    wide = width >= WIDE
    shape = (1, 3) if wide else (3, 1)
    figure = Figure(figsize=(width, 2.1 if wide else 5.2))
    active, gradient, tree = figure.subplots(*shape)
    T = result.epochs
    _band(active, T, result.largest, COLOURS[0])
    active.axhline(result.dead_norm, color=FRESH, linestyle="--", linewidth=0.8)
    active.set(ylim=(0, 1.05 * max(1, result.largest.max())), ylabel="largest activation")
    counts = f"{result.dead[-1]} of {result.children} dead at the end, {result.dead.max()} at most"
    active.set_title(counts, fontsize=6.5)
    _band(gradient, T, result.gradient, COLOURS[1])
    gradient.axhline(result.starved_share, color=FRESH, linestyle="--", linewidth=0.8)
    floor = max(result.gradient[result.gradient > 0].min(initial=1.0), 1e-9)
    gradient.set(yscale="log", ylim=(min(floor, result.starved_share) / 2, 1.5))
    gradient.set_ylabel("gradient / largest child's")
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
