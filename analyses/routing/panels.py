"""Drawings for `routing`: the panels of its test-set statistics."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from capsviz.analyses.routing import draw as parts
from capsviz.results import COLOURS
from capsviz.results.maps import (
    BLUE,
    COUPLING,
    GREEN,
    GREY,
    RED,
    are_short,
    class_ticks,
    coupling_scale,
)
from capsviz.results.panels import label_lines, wrapped

PINK, ORANGE = COLOURS[3], COLOURS[4]
NEAR = 0.25  # of the height of the axes: a control this near to the curve's last number
LINE = 8  # points from a line of small letters to the next
MOST = 12  # numbers and letters on an axis
CROWDED = 8  # rounds and controls on an axis from which on a number is wider than two of them
WIDE = 6.0  # inches: from here on three panels stand side by side, below it two
CONTROL_STYLES = ((RED, "s"), (GREEN, "D"), (PINK, "^"), (ORANGE, "v"))  # one each


def panels(result, width):
    """What routing changes and how it couples; bars are 95 %."""
    wide = width >= WIDE
    shape = (2, 3) if wide else (3, 2)
    figure = Figure(figsize=(width, 1.65 * shape[0] + 0.1 + 0.12 * (not wide)))
    accuracy, changed, active, parents, polarisation, agreement = figure.subplots(*shape).flat
    _by_rounds(accuracy, result, 100 * result.accuracy, 100 * result.control_accuracy)
    _by_rounds(changed, result, 100 * result.changed, 100 * result.control_changed)
    _by_rounds(active, result, result.true_activation, result.control_true_activation)
    for axes in (accuracy, changed):
        axes.set_ylabel("images, %")
    active.set_ylabel("activation")
    accuracy.set_title("accuracy")
    than = "at r = 1" if len(result.changed) > 1 else "its own"
    changed.set_title(f"predictions other than {than}" if wide else f"other than {than}")
    active.set_title("true class")
    _parents(parents, result)
    _polarisation(polarisation, result)
    named = _agreement(agreement, result)
    figure.suptitle(wrapped(_title(result), width - 0.1, 6.2), fontsize=6.5)
    label_lines(figure, named)
    return figure


def couplings(result, width):
    """Which capsules are dead; mean couplings of each true class's images."""
    wide = width >= WIDE
    names = [["dead", "all", "types", "types"]] if wide else [["dead", "all"], ["types", "types"]]
    upright = 0 if are_short(result.classes) else 0.8  # inches of names below their axes
    figure = Figure(figsize=(width, 1.9 * len(names) + 0.15 + upright))
    axes = figure.subplot_mosaic(names)
    _dead(axes["dead"], result)
    _by_class(figure, axes["all"], axes["types"], result)
    figure.suptitle(f"{result.n:,} images of {result.dataset}", fontsize=6.5)
    return figure


def _title(result) -> str:
    """What the bars are, and the controls' letters with their spread."""
    head = f"{result.n:,} images of {result.dataset}; bars and bands: 95 % intervals"
    each = [f"{name[0].upper()} {name}" for name in result.controls]
    if result.control_sd is None:
        return f"{head}\ncontrols: {', '.join(each)}"
    sd = [float(result.coupling_sd.value[-1]), *result.control_sd.value]
    each = [f"{name} {value:.4f}" for name, value in zip(["own", *each], sd, strict=True)]
    return f"{head}\nsd of couplings about uniform: {', '.join(each)}"


def _by_rounds(axes, result, estimate, controls):
    """r = 1 ... M and the controls; a control far off the others' scale is said in words."""
    count, K = len(estimate), len(controls)
    step = -(-(count + K) // MOST)  # from one number or letter on the axis to the next
    _errorbar(axes, np.arange(1, count + 1), estimate, BLUE, "o-")
    low, high = estimate.low.min(), estimate.high.max()
    if low == high:  # nothing to measure by, as of predictions against themselves
        low, high = min(low, controls.low.min()), max(high, controls.high.max())
    room = max(0.15 * (high - low), 1e-3 * max(1, abs(high)))
    low, high = low - room, high + room
    far = []  # controls off the scale, and on which side
    for k in range(K):
        at, value = count + step * (1 + k), float(controls.value[k])
        colour, marker = CONTROL_STYLES[k]
        if low - 5 * room <= value <= high + 5 * room:
            _errorbar(axes, [at], controls[k : k + 1], colour, marker)
            low, high = min(low, controls.low[k] - room), max(high, controls.high[k] + room)
        else:
            up = value > high
            few = count + K < CROWDED or step > 1
            reach = 2 if few else 3  # controls that a number reaches over
            taken = [level for j, side, level in far if side == up and k - j <= reach]
            line = next(level for level in (0.0, LINE, 2 * LINE) if level not in taken)
            far.append((k, up, line))
            axes.annotate(
                f"{result.controls[k][0].upper()} {value:.3g} {'↑' if up else '↓'}",
                (at + 0.45 * step, float(up)), ha="right",
                va="top" if up else "bottom", xycoords=("data", "axes fraction"),
                xytext=(0, -line if up else line), textcoords="offset points",
                fontsize=6, color=colour,
            )  # fmt: skip
    axes.set(ylim=(low, high), xlim=(1 - 0.5 * step, count + (K + 0.7) * step))
    numbered = list(range(1, count + 1, step))
    axes.set_xticks([*numbered, *(count + step * (1 + k) for k in range(K))])
    rounds = [str(r) for r in numbered] if count > 1 else ["own"]
    axes.set_xticklabels([*rounds, *(name[0].upper() for name in result.controls)])
    letters = axes.get_xticklabels()[len(numbered) :]
    for tick, (colour, _) in zip(letters, CONTROL_STYLES, strict=False):
        tick.set_color(colour)
    axes.set_xlabel("rounds r; controls" if count > 1 else "controls")


def _parents(axes, result):
    rounds = np.arange(1, len(result.effective_parents) + 1)
    estimate = result.effective_parents
    parts.parents(axes, rounds, estimate.value, estimate.ci95, len(result.classes))
    axes.set_title("spread of couplings")
    _control(axes, estimate.value, result, result.control_effective_parents, below=True)


def _polarisation(axes, result):
    estimate = result.polarisation
    rounds = np.arange(1, len(estimate) + 1)
    _errorbar(axes, rounds, estimate, BLUE, "o-")
    values = estimate.value
    top = 1.06 if values.max() > 0.97 else 1  # whole markers
    axes.set(ylabel="mean of max $c_{ij}$", ylim=(0, top), title="polarisation")
    control = result.control_polarisation.value[result.controls.index("random")]
    below = values[-1] > 0.5 or 0 < control - values[-1] < NEAR < values[-1]
    parts.last(axes, rounds, values, f"{values[-1]:.3f}", below=below,
               alone=len(values) == 1)  # fmt: skip
    parts.iteration_ticks(axes, rounds)
    _control(axes, values, result, result.control_polarisation, below=False)


def _agreement(axes, result) -> list:
    """Cosine of votes and pose; the lines to be named."""
    rounds, dotted = np.arange(1, len(result.agreement) + 1), _dotted(result)
    named = []
    for k, (colour, marker, name) in enumerate(((RED, "o-", "true"), (GREY, "s--", "others"))):
        line = _errorbar(axes, rounds, result.agreement[:, k], colour, marker)
        value = result.control_agreement.value[dotted, k]
        axes.axhline(value, color=colour, linestyle=":")
        named.append((axes, line, name))
    parts.votes(axes, rounds)
    axes.set_xlabel(f"{axes.get_xlabel()}; dotted: {result.controls[dotted]}")
    return named


def _dotted(result) -> int:
    """The control that is drawn as a line: the one that spreads as the network's own do."""
    names = result.controls
    return names.index("matched") if "matched" in names else names.index("random")


def _control(axes, curve, result, estimate, *, below):
    """The random control as a dotted line, its name away from the curve and its last number."""
    value = estimate.value[result.controls.index("random")]
    axes.axhline(value, color=GREY, linestyle=":")
    low, high = axes.get_ylim()
    crossed = np.flatnonzero(np.diff(curve > value))
    near = abs(curve[-1] - value) < NEAR * (high - low)
    if not (crossed.size or near) and len(curve) > 1:
        parts.last(axes, [len(curve)], np.array([value]), "random control", below=below)
        return
    left = near or (crossed.size and 2 * crossed[0] >= len(curve) - 1)
    if crossed.size:
        below = curve[0 if left else -1] > value
    if value < low + NEAR * (high - low):  # no room below
        below = False
    axes.annotate(
        "random", (0.02 if left else 0.98, value), xycoords=("axes fraction", "data"),
        xytext=(0, -4 if below else 4), textcoords="offset points",
        ha="left" if left else "right", va="top" if below else "bottom", fontsize=6.5,
    )  # fmt: skip


def _dead(axes, result):
    """Mean and largest activation of each capsule; the dead are those that never reach the line."""
    mean, largest = result.child_activation.value, result.largest_activation
    axes.set_xlabel("mean activation")
    if largest is None:
        axes.hist(mean, bins=30, color=BLUE)
        axes.set(ylabel="capsules", title="largest activations\nnot recorded")
        return
    axes.plot(mean, largest, ".", color=BLUE, markersize=1.5)
    axes.axhline(result.dead_norm, color=GREY, linestyle="--", linewidth=0.8)
    axes.set(xlim=(0, max(1, mean.max())), ylim=(0, 1.05 * max(1, largest.max())))
    axes.set_ylabel("largest activation")
    axes.set_title(f"dead (below): {result.dead} of {len(mean)}")


def _by_class(part, every, types, result):
    """Mean couplings of each true class's images, on one scale with 1/J in the middle."""
    J, true = len(result.classes), result.true_classes
    shown = [(every, result.coupling.value)]
    if result.type_coupling is None:
        types.axis("off")
        types.set_title("capsule types\nnot recorded")
    else:
        each = zip(result.type_coupling.value, true, strict=True)
        shown.append((types, np.stack([of_type[:, k] for of_type, k in each])))
        types.set(xlabel="capsule type", title="each type to the true class")
        types.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    scale = coupling_scale(np.concatenate([values.ravel() for _, values in shown]), 1 / J)
    for axes, values in shown:
        image = axes.imshow(values, cmap=COUPLING, norm=scale, aspect="auto")
        axes.set_ylabel("true class")
        class_ticks(axes.yaxis, [result.classes[k] for k in true])
    every.set(xlabel="parent class", title="all capsules")
    class_ticks(every.xaxis, result.classes)
    parts.coupling_bar(part, image, shown[-1][0], scale)


def _errorbar(axes, x, estimate, colour, marker):
    """Points with their intervals; the line through them."""
    away = np.maximum([estimate.value - estimate.low, estimate.high - estimate.value], 0)
    line, *_ = axes.errorbar(x, estimate.value, away, fmt=marker, color=colour, capsize=1.5)
    return line
