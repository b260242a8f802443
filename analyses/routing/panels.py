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
MOST = 12  # numbers and letters on an axis
WIDE = 6.0  # inches: from here on three panels stand side by side, below it two
CONTROL_STYLES = ((RED, "s"), (GREEN, "D"), (PINK, "^"), (ORANGE, "v"))  # one each


def panels(result, width):
    """What routing changes and how it couples; bars are 95 %."""
    wide = width >= WIDE
    shape = (2, 3) if wide else (3, 2)
    figure = Figure(figsize=(width, 1.65 * shape[0] + 0.1 + 0.12 * (not wide)))
    accuracy, changed, active, parents, polarisation, agreement = figure.subplots(*shape).flat
    _by_iterations(accuracy, result, 100 * result.accuracy, 100 * result.control_accuracy)
    _by_iterations(changed, result, 100 * result.changed, 100 * result.control_changed)
    _by_iterations(active, result, result.true_activation, result.control_true_activation)
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


def _by_iterations(axes, result, estimate, controls):
    """r = 1 ... M and the controls; controls far off the scale are written in its corner."""
    count, K = len(estimate), len(controls)
    step = -(-(count + K) // MOST)  # from one number or letter on the axis to the next
    _errorbar(axes, np.arange(1, count + 1), estimate, BLUE, "o-")
    low, high = estimate.low.min(), estimate.high.max()
    if low == high:  # nothing to measure by, as of predictions against themselves
        low, high = min(low, controls.low.min()), max(high, controls.high.max())
    room = max(0.15 * (high - low), 1e-3 * max(1, abs(high)))
    low, high = low - room, high + room
    far: dict[bool, list[str]] = {True: [], False: []}  # above and below the scale
    for k in range(K):
        value = float(controls.value[k])
        if low - 5 * room <= value <= high + 5 * room:
            at = count + step * (1 + k)
            _errorbar(axes, [at], controls[k : k + 1], *CONTROL_STYLES[k])
            low, high = min(low, controls.low[k] - room), max(high, controls.high[k] + room)
        else:
            up = value > high
            far[up].append(f"{result.controls[k][0].upper()} {value:.3g} {'↑' if up else '↓'}")
    for up, texts in far.items():
        axes.annotate(
            "\n".join(texts), (1, float(up)), xycoords="axes fraction", xytext=(0, -2 if up else 2),
            textcoords="offset points", ha="right", va="top" if up else "bottom", fontsize=6,
        )  # fmt: skip
    axes.set(ylim=(low, high), xlim=(1 - 0.5 * step, count + (K + 0.7) * step))
    numbered = list(range(1, count + 1, step))
    axes.set_xticks([*numbered, *(count + step * (1 + k) for k in range(K))])
    iterations = [str(r) for r in numbered] if count > 1 else ["own"]
    axes.set_xticklabels([*iterations, *(name[0].upper() for name in result.controls)])
    letters = axes.get_xticklabels()[len(numbered) :]
    for tick, (colour, _) in zip(letters, CONTROL_STYLES, strict=False):
        tick.set_color(colour)
    axes.set_xlabel("routing iterations r; controls" if count > 1 else "controls")


def _parents(axes, result):
    estimate = result.effective_parents
    iterations = np.arange(1, len(estimate) + 1)
    J = len(result.classes)
    parts.parents(axes, iterations, estimate.value, estimate.ci95, J, "\ndotted: random")
    _control(axes, result, result.control_effective_parents)


def _polarisation(axes, result):
    estimate = result.polarisation
    iterations = np.arange(1, len(estimate) + 1)
    _errorbar(axes, iterations, estimate, BLUE, "o-")
    top = 1.06 if estimate.value.max() > 0.97 else 1  # whole markers
    axes.set(ylabel="mean of max $c_{ij}$", ylim=(0, top))
    axes.set_title(f"polarisation {float(estimate.value[-1]):.3f}\ndotted: random")
    parts.iteration_ticks(axes, iterations)
    _control(axes, result, result.control_polarisation)


def _agreement(axes, result) -> list:
    """Cosine of votes and pose; the lines to be named."""
    iterations, dotted = np.arange(1, len(result.agreement) + 1), _dotted(result)
    named = []
    for k, (colour, marker, name) in enumerate(((RED, "o-", "true"), (GREY, "s--", "others"))):
        line = _errorbar(axes, iterations, result.agreement[:, k], colour, marker)
        value = result.control_agreement.value[dotted, k]
        axes.axhline(value, color=colour, linestyle=":")
        named.append((axes, line, name))
    parts.votes(axes, iterations)
    axes.set_xlabel(f"{axes.get_xlabel()}; dotted: {result.controls[dotted]}")
    return named


def _dotted(result) -> int:
    """The control that is drawn as a line: the one that spreads as the network's own do."""
    names = result.controls
    return names.index("matched") if "matched" in names else names.index("random")


def _control(axes, result, estimate):
    """Draw the random control as a dotted line."""
    value = estimate.value[result.controls.index("random")]
    axes.axhline(value, color=GREY, linestyle=":")


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
