"""Drawings for `importance`: one image; groups over many images, pruning curves, dictionaries."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from capsviz.results import COLOURS
from capsviz.results.common_panels import band
from capsviz.results.maps import halfrange, one_map
from capsviz.results.panels import percent, show, wrapped
from capsviz.statistics.estimate import Estimate

WIDE = 6.0  # inches: a figure from here on has a page's layout, below it a column's
RANDOM = "#7F7F7F"
PLURALS = {"places": "positions", "children": "groups"}
STYLES = ((RANDOM, "^"), (COLOURS[0], "o"), (COLOURS[1], "s"))  # of the orders


def one_image(result, width):
    """The image, a map of places, and a bar for each type and dimension."""
    wide = width >= WIDE
    mapped = result.extent_px is not None and "places" in result.change
    bars = [kind for kind in result.change if not (mapped and kind == "places")]
    panels = 1 + mapped + len(bars)
    if wide:
        figure = Figure(figsize=(width, 1.95))
        ratios = [1, *([1.25] if mapped else []), *[1.5] * len(bars)]
        grid = figure.add_gridspec(1, panels, width_ratios=ratios)
        places = [grid[0, k] for k in range(panels)]
    else:
        rows = 1 + len(bars)
        figure = Figure(figsize=(width, 1.75 + 1.55 * len(bars)))
        grid = figure.add_gridspec(rows, 2)
        places = [grid[0, 0], *([grid[0, 1]] if mapped else [])]
        places += [grid[1 + k, :] for k in range(len(bars))]
    axes = [figure.add_subplot(place) for place in places]
    show(axes[0], result.image, "image")
    name = result.classes[result.watched]
    whole = result.activations[result.watched]
    axes[0].set_xlabel(f"activation of {name}:\n{whole:.3f}", fontsize=6.5)
    if mapped:
        _map(figure, axes[1], result)
    for one, kind in zip(axes[1 + mapped :], bars, strict=True):
        _bars(one, result, kind)
    figure.suptitle(
        f"change of the activation of class {name} without ...;{' ' if wide else chr(10)}"
        "band: 5 to 95 % of random removals of equal norm",
        fontsize=6.5,
    )
    return figure


def _map(figure, axes, result):
    """The change without each place, on the image."""
    change = result.change["places"].reshape(result.grid[1:])
    scale = CenteredNorm(0, halfrange(change))
    drawn = one_map(axes, result.image, result.extent_px, change, scale)
    low, high = result.control["places"]
    axes.set_title("the capsules of a position", fontsize=6.5)
    text = f"random: {low:+.3f} to {high:+.3f}".replace("-", "\N{MINUS SIGN}")
    axes.set_xlabel(text, fontsize=6.5)
    figure.colorbar(drawn, ax=axes, fraction=0.05, pad=0.02).outline.set_visible(False)


def _bars(axes, result, kind):
    """A bar for each group."""
    change = result.change[kind]
    axes.axhspan(*result.control[kind], color=RANDOM, alpha=0.3, linewidth=0)
    axes.bar(range(len(change)), change, color=COLOURS[0], width=0.8)
    axes.axhline(0, color="black", linewidth=0.5)
    if len(change) < 6:  # no ticks between them
        axes.set_xticks(range(len(change)))
    axes.set_xlabel({"types": "a capsule type", "dimensions": "a dimension of all poses"}.get(
        kind, "a group of children"))  # fmt: skip
    axes.set_ylabel("change")


def curves(result, width):
    """Change without each group, and pruning curves, by kind."""
    wide, K = width >= WIDE, len(result.kinds)
    what = (
        f"{result.n:,} images of {result.dataset}, bars: 95 %; dashed: random capsules of a "
        "group's norm, diamond: of that of the most important group"
    )
    if wide:
        figure = Figure(figsize=(width, 3.9))
        axes = figure.subplots(2, K, squeeze=False).T
    else:
        what = wrapped(what, width - 0.6, 6.5)
        figure = Figure(figsize=(width, 1.5 * K + 1.25))
        axes = figure.subplots(K, 2, squeeze=False)
    for kind, (change, curves) in zip(result.kinds, axes, strict=True):
        _groups(change, result, kind)
        _curves(curves, result, kind)
    figure.legend(
        *axes[0, 1].get_legend_handles_labels(), loc="outside upper center",
        ncols=3 if wide else 1, title_fontsize=6.5, title=f"{what}; curves:",
    )  # fmt: skip
    return figure


def dictionaries(result, width):
    """Entropies of the dictionaries, and accuracy with couplings rounded to their levels."""
    wide = width >= WIDE
    figure = Figure(figsize=(width, 2.0 if wide else 3.6))
    entropies, rounded = figure.subplots(*((1, 2) if wide else (2, 1)))
    _entropies(entropies, result)
    _rounded(rounded, result)
    return figure


def _groups(axes, result, kind):
    """The change of the true activation without each group, sorted."""
    change = result.activation_change[kind]
    order = change.value.argsort()
    x = np.arange(len(order))
    axes.vlines(x, change.low[order], change.high[order], color=COLOURS[0], linewidth=0.8)
    axes.plot(x, change.value[order], ".", color=COLOURS[0], markersize=3)
    control = result.control_activation_change[kind]
    axes.axhspan(float(control.low), float(control.high), color=RANDOM, alpha=0.4, linewidth=0)
    axes.axhline(float(control.value), color=RANDOM, linestyle="--", linewidth=0.8)
    at = int(np.flatnonzero(order == result.first[kind])[0])  # it need not be the lowest here
    control = result.first_activation_change[kind][1]
    axes.vlines(at, *control.ci95, color=RANDOM, linewidth=0.8)
    axes.plot(at, control.value, "D", color=RANDOM, markerfacecolor="white")
    axes.axhline(0, color="black", linewidth=0.5)
    axes.set(xlabel=f"{PLURALS.get(kind, kind)}, sorted", ylabel="true activation")
    axes.set_title("change without one", fontsize=6.5)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _curves(axes, result, kind):
    """Accuracy against the groups removed, by order, and the mean height of each curve."""
    removed = np.array([0, *result.removed[kind]])
    base = result.base[1]
    areas = []
    for k, (name, (colour, marker)) in enumerate(zip(result.orders, STYLES, strict=True)):
        curve = result.curve_accuracy[kind][k]
        whole = Estimate(
            np.append(base.value, curve.value), np.concatenate([base.ci95[None], curve.ci95])
        )
        band(axes, removed, whole, f"{marker}-", color=colour, label=name)
        areas.append(f"{100 * float(result.area_accuracy[kind].value[k]):.0f}")
    axes.set(xlabel=f"{PLURALS.get(kind, kind)} removed", ylabel="accuracy", ylim=(0, 1.03))
    percent(axes.yaxis)
    random, least, most = areas
    axes.set_title(f"mean: random {random},\nleast {least}, most {most} %", fontsize=6.5)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _entropies(axes, result):
    """Entropy of the dictionaries against the number of levels, with the controls."""
    for estimate, colour, style, name in (
        (result.entropy_bits, COLOURS[0], "o-", "this network"),
        (result.apart_bits, COLOURS[2], "D:", "capsules varied apart"),
        (result.fresh_bits, RANDOM, "s--", "untrained network"),
    ):
        if estimate is not None:
            band(axes, result.levels, estimate, style, color=colour, label=name)
    axes.plot(result.levels, result.child_bits, "v-", color=COLOURS[1], label="a single capsule")
    axes.axhline(result.bound_bits, color="black", linewidth=0.6, linestyle=":")
    fresh = 0.0 if result.fresh_bits is None else float(result.fresh_bits.value.max())
    bound = "bound: log2 of the images"
    if fresh > 1.01 * result.bound_bits:  # it predicts fewer classes, so more images of each
        bound = "bound of this network: log2 of the images"
    axes.annotate(bound, (result.levels[0], result.bound_bits), xytext=(0, 4),
                  textcoords="offset points", fontsize=6)  # fmt: skip
    high = max(1.9 * result.bound_bits, 1.6 * fresh) or 1
    _at_levels(axes, result.levels)
    axes.set(ylim=(-0.2, high), ylabel="bits per class")
    axes.set_title("dictionaries of parse trees", fontsize=6.5)
    axes.legend(fontsize=6, loc="upper left", ncols=2,
                handlelength=1.5, columnspacing=0.8, borderaxespad=0.1)  # fmt: skip


def _rounded(axes, result):
    """Accuracy with couplings rounded to so many levels."""
    own, rest = result.rounded_accuracy[0], result.rounded_accuracy[1:]
    axes.axhspan(float(own.low), float(own.high), color=RANDOM, alpha=0.3, linewidth=0)
    axes.axhline(float(own.value), color=RANDOM, linestyle="--", linewidth=0.8, label="own")
    band(axes, result.levels, rest, "o-", color=COLOURS[0], label="rounded")
    low = min(float(rest.low.min()), float(own.low))
    _at_levels(axes, result.levels)
    axes.set(ylim=(max(0, low - 0.05), 1.03), ylabel="accuracy")  # markers at 100 % are whole
    percent(axes.yaxis)
    axes.set_title("couplings rounded", fontsize=6.5)
    axes.legend(fontsize=6)


def _at_levels(axes, levels):
    """A logarithmic axis with the levels that were measured for ticks."""
    axes.set(xscale="log", xlabel="levels of couplings")
    axes.set_xticks(levels, [f"{level:,}" for level in levels])
    axes.xaxis.set_minor_locator(NullLocator())
