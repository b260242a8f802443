"""Drawings for `parts`: an image in each form and its AUROC; relevance mass."""

from __future__ import annotations

import textwrap

import numpy as np
from matplotlib.figure import Figure

from capsviz.results import COLOURS
from capsviz.results.panels import MARKERS, show

GREY = "#7F7F7F"
WIDE = 5.0  # inches: a figure from here on has a page's layout, below it a column's


def forms(result, width):
    """Draw the forms of one image above the AUROC of all scores."""
    wide = width >= WIDE
    S, B = result.auroc.value.shape
    cell = min(0.9, (width - 0.2) / (B + 1))
    heights = [cell + 0.55, 0.26 * S + (0.95 if wide else 1.25)]
    figure = Figure(figsize=(width, sum(heights)))
    top, bottom = figure.subfigures(2, 1, height_ratios=heights)
    names = ["intact", *result.kinds]
    for axes, image, name in zip(
        top.subplots(1, B + 1, squeeze=False)[0], result.examples, names, strict=True
    ):
        show(axes, image)
        axes.set_title(
            textwrap.fill(name, 13 if wide else 9, break_long_words=False), fontsize=6, pad=2
        )
    axes = bottom.subplots()
    for b, kind in enumerate(result.kinds):
        one, shift = result.auroc[:, b], (b - (B - 1) / 2) * 0.14
        places = np.arange(S) + shift
        control = kind in result.controls
        axes.hlines(places, one.low, one.high, color=COLOURS[b], linewidth=0.9)
        axes.plot(
            one.value, places, MARKERS[b], color=COLOURS[b], markersize=3.2, clip_on=False,
            fillstyle="none" if control else "full",
            label=f"{kind} (control)" if control else kind,
        )  # fmt: skip
    axes.axvline(0.5, color=GREY, linewidth=0.6)
    names = [name.replace("pixels: ink", "pixels: brightness") for name in result.scores]
    axes.set_yticks(range(S), names, fontsize=6)
    axes.set(ylim=(S - 0.5, -0.5), xlim=(0, 1.01), xlabel="AUROC, intact against broken")
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    bottom.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", fontsize=6,
        ncols=3 if wide else 1, handlelength=1, columnspacing=0.8,
        title=f"{result.n:,} {result.dataset} images; bars: 95 % intervals", title_fontsize=6,
    )  # fmt: skip
    return figure


def _measured(result):
    """Return name, control and units of each relevance mass that there is."""
    rows = []
    if result.perturbed is not None:
        names = ("units: on the stroke", "units: of that in one half", "units: overlap of two")
        rows += [(name, *result.perturbed[:, k]) for k, name in enumerate(names)]
    if result.selected is not None:
        names = ("types: on the stroke", "types: of that in one half")
        rows += [(name, *result.selected[:, k]) for k, name in enumerate(names)]
    return rows


def relevance(result, width):
    """Draw relevance masses of units and of their controls."""
    measured = _measured(result)
    figure = Figure(figsize=(width, 0.17 * len(measured) + 1.2))
    axes = figure.subplots()
    for k, (_, *pair) in enumerate(measured):
        for one, fill, shift, label in zip(
            pair, ("none", "full"), (0.14, -0.14),
            ("control: random directions, another's stroke", f"units, types of {result.below}"),
            strict=True,
        ):  # fmt: skip
            axes.hlines(k + shift, *one.ci95, color=COLOURS[0], linewidth=0.9)
            axes.plot(
                one.value, k + shift, "o", color=COLOURS[0], fillstyle=fill, markersize=3.2,
                label=label if k == 0 else None,
            )  # fmt: skip
    axes.set_yticks(range(len(measured)), [name for name, *_ in measured], fontsize=6)
    axes.set(ylim=(len(measured) - 0.5, -0.5), xlim=(0, 1.01))
    axes.set_xlabel("relevance mass, or cosine of two maps")
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    figure.legend(
        loc="outside lower center", fontsize=6, title_fontsize=6,
        title=f"{result.n:,} images of {result.dataset}; bars: 95 %",
    )  # fmt: skip
    return figure
