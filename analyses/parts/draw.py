"""Drawings for `parts`: an image in each form and its AUROC; relevance mass."""

from __future__ import annotations

import textwrap

from matplotlib.figure import Figure

from capsviz.results import COLOURS
from capsviz.results.panels import MARKERS, name_rows, points, rule, show

GREY = "#7F7F7F"
WIDE = 5.0  # inches: a figure from here on has a page's layout, below it a column's


def forms(result, width):
    """Draw the forms of one image above the AUROC of all scores."""
    wide = width >= WIDE
    S, B = result.auroc.value.shape
    examples = [] if result.examples is None else result.examples  # none of several runs
    cell = min(0.9, (width - 0.2) / (B + 1)) + 0.55 if len(examples) else 0.01
    heights = [cell, 0.26 * S + (0.95 if wide else 1.25)]
    figure = Figure(figsize=(width, sum(heights)))
    top, bottom = figure.subfigures(2, 1, height_ratios=heights)
    names = ["intact", *result.kinds]
    for k, (image, name) in enumerate(zip(examples, names, strict=False)):
        axes = top.add_subplot(1, B + 1, k + 1)
        show(axes, image)
        axes.set_title(
            textwrap.fill(name, 13 if wide else 9, break_long_words=False), fontsize=6, pad=2
        )
    axes = bottom.subplots()
    for b, kind in enumerate(result.kinds):
        control = kind in result.controls
        points(
            axes, result.auroc[:, b], COLOURS[b], MARKERS[b],
            f"{kind} (control)" if control else kind, (b - (B - 1) / 2) * 0.14,
            fillstyle="none" if control else "full",
        )  # fmt: skip
    axes.axvline(0.5, color=GREY, linewidth=0.6)
    names = [name.replace("pixels: ink", "pixels: brightness") for name in result.scores]
    name_rows(axes, names, fontsize=6)
    axes.set(xlim=(0, 1.01), xlabel="AUROC, intact against broken")
    rule(axes)
    bottom.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", fontsize=6,
        ncols=3 if wide else 1, handlelength=1, columnspacing=0.8,
        title=f"{result.n:,} {result.dataset} images; bars: 95 % intervals", title_fontsize=6,
    )  # fmt: skip
    return figure


def relevance(result, width):
    """Draw relevance masses of units and of their controls."""
    measured = []
    for kind, field in (("units", "perturbed"), ("types", "selected")):
        if (masses := getattr(result, field)) is not None:
            words = result.axes[field][1]
            measured += [(f"{kind}: {word}", *masses[:, k]) for k, word in enumerate(words)]
    figure = Figure(figsize=(width, 0.17 * len(measured) + 1.2))
    axes = figure.subplots()
    labels = ("control: random directions, another's stroke", f"units, types of {result.below}")
    for k, (_, *pair) in enumerate(measured):
        looks = zip(pair, labels, ("none", "full"), (0.14, -0.14), strict=True)
        for one, label, fill, shift in looks:
            label = None if k else label
            points(axes, one, COLOURS[0], "o", label, k + shift, fillstyle=fill)
    name_rows(axes, [name for name, *_ in measured], fontsize=6)
    axes.set(xlim=(0, 1.01), xlabel="relevance mass, or cosine of two maps")
    rule(axes)
    figure.legend(
        loc="outside lower center", fontsize=6, title_fontsize=6,
        title=f"{result.n:,} images of {result.dataset}; bars: 95 %",
    )  # fmt: skip
    return figure
