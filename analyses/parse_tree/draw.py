"""Drawings for `parse_tree`: the trees of two images, beside one of a fresh network."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from capsviz.analyses.parse_tree.words import FRESH
from capsviz.results import COLOURS
from capsviz.results.maps import are_short
from capsviz.results.panels import show

WIDE = 5.0  # inches: a figure from here on has a page's layout, below it a column's
NONE = "#DDDDDD"  # a child that favours no parent, or one that is not named
LEAVES = 40  # branches of a tree at most
LEAST = 0.05  # share of a branch's children that a line stands for at least


def trees(result, width):
    """For each image: itself, its tree by capsule type, the favourite at each place of each type.

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
        axes.set_title("fresh\nnetwork" if fresh else "image" if s == 0 else None, fontsize=6.5)
        axes.set_xlabel(f"read: {name}", fontsize=6.5, labelpad=2)
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
            axes.set_title(_what(result), fontsize=6.5)
    handles = [Patch(color=c, label=result.classes[j]) for j, c in sorted(colours.items())]
    if len(result.classes) > len(colours) or (result.favourites < 0).any():
        handles.append(Patch(color=NONE, label="none, or another"))
    columns = 6 if are_short(result.classes) else 4
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(handles) if wide else columns,
        fontsize=6.5, title="favourite parent (colour); paler: weaker, each row by itself",
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


def _what(result) -> str:
    grid = result.grid
    if grid is None:
        return f"each of {result.favourites.shape[1]:,} children"
    if grid[1] * grid[2] == 1:
        return f"each of {grid[0]} types"
    return f"blocks: {grid[0]} types; inside: {grid[1]} x {grid[2]} places"


def _mosaics(result, colours) -> list[np.ndarray]:
    """Favourites of each image's children as (rows, columns, 3): a block for each type."""
    I = result.favourites.shape[1]
    types, rows, columns = result.grid or (I, 1, 1)
    gap = 0 if rows * columns == 1 else 1
    across = max(1, round(np.sqrt(types * (rows + gap) / (columns + gap) * 2)))
    down = -(-types // across)
    pictures = []
    for favourite, margin in zip(result.favourites, result.margins, strict=True):
        picture = np.ones((down * (rows + gap) - gap, across * (columns + gap) - gap, 3))
        painted = _paint(favourite, margin, colours).reshape(types, rows, columns, 3)
        for t in range(types):
            top, left = (t // across) * (rows + gap), (t % across) * (columns + gap)
            picture[top : top + rows, left : left + columns] = painted[t]
        pictures.append(picture)
    return pictures


def _paint(favourite, margin, colours) -> np.ndarray:
    """(I, 3): the favourite's colour, paler for a weaker preference than the strongest of these."""
    base = np.array([to_rgb(colours.get(int(j), NONE)) for j in favourite])
    strength = (margin / max(margin.max(), 1e-12))[:, None]
    strength = np.where(favourite[:, None] < 0, 1, 0.12 + 0.88 * strength)
    return 1 - strength * (1 - base)


def _tree(axes, result, s, colours, *, titled):
    """Branches below, parents above; a line for each share of a branch that favours a parent."""
    J, favourite = len(result.classes), result.favourites[s]
    parts = np.array_split(favourite, _branches(result))
    x = np.linspace(0, J - 1, len(parts))
    for at, part in zip(x, parts, strict=True):
        for j in np.unique(part):
            share = (part == j).mean()
            if share >= LEAST and j >= 0:
                line = {"alpha": 0.15 + 0.7 * share, "linewidth": 0.3 + 1.2 * share, "zorder": 1}
                axes.plot([at, j], [0, 1], color=colours.get(int(j), NONE), **line)
    if (favourite < 0).all():
        axes.text((J - 1) / 2, 0.5, "even couplings: no favourite", ha="center", va="center",
                  fontsize=6.5)  # fmt: skip
    axes.plot(x, np.zeros(len(x)), "s", color="#555555", markersize=1.8, zorder=3)
    counts = [(favourite == j).mean() for j in range(J)]
    sizes = 6 + 110 * np.array(counts)
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
    sd = f"sd {result.coupling_sd[s]:.2g}"
    axes.set_xlabel(f"{_leaf(result, len(parts))}; {sd}", fontsize=6.5, labelpad=1)
    if titled:
        axes.set_title("classes (larger: more favoured)", fontsize=6.5)


def _branches(result) -> int:
    """How many branches a tree has: one for each type, or of children in turn."""
    I = result.favourites.shape[1]
    if result.grid is not None and 1 < result.grid[0] <= LEAVES:
        return result.grid[0]
    return min(I, LEAVES)


def _leaf(result, count: int) -> str:
    if result.grid is not None and count == result.grid[0]:
        return f"{count} capsule types"
    I = result.favourites.shape[1]
    return f"{I} children" + (f" in {count} groups" if count < I else "")
