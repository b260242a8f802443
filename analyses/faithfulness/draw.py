"""Drawings for `faithfulness`: one image's maps, curves, and the judgements over many images."""

from __future__ import annotations

import textwrap
from itertools import cycle

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from capsviz.results import COLOURS
from capsviz.results.panels import points, show, wrapped

GREY, HIGHER = "#7F7F7F", "\n(higher is better)"
CONTROLS = ("random order", "ink", "|u| map", "constant map", "random map",
            "routing map, permuted", "another image's map")  # fmt: skip
LABELS = {"ink": "brightness"}
WIDE = 5.0  # inches: a figure from here on has a page's layout, below it a column's
GREYS = [(GREY, "-"), ("black", "--"), (GREY, ":"), ("black", "-."), (GREY, "--"), ("black", ":")]


def _styles(names) -> dict[str, tuple[str, str]]:
    """Return colour and line of each map, in order: those of controls are grey and black."""
    greys, colours = cycle(GREYS), cycle(zip(COLOURS, cycle(("-", "--")), strict=False))
    return {name: next(greys if name in CONTROLS else colours) for name in names}


def one_image(result, width):
    """Draw the image, its maps, and those of random weights."""
    M = len(result.names)
    columns = M + 1 if width > 6 else 6
    blocks = -(-(M + 1) // columns)
    cell = min((width - 0.1) / columns - 0.06, 1.0)
    _, rows, across = result.image.shape
    tall = blocks * (2 * cell * max(1, rows / across) + 0.95)
    figure = Figure(figsize=(width, tall + 0.35))
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.01, hspace=0.01)
    grid = figure.subplots(2 * blocks, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    show(grid[0, 0], result.image, "\nimage")
    grid[0, 0].set_axis_on()
    true = "" if result.label in (None, result.target) else f"\n(a {result.classes[result.label]})"
    grid[0, 0].set_xlabel(f"class\n{result.classes[result.target]}{true}", fontsize=6, labelpad=2)
    for k, name in enumerate(result.names):
        block, column = divmod(k + 1, columns)
        upper, lower = grid[2 * block : 2 * block + 2, column]
        upper.set_title(textwrap.fill(LABELS.get(name, name), 11), fontsize=6, pad=2)
        signed = result.maps[k].min() < 0 or result.random_maps[k].min() < 0  # both by one rule
        _map(upper, result.maps[k], signed)
        upper.set_xlabel(
            f"del {result.deletion_area[k]:.2f}\nins {result.insertion_area[k]:.2f}\n"
            f"infid {result.infidelity[k]:.2f}" + "\n(all zero)" * (not result.maps[k].any()),
            fontsize=6, labelpad=2,
        )  # fmt: skip
        if np.isfinite(result.correlation[k]):
            _map(lower, result.random_maps[k], signed)
            text = f"ρ {result.correlation[k]:.2f}"
            if not np.ptp(result.random_maps[k]):  # of a constant there is no correlation
                text = "(constant)" if result.random_maps[k].any() else "(all zero)"
            lower.set_xlabel(text, fontsize=6, labelpad=2)
    text = "upper: maps, areas of deletion and insertion, infidelity;" + ("\n", " ")[width > 6]
    figure.suptitle(f"{text}lower: the same maps with random weights in all layers", fontsize=7)
    return figure


def _map(axes, values, signed):
    """Draw a map on its own scale, centred on zero where maps of its kind have both signs."""
    axes.set_axis_on()
    scale = CenteredNorm(0, np.abs(values).max() or 1.0) if signed else None
    axes.imshow(values, cmap="RdBu_r" if signed else "cividis", norm=scale)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, linewidth=0.3, color=GREY)


def curves(result, rows, width, what="pixels", title=None):
    """Draw deletion and insertion: rows of a label, values (2, M, S) and 95 % bands or None."""
    columns, styles = (2 if width >= WIDE else 1), _styles(_names(result))
    figure = Figure(figsize=(width, 4.0 * len(rows) / columns))
    panels = figure.subplots(2 * len(rows) // columns, columns, sharey=True)
    for k, axes in enumerate(panels.flat):
        (label, values, bands), part = rows[k // 2], k % 2
        for m, (colour, line) in enumerate(styles.values()):
            axes.plot(result.shares, values[part][m], line, color=colour, linewidth=1)
            if bands is not None:
                low, high = bands[part][m].T
                axes.fill_between(result.shares, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set(xlim=(-0.02, 1.02), ylim=(0, 1.02), xticks=[0, 0.25, 0.5, 0.75, 1])
        axes.set_xlabel(f"% of {what} {('removed', 'shown')[part]}")
        axes.set_title(("deletion: lower is better", "insertion: higher is better")[part])
        axes.xaxis.set_major_formatter(PercentFormatter(1, 0, None))
        axes.set_ylabel(label if part == 0 or columns == 1 else None)
    figure.legend(
        panels.flat[0].lines, [LABELS.get(name, name) for name in styles], fontsize=6,
        handlelength=2.6, loc="outside right center" if columns == 2 else "outside lower center",
        ncols=3 - columns, title_fontsize=6, title=title,
    )  # fmt: skip
    return figure


def _names(result) -> list[str]:
    """Return the names of maps, each once."""
    return [name for name in result.names if not name.endswith(", evenly")]


def judgements(result, what, width):
    """Draw areas, infidelity and sanity of each map."""
    figure, (gap, infidelity, sanity) = _panels(result, 3, width, what)
    _points(gap, [result.gap], "insertion minus deletion" + HIGHER, "difference of areas")
    title = "infidelity\n(lower is better)"
    _points(infidelity, [result.infidelity], title, "share of losses unexplained")
    infidelity.set_xlim(-0.03, 1.03)
    text = f"rank correlation; blue: {result.stages[0]} random; orange: down to {result.stages[-1]}"
    text = wrapped(text, (width - 1.9) / 3 if width >= WIDE else width - 1.6, 6)
    levels = [result.sanity[:, 0], result.sanity[:, -1]]
    _points(sanity, levels, "sanity: random weights\n(near 0 is better)", text)
    sanity.set_xlim(-1.03, 1.03)
    return figure


def units(result, width):
    """Draw areas of activation and accuracy, and AUROC of the object's positions."""
    what = f"{result.over}, {result.scene}"
    figure, panels = _panels(result, 2 if result.apart is None else 3, width, what)
    M = len(_names(result))
    text = "insertion minus deletion"
    text += "\nblue: by brightness, orange: evenly" * (len(result.gap) > M)
    pairs = {"activation": result.gap, "accuracy": result.accuracy_gap}
    for axes, (name, one) in zip(panels, pairs.items(), strict=False):
        _points(axes, [one[k : k + M] for k in range(0, len(one), M)], name + HIGHER, text)
    if result.apart is not None:
        text = f"AUROC, {result.apart.n:,} images"
        _points(panels[2], [result.apart], "object's positions" + HIGHER, text, 0.5)
    return figure


def _panels(result, count, width, what):
    """Return a figure and its panels, with a row for each map."""
    wide, names = width >= WIDE, _names(result)
    rows = 0.17 * len(names) + 1.0 if wide else count * (0.12 * len(names) + 0.7)
    figure = Figure(figsize=(width, rows + 0.25))
    panels = figure.subplots(*((1, count) if wide else (count, 1)), sharey=True)
    for axes in panels:
        axes.set_yticks(range(len(names)), [LABELS.get(name, name) for name in names], fontsize=6)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.grid(axis="x", color="#DDDDDD", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0, labelleft=axes is panels[0] or not wide)
    text = f"{result.n:,} {result.dataset} images, {what};{' ' if wide else chr(10)}"
    figure.suptitle(f"{text}bars: 95 % intervals", fontsize=7)
    return figure, panels


def _points(axes, several, title, label, reference=0.0):
    """Draw one estimate for each map, or two side by side, and a line that means nothing."""
    shifts = (-0.14, 0.14) if len(several) > 1 else (0,)
    for k, (one, shift) in enumerate(zip(several, shifts, strict=True)):
        points(axes, one, COLOURS[k], "os"[k], None, shift)
    axes.axvline(reference, color=GREY, linewidth=0.5)
    axes.set_title(title)
    axes.set_xlabel(label, fontsize=6)
    axes.xaxis.set_major_locator(MaxNLocator(4))
