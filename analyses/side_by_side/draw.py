"""Drawings for `side_by_side`: one image network by network, and what was counted over many."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from capsviz.results.maps import (
    BLUE,
    COUPLING,
    GREY,
    RED,
    by_capsule,
    class_ticks,
    coupling_scale,
    coupling_ticks,
    dumbbells,
    halfrange,
    one_map,
)
from capsviz.results.panels import name_rows, points, wrapped

WIDE = 5.0  # inches: from here on a network is one row, below it two
NAME = 6.5  # pt


def image(result, width):
    """Draw couplings, evidence and activations, network by network."""
    wide = width >= WIDE
    K = len(result.networks)
    each = 1.95 if wide else 3.1
    figure = Figure(figsize=(width, each * K + (0.25 if wide else 0.3)))
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02)
    true = "" if result.label is None else f"; true class {result.classes[result.label]}"
    title = f"one image in two networks{true}; each network has its own colour scales"
    figure.suptitle(wrapped(title, width - 0.1, NAME), fontsize=NAME)
    parts = figure.subfigures(K, 1, squeeze=False)[:, 0]
    for k, (part, name) in enumerate(zip(parts, result.networks, strict=True)):
        part.suptitle(_words(result, k, width), fontsize=NAME, x=0.01, ha="left")
        if wide:
            left, middle, right = part.subfigures(1, 3, width_ratios=[1.15, 1.75, 1])
        else:
            upper, middle = part.subfigures(2, 1, height_ratios=[1.25, 1])
            left, right = upper.subfigures(1, 2, width_ratios=[1.15, 1])
        _couplings(left, result, name)
        if result.maps[name] is None:
            _by_capsule(middle, result, name)
        else:
            _maps(middle, result, k, name)
        _activations(right.subplots(), result, k)
    return figure


def _words(result, k, width) -> str:
    J, (low, high) = len(result.classes), result.effective_band[k]
    name, quantity = result.networks[k], result.quantities[result.networks[k]]
    part, whole = ("part", "whole") if width >= WIDE else ("plain", "words")  # mathtext is one line
    lines = [
        f"{name} – {result.words[k]}",
        f"effective parents {result.effective[k]:.2f} of {J} (5 to 95 % of capsules: {low:.2f} to "
        f"{high:.2f}); sd about uniform {result.coupling_sd[k]:.4f}",
        f"evidence: {quantity[part]}; Σ: {quantity[whole]}",
    ]
    return "\n".join(wrapped(line, width - 0.2, NAME) for line in lines)


def _couplings(part, result, name):
    values, J = result.couplings[name], len(result.classes)
    axes, scale = part.subplots(), coupling_scale(values, 1 / J)
    drawn = axes.imshow(values.T, cmap=COUPLING, norm=scale, aspect="auto", interpolation="none")
    axes.set(title="couplings", xlabel="capsule type", ylabel="class")
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    class_ticks(axes.yaxis, result.classes, step=2)
    _ends(part, drawn, axes, coupling_ticks(scale, axes, room=0.3))


def _maps(part, result, k, name):
    """Evidence for the two classes; routed above, uniform below."""
    both = {"routed": result.maps[name], "uniform": result.uniform_maps[name]}
    sums = {"routed": result.sums[k], "uniform": result.uniform_sums[k]}
    classes = result.shown
    scale = CenteredNorm(0, halfrange(np.stack([one[classes] for one in both.values()])))
    grid = part.subplots(1, 2 * len(classes), squeeze=False)[0]
    for place, (j, kind) in enumerate((j, kind) for j in classes for kind in both):
        axes = grid[place]
        drawn = one_map(axes, result.image, result.extents_px[name], both[kind][j], scale)
        axes.set_title(f"for {result.classes[j]},\n{kind}", fontsize=NAME, pad=2)
        axes.set_xlabel(f"Σ {sums[kind][j]:.2f}", labelpad=1, fontsize=6)
    _ends(part, drawn, list(grid), [scale.vmin, 0, scale.vmax], "evidence")


def _by_capsule(part, result, name):
    """Evidence of each capsule for all classes, where there are no places."""
    both = (result.type_evidence[name], result.uniform_type_evidence[name])
    scale = CenteredNorm(0, halfrange(np.stack(both)))
    grid = part.subplots(1, 2, sharey=True)
    drawn = by_capsule(grid, both, scale, "capsule")
    class_ticks(grid[0].yaxis, result.classes, step=2)
    _ends(part, drawn, list(grid), [scale.vmin, 0, scale.vmax], "evidence")


def _activations(axes, result, k):
    at = np.arange(len(result.classes))
    dumbbells(axes, at, result.activations[k], result.uniform_activations[k])
    axes.set(title="activations", xlabel="class", ylim=(-0.05, 1.4))
    axes.set_yticks([0, 0.5, 1])
    class_ticks(axes.xaxis, result.classes, step=2)
    axes.legend(loc="upper center", ncols=2, borderaxespad=0, columnspacing=0.8, handletextpad=0.2)


def _ends(part, drawn, axes, ticks, label=None):
    """A colour bar with the numbers at its ends and in its middle."""
    bar = part.colorbar(drawn, ax=axes, fraction=0.08, aspect=8, pad=0.02)
    if len(ticks) > 1:
        bar.ax.set_ylim(ticks[0], ticks[-1])
    labels = [f"{t:.3g}" if abs(t) >= 1e-3 else f"{t:g}" for t in ticks]
    bar.set_ticks(ticks, labels=[label.replace("-", "−") for label in labels])
    bar.outline.set_visible(False)
    if label:
        bar.set_label(label)
        bar.ax.yaxis.set_label_position("left")  # on the right it would name the next axes


def statistics(result, width):
    """Draw accuracy, what uniform couplings cost, and parents, a row for each network."""
    wide, K, J = width >= WIDE, len(result.networks), len(result.classes)
    shape = (1, 3) if wide else (3, 1)
    figure = Figure(figsize=(width, (0.27 * K + 0.65) * shape[0] + 0.45))
    accuracy, cost, parents = figure.subplots(*shape, sharey=True).flat
    points(accuracy, 100 * result.accuracy, RED, "o", "routed", -0.12)
    points(accuracy, 100 * result.uniform_accuracy, BLUE, "s", "uniform", 0.12, mfc="white")
    accuracy.set_xlabel("accuracy, %")
    accuracy.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    points(cost, 100 * result.cost, RED, "o")
    cost.axvline(0, color=GREY, linewidth=0.6)
    cost.set_xlabel("accuracy lost with\nuniform couplings, points")
    points(parents, result.effective_parents, RED, "o")
    parents.axvline(J, color=GREY, linestyle=":")
    parents.set_xlabel(f"effective parents of a capsule\n(dotted: all {J})")
    parents.set_xlim(0.5, J + 0.5)
    for axes in (accuracy, cost, parents):
        axes.xaxis.set_major_locator(MaxNLocator(5))
        name_rows(axes, [name.replace("-", "-\n", 1) for name in result.networks], fontsize=6.5)
    text = f"{result.n:,} images of {result.dataset}; bars: 95 % intervals"
    figure.suptitle(wrapped(text, width - 0.1, 6.5), fontsize=6.5)
    return figure
