"""Drawings for `faithfulness`: one image's maps, curves, and the judgements over a test set."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from capsviz.results import COLOURS
from capsviz.results.panels import show, wrapped

GREY = "#7F7F7F"
SIGNED, ORDER = "RdBu_r", "cividis"
WIDE = 5.0  # inches: a figure from here on has a page's layout, below it a column's
STYLES = {  # colour, line and marker of a map: controls grey and black, routing blue
    "random order": (GREY, ":", "x"),
    "constant map": (GREY, ":", "x"),
    "random map": (GREY, "--", "s"),
    "routing map, permuted": ("black", "-.", "P"),
    "another image's map": ("black", "--", "d"),
    "ink": ("black", "--", "s"),
    "|u| map": (GREY, "-.", "v"),
    "couplings": (COLOURS[6], "--", "<"),
    "routing map": (COLOURS[0], "-", "o"),
    "routing map, uniform": (COLOURS[5], "--", "o"),
    "gradient": (COLOURS[1], "-", "^"),
    "integrated gradients": (COLOURS[2], "-", "D"),
    "occlusion": (COLOURS[3], "-", "P"),
    "removal effect": (COLOURS[3], "-", "*"),
    "Grad-CAM, first convolution": (COLOURS[4], "--", "<"),
    **dict.fromkeys(
        ("Grad-CAM", "Grad-CAM, last convolution", "Grad-CAM, the one convolution"),
        (COLOURS[8], "-", ">"),
    ),
}
SHORT = {
    "random order": "random\norder",
    "ink": "brightness\n",
    "routing map": "routing\nmap",
    "routing map, uniform": "routing,\nuniform",
    "integrated gradients": "integr.\ngradients",
    "Grad-CAM, first convolution": "Grad-CAM,\nfirst conv.",
    "Grad-CAM, last convolution": "Grad-CAM,\nlast conv.",
    "Grad-CAM, the one convolution": "Grad-CAM,\none conv.",
}


def one_image(result, width):
    """The image, its maps, and those of random weights."""
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
        upper.set_title(SHORT.get(name, f"{name}\n"), fontsize=6, pad=2, color=STYLES[name][0])
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
    text = "upper: maps, areas of deletion and insertion, infidelity;"
    text += " " if width > 6 else "\n"
    figure.suptitle(f"{text}lower: the same maps with random weights in all layers", fontsize=7)
    return figure


def _map(axes, values, signed):
    """One map on its own scale, centred on zero where maps of its kind have both signs."""
    axes.set_axis_on()
    if signed:
        scale = CenteredNorm(0, np.abs(values).max() or 1.0)
        axes.imshow(values, cmap=SIGNED, norm=scale)
    else:
        axes.imshow(values, cmap=ORDER)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, linewidth=0.3, color=GREY)


def curves(result, rows, width, what="pixels", title=None):
    """Draw deletion and insertion curves.

    Parameters
    ----------
    rows  (label, values (2, M, S), their 95 % bands (2, M, S, 2) or None).
    """
    columns = 2 if width >= WIDE else 1
    figure = Figure(figsize=(width, 4.0 * len(rows) / columns))
    panels = figure.subplots(2 * len(rows) // columns, columns, sharey=True)
    pairs = [(k, *row) for row in rows for k in (0, 1)]
    for axes, (k, label, values, bands) in zip(panels.flat, pairs, strict=True):
        for m, name in enumerate(result.names):
            if name not in STYLES:  # the same map, divided evenly
                continue
            colour, line, _ = STYLES[name]
            thick = 1.6 if name == "routing map" else 0.9
            axes.plot(
                result.shares, values[k][m], line, color=colour, linewidth=thick, label=_label(name)
            )
            if bands is not None:
                low, high = bands[k, m].T
                axes.fill_between(result.shares, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set(xlim=(-0.02, 1.02), ylim=(0, 1.02))
        axes.set_xlabel(f"% of {what} {('removed', 'shown')[k]}")
        axes.set_title(("deletion: lower is better", "insertion: higher is better")[k])
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
        axes.xaxis.set_major_formatter(PercentFormatter(1, 0, None))
        axes.set_ylabel(label if k == 0 or columns == 1 else None)
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc=f"outside {'right center' if columns == 2 else 'lower center'}",
        ncols=3 - columns, fontsize=6, handlelength=2.6, title_fontsize=6, title=title,
    )  # fmt: skip
    return figure


def _label(name: str) -> str:
    """Return the name of a map in legends and rows."""
    return "brightness" if name == "ink" else name


def judgements(result, target, width):
    """Draw areas, infidelity and sanity of each map."""
    figure, panels = _panels(result, result.names, 3, width, target)
    _gap(panels[0], result, result.gap)
    _points(panels[1], result, result.infidelity)
    panels[1].set_xlim(-0.03, 1.03)
    panels[1].set_title("infidelity\n(lower is better)")
    panels[1].set_xlabel("share of losses unexplained")
    _sanity(panels[2], result)
    return figure


def units(result, width):
    """Draw areas of activation and accuracy, and AUROC of the object's positions."""
    rows = [name for name in result.names if name in STYLES]
    count = 2 if result.apart is None else 3
    figure, panels = _panels(result, rows, count, width, f"{result.scene} scenes")
    _gap(panels[0], result, result.gap, "activation: ")
    _gap(panels[1], result, result.accuracy_gap, "accuracy: ")
    if len(rows) < len(result.names):
        panels[0].set_xlabel("difference of areas\nfilled: by brightness, open: evenly", fontsize=6)
    if result.apart is not None:
        _points(panels[2], result, result.apart)
        panels[2].axvline(0.5, color=GREY, linewidth=0.5)
        panels[2].set_title("the object's positions\n(higher is better)")
        panels[2].set_xlabel(f"AUROC, {result.apart.n:,} images")
    return figure


def _panels(result, names, count, width, what):
    """Return a figure and its panels, with a row for each map."""
    wide, M = width >= WIDE, len(names)
    rows = 0.17 * M + (0.85 if width >= 6.5 else 1.1) if wide else 0.12 * M + 0.7
    figure = Figure(figsize=(width, (1 if wide else count) * rows + 0.25))
    panels = figure.subplots(*((1, count) if wide else (count, 1)), sharey=True)
    for axes in panels:
        axes.set_yticks(range(M), [_label(name) for name in names], fontsize=6)
        axes.set_ylim(M - 0.5, -0.5)
        axes.grid(axis="x", color="#DDDDDD", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0, labelleft=axes is panels[0] or not wide)
    text = f"{result.n:,} {result.dataset} images, {what};{' ' if wide else chr(10)}"
    figure.suptitle(f"{text}bars: 95 % intervals", fontsize=7)
    return figure, panels


def _gap(axes, result, estimate, of=""):
    """Draw insertion minus deletion."""
    _points(axes, result, estimate)
    axes.axvline(0, color=GREY, linewidth=0.5)
    axes.set_title(f"{of}insertion minus deletion\n(higher is better)")
    axes.set_xlabel("difference of areas")
    axes.xaxis.set_major_locator(MaxNLocator(4))


def _points(axes, result, estimate):
    """Draw a value with its interval for each map; open markers for one divided evenly."""
    rows = [name for name in result.names if name in STYLES]
    for m, name in enumerate(result.names):
        colour, _, marker = STYLES[rows[m % len(rows)]]
        row, inside = m % len(rows), colour if name in STYLES else "white"
        axes.hlines(row, *estimate.ci95[m], color=colour, linewidth=1)
        axes.plot(
            estimate.value[m], row, marker, color=colour, markersize=3.5, clip_on=False,
            markerfacecolor=inside,
        )  # fmt: skip


def _sanity(axes, result):
    """Correlation when the class's layer is random, and when all are."""
    ends = [(0, "none", -0.14), (-1, "full", 0.14)]
    for m, name in enumerate(result.names):
        colour, _, marker = STYLES[name]
        for level, fill, shift in ends[: len(result.stages)]:
            value, interval = result.sanity.value[m, level], result.sanity.ci95[m, level]
            if np.isfinite(value):
                axes.hlines(m + shift, *interval, color=colour, linewidth=0.8)
                inside = "white" if fill == "none" else colour
                axes.plot(
                    value, m + shift, marker, color=colour, markersize=4, markerfacecolor=inside,
                    markeredgewidth=0.7, clip_on=False,
                )  # fmt: skip
        if np.isnan(result.sanity.value[m]).all():
            axes.text(-0.95, m, "–", ha="center", va="center", fontsize=6, color=colour)
    axes.axvline(0, color=GREY, linewidth=0.5)
    axes.set_xlim(-1.03, 1.03)
    axes.set_title("sanity: random weights\n(near 0 is better)")
    first, last = result.stages[0], result.stages[-1]
    draws = "" if result.sanity.n is None else f"\n{result.sanity.n} draws of weights"
    text = f"rank correlation{draws}\nopen: down to {first}\nfilled: down to {last}"
    if np.isnan(result.sanity.value).all(1).any():
        text += "\n–: none, of an order or constant maps"
    inches = axes.figure.get_figwidth()
    text = wrapped(text, (inches - 1.9) / 3 if inches >= WIDE else inches - 1.6, 6)
    axes.set_xlabel(text, fontsize=6)
