"""Panels of `importance`: one image; groups over many images, pruning curves, dictionaries."""

from functools import partial

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.ticker import MaxNLocator, NullLocator

from capsviz.analysis import Panel
from capsviz.results import COLOURS
from capsviz.results.maps import GREY, colour_bar, halfrange, one_map
from capsviz.results.panels import band, level, percent, show, upright
from capsviz.statistics.estimate import Estimate

KINDS = {"types": "type", "positions": "position", "children": "group", "dimensions": "dimension"}
AT_RANDOM = "random removals, each of the norm of a random group"
CHANGE = "change of activation"
STYLES = ((GREY, "^"), (COLOURS[0], "o"), (COLOURS[1], "s"))  # one for each order of removal


def _image(axes, result):
    """Draw the image with the activation of its class."""
    show(axes, result.image, "image")
    name, whole = result.classes[result.watched], result.activations[result.watched]
    axes.set_xlabel(f"activation of {name}:\n{whole:.3f}", fontsize=6.5)


def _map(axes, result):
    """Draw the change of activation without each position, on the image."""
    change = result.change["positions"].reshape(result.grid[1:])
    scale = CenteredNorm(0, halfrange(change))
    drawn = one_map(axes, result.image, result.extent_px, change, scale)
    low, high = result.control["positions"]
    axes.set_title("change without\na position", fontsize=6.5)
    text = f"random: {low:+.3f} to {high:+.3f}".replace("-", "\N{MINUS SIGN}")
    axes.set_xlabel(text, fontsize=6.5)
    colour_bar(drawn, axes, "", fraction=0.07, aspect=12, pad=0.02)


def _bars(kind: str, axes, result):
    """Draw the change of activation without each group."""
    change = result.change[kind]
    axes.axhspan(*result.control[kind], color=GREY, alpha=0.3, linewidth=0)
    axes.bar(range(len(change)), change, color=COLOURS[0], width=0.8)
    axes.axhline(0, color="black", linewidth=0.5)
    if len(change) < 6:  # no fractional ticks
        axes.set_xticks(range(len(change)))
    axes.set(xlabel=f"{KINDS[kind]}s, one left out", ylabel=CHANGE)


def _groups(kind: str, axes, result):
    """Draw the change of the true activation without each group, sorted."""
    change = result.activation_change[kind]
    order = change.value.argsort()
    upright(axes, np.arange(len(order)), change[order], ".", color=COLOURS[0], markersize=3)
    level(axes, result.control_activation_change[kind], GREY)
    # not always the lowest here, because it was ranked on other images
    at = np.flatnonzero(order == result.first[kind])
    control = result.first_activation_change[kind][1:]
    upright(axes, at, control, "D", color=GREY, markerfacecolor="white")
    axes.axhline(0, color="black", linewidth=0.5)
    axes.set(xlabel=f"{KINDS[kind]}s, sorted", ylabel=CHANGE)
    axes.set_title("true class, one left out", fontsize=6.5)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _curves(kind: str, axes, result):
    """Draw accuracy against the groups removed, by order; above it the mean of each curve."""
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
    axes.set(xlabel=f"{KINDS[kind]}s removed", ylabel="accuracy", ylim=(0, 1.03))
    percent(axes.yaxis)
    random, least, most = areas
    axes.set_title(f"mean: random {random},\nleast {least}, most {most} %", fontsize=6.5)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _entropies(axes, result):
    """Draw entropy of the dictionaries of rounded couplings by the number of levels."""
    for estimate, colour, style, name in (
        (result.entropy_bits, COLOURS[0], "o-", "this network"),
        (result.apart_bits, COLOURS[2], "D:", "capsules shuffled independently"),
        (result.untrained_bits, GREY, "s--", "untrained network"),
    ):
        if estimate is not None:
            band(axes, result.levels, estimate, style, color=colour, label=name)
    axes.plot(result.levels, result.child_bits, "v-", color=COLOURS[1], label="a single capsule")
    bound = {"linestyle": ":", "label": "upper bound: log2(images per class)"}
    axes.axhline(result.bound_bits, color="black", linewidth=0.6, **bound)
    _at_levels(axes, result.levels)
    axes.set_ylabel("bits per class")
    axes.set_title("dictionaries of parse trees", fontsize=6.5)


def _rounded(axes, result):
    """Draw accuracy with couplings rounded to so many levels."""
    own, rest = result.rounded_accuracy[0], result.rounded_accuracy[1:]
    level(axes, own, GREY, "own couplings")
    band(axes, result.levels, rest, "o-", color=COLOURS[0], label="couplings rounded")
    low = min(float(rest.low.min()), float(own.low))
    _at_levels(axes, result.levels)
    axes.set(ylim=(max(0, low - 0.05), 1.03), ylabel="accuracy")  # markers at 100 % are whole
    percent(axes.yaxis)
    axes.set_title("couplings rounded", fontsize=6.5)


def _at_levels(axes, levels):
    """Make the x-axis logarithmic, with the measured levels as ticks."""
    axes.set(xscale="log", xlabel="levels of couplings")
    axes.set_xticks(levels, [f"{level:,}" for level in levels])
    axes.xaxis.set_minor_locator(NullLocator())


def _mapped(result) -> bool:
    return result.extent_px is not None and "positions" in result.change


def _change(one: str, result) -> str:
    """Return the caption of the changes of one image."""
    name = result.classes[result.watched]
    band = f"grey: 5 to 95 % of {AT_RANDOM}" if one != "position" else ""
    return f"change of the activation of class {name} without each |{one}\n{band}".strip()


PANELS = {
    "image": Panel(_image, 1.5, 0.16, 0.4),
    "map": Panel(_map, 1.5, 0.22, 0.6, shown=_mapped, caption=partial(_change, "position")),
    **{
        kind: Panel(
            partial(_bars, kind), 1.5, 0.31, caption=partial(_change, one),
            shown=lambda result, kind=kind: kind in result.change
            and not (kind == "positions" and _mapped(result)),
        )
        for kind, one in KINDS.items()
    },
}  # fmt: skip
MANY = {
    **{
        kind: Panel(
            partial(_groups, kind), 1.5, 1 / 3, 1 / 2, shown=f"kinds:{kind}", marks="bars",
            caption=f"change of the true class's activation without each |{one}\n"
            f"dashed lines: {AT_RANDOM}\ndiamonds: random removals of the norm of the most "
            "important group on {others}",
        )
        for kind, one in KINDS.items()
    },
    **{
        f"{kind}-removed": Panel(
            partial(_curves, kind), 1.5, 1 / 3, 1 / 2, shown=f"kinds:{kind}", marks="bands",
            caption="accuracy as groups are removed in the order of their importance on {others}: |"
            f"{one}s",
        )
        for kind, one in KINDS.items()
    },
    "dictionaries": Panel(_entropies, 1.9, figure="dictionaries", marks="bands"),
    "rounded": Panel(_rounded, 1.9, figure="dictionaries", marks="bands"),
}  # fmt: skip
