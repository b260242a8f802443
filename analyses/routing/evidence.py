"""Drawings for `routing`: what each class is read from, as maps and by the capsules' types."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from capsviz.analyses.routing.draw import WIDE, bar
from capsviz.analyses.routing.words import child_of, evidence_title, maps_title, parent_of
from capsviz.results.maps import BLUE, GREY, RED, SIGNED, class_ticks, halfrange, one_map
from capsviz.results.panels import show, wrapped

SHOWN = 10  # classes that maps are drawn of, the longest


def maps(result, width):
    """Maps of the evidence beside their uniform control."""
    wide = width >= WIDE
    classes = np.sort(np.argsort(-result.activations, kind="stable")[:SHOWN])
    columns = min(len(classes), 10 if wide else 5)
    rows = 2 * -(-len(classes) // columns)
    panel = min(0.86 * width / columns, 1.2)
    figure = Figure(figsize=(width, rows * (panel + 0.2) + (0.4 if wide else 0.5)))
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02)
    _maps(figure, result, classes, (rows, columns), wide)
    return figure


def evidence(result, width):
    """What the capsules of each type add to each class, and what they all add up to."""
    wide = width >= WIDE
    figure = Figure(figsize=(width, 2.6 if wide else 2.9))
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02)
    grid = figure.subplots(1, 3, sharey=True, width_ratios=[1, 1, 0.7])
    both = (result.type_evidence, result.uniform_type_evidence)
    scale = CenteredNorm(0, halfrange(np.stack(both)))
    for axes, values, name in zip(grid, both, ("routed", "uniform"), strict=False):
        drawn = axes.imshow(values.T, cmap=SIGNED, norm=scale, aspect="auto")
        axes.set(title=name, xlabel=child_of(result))
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        rows, columns = np.nonzero(-scale.halfrange / 5 > values.T)
        axes.plot(columns, rows, linestyle="none", marker="_", color="black", markersize=3)
    axes, at = grid[2], np.arange(len(result.classes))
    axes.axvline(0, color=GREY, linewidth=0.5)
    axes.hlines(at, result.uniform_map_sums, result.map_sums, color=GREY, linewidth=0.8)
    axes.plot(result.map_sums, at, "o", color=RED, label="routed")
    axes.plot(result.uniform_map_sums, at, "o", color=BLUE, mfc="white", label="uniform")
    axes.margins(x=0.05 if wide else 0.12)  # whole markers
    axes.set(title="sum Σ over capsules" if wide else "sum Σ", xlabel="Σ")
    axes.xaxis.set_major_locator(MaxNLocator(4 if wide else 2))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower right", ncols=2)
    grid[0].set_ylabel(parent_of(result))
    class_ticks(grid[0].yaxis, result.classes)
    figure.suptitle(evidence_title(result), fontsize=7)
    if np.min(both) >= 0:
        bar(figure, drawn, grid[:2], "evidence\n").ax.set_ylim(0, scale.vmax)
    else:
        bar(figure, drawn, grid[:2], "evidence; −: well below 0\n")  # away from the next panel
    return figure


def _maps(part, result, classes, shape, wide):
    scale = CenteredNorm(0, halfrange(np.stack([result.maps, result.uniform_maps])))
    photograph = len(result.image) > 1 and wide  # which a map over it hides
    grid = part.subplots(shape[0], shape[1] + photograph, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    if photograph:
        show(grid[0, 0], result.image)
        grid[0, 0].set_axis_on()
        grid[0, 0].set_title("image", fontsize=6.5, pad=2)
        grid = grid[:, 1:]
    kinds = (
        ("routed", result.maps, result.map_sums),
        ("uniform", result.uniform_maps, result.uniform_map_sums),
    )
    for k, (name, maps, sums) in enumerate(kinds):
        for place, j in enumerate(classes):
            block, column = divmod(place, shape[1])
            axes = grid[2 * block + k, column]
            drawn = one_map(axes, result.image, result.extent_px, maps[j], scale)
            axes.set_xlabel(f"Σ {sums[j]:.2f}", labelpad=1, fontsize=6)
            if k == 0:
                true = " (true)" if j == result.label else ""
                cell = 0.8 * part.bbox.width / part.dpi / (shape[1] + photograph)  # inches
                title = wrapped(f"{result.classes[j]}{true}", cell)
                axes.set_title(title, fontsize=6.5, pad=2)
            if column == 0:
                axes.set_ylabel(name, fontsize=6.5)
    part.suptitle(maps_title(result, SHOWN, wide), fontsize=7)
    bar(part, drawn, grid, "evidence; −: well below 0")
