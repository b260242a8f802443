"""Drawings for `routing`: the panels of its test-set statistics."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analyses import _routing_drawing as parts
from analyses._routing_drawing import BLUE, GREEN, GREY, RED

WIDE = 6.0  # inches: from here on three panels stand side by side, below it two


def panels(result, width):
    """What routing changes, how it couples, and which capsules are dead; bars are 95 %."""
    wide = width >= WIDE
    shape = (2, 3) if wide else (3, 2)
    below = [["dead", "all", "types", "types"]]
    if not wide:
        below = [["dead", "all"], ["types", "types"]]
    heights = [1.65 * shape[0], 1.9 * len(below)]
    figure = Figure(figsize=(width, sum(heights)))
    top, bottom = figure.subfigures(2, 1, height_ratios=heights)
    accuracy, changed, lengths, parents, polarisation, agreement = top.subplots(*shape).flat
    _by_rounds(accuracy, result, "accuracy", "images, %", 100)
    _by_rounds(changed, result, "changed", "images, %", 100)
    _by_rounds(lengths, result, "true_length", "length", 1)
    accuracy.set_title("accuracy")
    changed.set_title("predictions other than at r = 1" if wide else "other than at r = 1")
    lengths.set_title("true class")
    _parents(parents, result)
    _polarisation(polarisation, result)
    _agreement(agreement, result)
    axes = bottom.subplot_mosaic(below)
    _dead(axes["dead"], result)
    _by_class(bottom, axes["all"], axes["types"], result)
    top.suptitle(f"{result.n:,} images of {result.dataset}; bars and bands: 95 % intervals")
    return figure


def _by_rounds(axes, result, field, label, factor):
    """r = 1 ... M and the controls; a control far off the others' scale is said in words."""
    values, bands = (factor * getattr(result, f"{field}{end}") for end in ("", "_ci95"))
    controls, spans = (factor * getattr(result, f"control_{field}{end}") for end in ("", "_ci95"))
    rounds = np.arange(1, len(values) + 1)
    _errorbar(axes, rounds, values, bands, BLUE, "o-", None)
    low, high = bands.min(), bands.max()
    room = max(0.15 * (high - low), 1e-3 * factor)
    low, high = low - room, high + room
    for k, (value, span) in enumerate(zip(controls, spans, strict=True)):
        at = len(values) + 1 + k
        if low - 5 * room <= value <= high + 5 * room:
            _errorbar(axes, [at], value[None], span[None], (RED, GREEN)[k], "sD"[k], None)
            low, high = min(low, span[0] - room), max(high, span[1] + room)
        else:
            up = value > high
            axes.annotate(
                f"{value:.3g} {'↑' if up else '↓'}", (at + 0.9, float(up)), ha="right",
                va="top" if up else "bottom", xycoords=("data", "axes fraction"),
                fontsize=6, color=(RED, GREEN)[k],
            )  # fmt: skip
    axes.set(ylim=(low, high), xlim=(0.5, len(values) + 3))
    axes.set_xticks([*rounds, *(len(values) + 1 + k for k in range(2))])
    axes.set_xticklabels([*map(str, rounds), *(name[0].upper() for name in result.controls)])
    names = ", ".join(f"{name[0].upper()} {name}" for name in result.controls)
    axes.set(xlabel=f"rounds r; {names}", ylabel=label)


def _parents(axes, result):
    rounds = np.arange(1, len(result.effective_parents) + 1)
    mean, band = result.effective_parents, result.effective_parents_ci95
    parts.parents(axes, rounds, mean, band, len(result.classes))
    axes.set_title("spread of couplings")
    _random(axes, rounds, result.random_effective_parents[0], below=True)


def _polarisation(axes, result):
    rounds = np.arange(1, len(result.polarisation) + 1)
    _errorbar(axes, rounds, result.polarisation, result.polarisation_ci95, BLUE, "o-", None)
    value = result.polarisation[-1]
    parts.last(axes, rounds[-1], value, f"{value:.3f}", below=value > 0.5)
    axes.set(xlabel="iteration", ylabel="mean of max $c_{ij}$", ylim=(0, 1), title="polarisation")
    parts.iteration_ticks(axes, rounds)
    _random(axes, rounds, result.random_polarisation[0], below=False)


def _agreement(axes, result):
    rounds = np.arange(1, len(result.agreement) + 1)
    for k, (colour, marker, name) in enumerate(
        ((RED, "o-", "true class"), (GREY, "s--", "mean of others"))
    ):
        values, band = result.agreement[:, k], result.agreement_ci95[:, k]
        _errorbar(axes, rounds, values, band, colour, marker, name)
        label = "dotted: random" if colour is GREY else None
        axes.axhline(result.random_agreement[0, k], color=colour, linestyle=":", label=label)
    parts.votes(axes, rounds)


def _random(axes, rounds, value, *, below):
    """The random control as a dotted line."""
    axes.axhline(value, color=GREY, linestyle=":")
    parts.last(axes, rounds[-1], value, "random control", below=below)


def _dead(axes, result):
    axes.plot(result.norm, result.variance, ".", color=BLUE, markersize=1.5)
    axes.axvline(result.dead_norm, color=GREY, linestyle="--", linewidth=0.8)
    axes.axhline(result.dead_variance, color=GREY, linestyle="--", linewidth=0.8)
    axes.set(xlabel="mean norm $|u_i|$", ylabel="variance of $u_i$")
    axes.set_xlim(0, max(1, result.norm.max()))
    axes.set_yscale("symlog", linthresh=max(result.dead_variance, 1e-9))
    axes.set_ylim(bottom=0)
    axes.set_title(f"dead (lower left): {result.dead} of {len(result.norm)}")


def _by_class(part, every, types, result):
    """Mean couplings of each true class's images, on one scale with 1/J in the middle."""
    J, true = len(result.classes), result.true_classes
    own = np.stack([t[:, k] for t, k in zip(result.type_coupling, true, strict=True)])
    span = max(parts.halfrange(v - 1 / J) for v in (result.coupling, own))
    scale = CenteredNorm(1 / J, span)
    for axes, values in ((every, result.coupling), (types, own)):
        image = axes.imshow(values, cmap=parts.COUPLING, norm=scale, aspect="auto")
        axes.set_ylabel("true class")
        parts.class_ticks(axes.yaxis, [result.classes[k] for k in true])
    every.set(xlabel="parent class", title="all capsules")
    parts.class_ticks(every.xaxis, result.classes)
    types.set(xlabel="capsule type", title="each type to the true class")
    types.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    parts.coupling_bar(part, image, types, scale)


def _errorbar(axes, x, values, band, colour, marker, name):
    away = np.maximum([values - band[:, 0], band[:, 1] - values], 0)
    axes.errorbar(x, values, away, fmt=marker, color=colour, capsize=1.5, label=name)
