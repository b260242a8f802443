"""Drawings for `routing`: of one image, and of its statistics over many."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from capsviz.nn.quantity import words_of
from capsviz.results import COLOURS
from capsviz.results.maps import (
    BLUE,
    COUPLING,
    GREEN,
    GREY,
    RED,
    are_short,
    by_capsule,
    class_ticks,
    coupling_scale,
    coupling_ticks,
    dumbbells,
    halfrange,
    one_map,
)
from capsviz.results.panels import label_lines, show, wrapped

WIDE = 5.0  # inches: a figure from here on has a page's layout, below it a column's
THREE = 6.0  # inches: from here on three panels of statistics stand side by side

LINE = 0.14  # of the height of the axes, from a number to the next
SHOWN = 10  # classes that maps are drawn of, the longest
MOST = 12  # numbers and letters on an axis
LONG = 8  # letters of a class name that stands alone on its line
CONTROL_STYLES = ((RED, "s"), (GREEN, "D"), (COLOURS[3], "^"), (COLOURS[4], "v"))  # one each


def sheet(result, width):
    """Couplings as type x class, and the measures."""
    wide = width >= WIDE
    count = len(result.couplings)
    picked = sorted({round(r) for r in np.linspace(0, count - 1, min(4 if wide else 2, count))})
    tall, short = (2.3, 1.8) if wide else (4.5, 3.2)
    below = short if are_short(result.classes) else tall
    heights = [1.5 if wide else 0.3 + 1.2 * len(picked), below]
    heights[0] += 0.15 if result.changed else 0
    figure = Figure(figsize=(width, sum(heights)))
    top, bottom = figure.subfigures(2, 1, height_ratios=heights)
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02)
    _couplings(top, result, picked, wide)
    if result.changed:
        top.suptitle(result.changed, fontsize=7)
    label_lines(figure, _measures(bottom, result, wide))
    return figure


def _couplings(part, result, picked, wide):
    count, _, J = result.couplings.shape
    shape = (1, len(picked)) if wide else (len(picked), 1)
    grid = part.subplots(*shape, sharex=True, sharey=True, squeeze=False)
    scale = coupling_scale(result.couplings, 1 / J)
    for axes, r in zip(grid.flat, picked, strict=True):
        image = axes.imshow(result.couplings[r].T, cmap=COUPLING, norm=scale, aspect="auto")
        uniform = " (uniform)" if np.ptp(result.couplings[r]) == 0 else ""
        axes.set_title(f"iteration {r + 1}{uniform}" if count > 1 else "couplings, one pass")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    class_ticks(grid[0, 0].yaxis, result.classes, step=2)
    for axes in grid[-1]:
        axes.set_xlabel(result.child)
    for axes in grid[:, 0]:
        axes.set_ylabel(result.parent)
    coupling_bar(part, image, grid, scale)


def _measures(part, result, wide) -> list:
    """Spread, agreement and activations; the lines to be named."""
    names = ["parents", "votes", "activations"]
    if wide:
        rows = [names]
    elif are_short(result.classes):
        rows = [["parents", "activations"], ["votes", "votes"]]
    else:  # names of classes stand upright, each in its own room
        rows = [[name] for name in names]
    parts = part.subplot_mosaic(rows)
    J, iterations = len(result.classes), np.arange(1, len(result.couplings) + 1)
    counts = np.exp(result.entropy_nats)
    band = np.quantile(counts, [0.05, 0.95], 1).T
    more = "; band: 5 to 95 %" if wide else "\nband: 5 to 95 %"
    parents_axes(parts["parents"], iterations, counts.mean(1), band, J, more)
    axes, winner, named = parts["votes"], int(result.activations.argmax()), []
    roles = {winner: "predicted" if result.layer is None else "most active"}
    if result.label is not None:
        roles[result.label] = "true" if result.label != winner else "predicted,\ntrue"
    for (j, role), colour in zip(roles.items(), (RED, BLUE), strict=False):
        (line,) = axes.plot(iterations, result.agreement[:, j], "o-", color=colour)
        apart = " " if len(result.classes[j]) < LONG else "\n"
        named.append((axes, line, f"{result.classes[j]}{apart}({role})"))
    rest = np.delete(result.agreement, list(roles), 1)
    if rest.shape[1]:
        (line,) = axes.plot(iterations, rest.mean(1), "s--", color=GREY)
        named.append((axes, line, "mean of\nothers"))
    votes(axes, iterations)
    axes, at = parts["activations"], np.arange(J)
    dumbbells(axes, at, result.activations, result.uniform_activations)
    axes.set(xlabel=result.parent, ylabel="activation", ylim=(0, 1.05 if wide else 1.5))
    axes.set_title("class capsules" if result.layer is None else "position mean")
    axes.set_yticks([0, 0.5, 1])
    class_ticks(axes.xaxis, result.classes)
    if wide:
        part.legend(*axes.get_legend_handles_labels(), loc="outside lower right", ncols=2)
    else:
        axes.legend(loc="upper center", borderaxespad=0)
    return named


def parents_axes(axes, iterations, mean, band, J, more):
    """Draw effective parents, their number in the title, and the entropy on the right."""
    axes.plot(iterations, mean, "o-", color=BLUE)
    if len(iterations) > 1:
        axes.fill_between(iterations, *band.T, color=BLUE, alpha=0.25, linewidth=0)
    else:
        axes.vlines(iterations, *band.T, color=BLUE, alpha=0.5, linewidth=3)
    axes.set(ylabel="effective parents", ylim=(1, J * 1.03))
    number = f"{mean[-1]:.2f}" if round(mean[-1], 2) < J else f"{mean[-1]:.3f}"
    axes.set_title(f"{'last: ' * (len(iterations) > 1)}{number} of {J}{more}")
    axes.spines["right"].set_visible(True)
    right = axes.secondary_yaxis("right", functions=(np.log, np.exp))
    right.set_ylabel("entropy, nats")
    whole = [0]
    for nats in range(1, int(np.log(J)) + 1):
        if np.exp(nats) - np.exp(whole[-1]) > LINE * (J - 1):
            whole.append(nats)
    right.set_ticks(whole if np.log(J) > 2 else np.linspace(0, np.log(J), 3).round(2))
    iteration_ticks(axes, iterations)


def votes(axes, iterations):
    """Labels of the agreement of votes and pose."""
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0), high + 0.1 * (high - min(low, 0)))
    axes.set(ylabel="mean cosine", title="vote agreement")
    iteration_ticks(axes, iterations)


def iteration_ticks(axes, iterations):
    """Whole iterations only; a routing of one pass has none."""
    room = max(0.3, 0.06 * (iterations[-1] - iterations[0]))  # of the last number
    axes.set_xlim(iterations[0] - room, iterations[-1] + room)
    if len(iterations) == 1:
        axes.set(xlabel="one pass", xticks=[])
    else:
        axes.set_xlabel("iteration")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def coupling_bar(part, image, grid, scale):
    """The colour bar of couplings: 1/J in its middle."""
    drawn = bar(part, image, grid, "mean coupling $c_{ij}$")
    ticks = coupling_ticks(scale, grid)
    if len(ticks) > 1 and ticks[0] > scale.vmin:
        drawn.ax.set_ylim(ticks[0], scale.vmax)
    drawn.set_ticks(ticks, labels=[f"{t:.3f}" for t in ticks])


def bar(part, image, grid, label):
    """A labelled colour bar at the right of a grid."""
    drawn = part.colorbar(image, ax=grid, fraction=0.05, aspect=18, pad=0.015)
    drawn.set_label(label)
    drawn.outline.set_visible(False)
    return drawn


def maps(result, width):
    """Maps of the evidence beside their uniform control."""
    wide = width >= WIDE
    classes = np.sort(np.argsort(-result.activations, kind="stable")[:SHOWN])
    columns = min(len(classes), 10 if wide else 5)
    rows = 2 * -(-len(classes) // columns)
    panel = min(0.86 * width / columns, 1.2)
    figure = Figure(figsize=(width, rows * (panel + 0.2) + (0.4 if wide else 0.5)))
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02)
    scale = CenteredNorm(0, halfrange(np.stack([result.maps, result.uniform_maps])))
    photograph = len(result.image) > 1 and wide  # which a map over it hides
    grid = figure.subplots(rows, columns + photograph, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    if photograph:
        show(grid[0, 0], result.image, "image")
        grid[0, 0].set_axis_on()
        grid = grid[:, 1:]
    kinds = (
        ("routed", result.maps, result.map_sums),
        ("uniform", result.uniform_maps, result.uniform_map_sums),
    )
    cell = 0.8 * width / (columns + photograph)
    for k, (name, each, sums) in enumerate(kinds):
        for place, j in enumerate(classes):
            block, column = divmod(place, columns)
            axes = grid[2 * block + k, column]
            drawn = one_map(axes, result.image, result.extent_px, each[j], scale)
            axes.set_xlabel(f"Σ {sums[j]:.2f}", labelpad=1, fontsize=6)
            if k == 0:
                title = wrapped(result.classes[j] + (" (true)" if j == result.label else ""), cell)
                axes.set_title(title, fontsize=6.5, pad=2)
            if column == 0:
                axes.set_ylabel(name, fontsize=6.5)
    most = "longest" if result.layer is None else "most active"
    shown = f" ({SHOWN} {most})" if len(result.classes) > SHOWN else ""
    quantity, end = words_of(result.quantity), " " if wide else "\n"
    places = "" if result.layer is None else f"{end}of all positions"
    figure.suptitle(
        f"{_changed(result)}evidence for each {result.parent}{shown} by position:{end}"
        f"{quantity['part']} summed over types;\n"
        f"below each map its sum Σ: {quantity['whole']}{places}",
        fontsize=7,
    )
    bar(figure, drawn, grid, "evidence; −: well below 0")
    return figure


def evidence(result, width):
    """What the capsules of each type add to each class, and what they all add up to."""
    wide = width >= WIDE
    figure = Figure(figsize=(width, 2.6 if wide else 2.9))
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02)
    grid = figure.subplots(1, 3, sharey=True, width_ratios=[1, 1, 0.7])
    both = (result.type_evidence, result.uniform_type_evidence)
    scale = CenteredNorm(0, halfrange(np.stack(both)))
    drawn = by_capsule(grid[:2], both, scale, result.child)
    axes, at = grid[2], np.arange(len(result.classes))
    axes.axvline(0, color=GREY, linewidth=0.5)
    axes.hlines(at, result.uniform_map_sums, result.map_sums, color=GREY, linewidth=0.8)
    axes.plot(result.map_sums, at, "o", color=RED, label="routed")
    axes.plot(result.uniform_map_sums, at, "o", color=BLUE, mfc="white", label="uniform")
    axes.margins(x=0.05 if wide else 0.12)  # whole markers
    axes.set(title="sum Σ over capsules" if wide else "sum Σ", xlabel="Σ")
    axes.xaxis.set_major_locator(MaxNLocator(4 if wide else 2))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower right", ncols=2)
    grid[0].set_ylabel(result.parent)
    class_ticks(grid[0].yaxis, result.classes)
    quantity = words_of(result.quantity)
    figure.suptitle(
        f"{_changed(result)}evidence for each {result.parent} by capsule, "
        f"{quantity['part']};\nΣ: {quantity['whole']}",
        fontsize=7,
    )
    drawn = bar(figure, drawn, grid[:2], "evidence; −: well below 0\n")  # away from the next panel
    if np.min(both) >= 0:
        drawn.ax.set_ylim(0, scale.vmax)
    return figure


def _changed(result) -> str:
    """Return what was changed in the network, if anything."""
    return f"{result.changed}\n" if result.changed else ""


def panels(result, width):
    """What routing changes and how it couples; bars are 95 %."""
    wide = width >= THREE
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
    wide = width >= THREE
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
    names = ["own", *(f"{name[0].upper()} {name}" for name in result.controls)]
    sd = [float(result.coupling_sd.value[-1]), *result.control_sd.value]
    each = [f"{name} {value:.4f}" for name, value in zip(names, sd, strict=True)]
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
    one, J = result.effective_parents, len(result.classes)
    iterations = np.arange(1, len(one) + 1)
    parents_axes(axes, iterations, one.value, one.ci95, J, "\ndotted: random")
    _dotted(axes, result, result.control_effective_parents.value)


def _polarisation(axes, result):
    estimate = result.polarisation
    iterations = np.arange(1, len(estimate) + 1)
    _errorbar(axes, iterations, estimate, BLUE, "o-")
    top = 1.06 if estimate.value.max() > 0.97 else 1  # whole markers
    axes.set(ylabel="mean of max $c_{ij}$", ylim=(0, top))
    axes.set_title(f"polarisation {float(estimate.value[-1]):.3f}\ndotted: random")
    iteration_ticks(axes, iterations)
    _dotted(axes, result, result.control_polarisation.value)


def _agreement(axes, result) -> list:
    """Cosine of votes and pose, and of the control of equal spread; the lines to be named."""
    iterations, named = np.arange(1, len(result.agreement) + 1), []
    for k, (colour, marker, name) in enumerate(((RED, "o-", "true"), (GREY, "s--", "others"))):
        line = _errorbar(axes, iterations, result.agreement[:, k], colour, marker)
        _dotted(axes, result, result.control_agreement.value[:, k], "matched", colour)
        named.append((axes, line, name))
    votes(axes, iterations)
    axes.set_xlabel(f"{axes.get_xlabel()}; dotted: matched")
    return named


def _dotted(axes, result, values, name="random", colour=GREY):
    """Draw one of the controls as a dotted line."""
    axes.axhline(values[result.controls.index(name)], color=colour, linestyle=":")


def _dead(axes, result):
    """Mean and largest activation of each capsule; the dead are those that never reach the line."""
    mean, largest = result.child_activation.value, result.largest_activation
    axes.plot(mean, largest, ".", color=BLUE, markersize=1.5)
    axes.axhline(result.dead_norm, color=GREY, linestyle="--", linewidth=0.8)
    axes.set(xlim=(0, max(1, mean.max())), ylim=(0, 1.05 * max(1, largest.max())))
    axes.set(xlabel="mean activation", ylabel="largest activation")
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
    coupling_bar(part, image, shown[-1][0], scale)


def _errorbar(axes, x, estimate, colour, marker):
    """Points with their intervals; the line through them."""
    away = np.maximum([estimate.value - estimate.low, estimate.high - estimate.value], 0)
    line, *_ = axes.errorbar(x, estimate.value, away, fmt=marker, color=colour, capsize=1.5)
    return line
