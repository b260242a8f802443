"""Drawings for `routing` of one image: couplings and measures, and the evidence for each class."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from capsviz.nn.quantity import words_of
from capsviz.results.maps import (
    BLUE,
    COUPLING,
    GREY,
    RED,
    SIGNED,
    are_short,
    class_ticks,
    coupling_scale,
    coupling_ticks,
    halfrange,
    one_map,
)
from capsviz.results.panels import label_lines, show, wrapped

WIDE = 5.0  # inches: a figure from here on has a page's layout, below it a column's
LINE = 0.14  # of the height of the axes, from a number to the next
SHOWN = 10  # classes that maps are drawn of, the longest
LONG = 8  # letters of a class name that stands alone on its line


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
    names = [["parents", "votes", "activations"]]
    if not wide:
        names = [["parents", "activations"], ["votes", "votes"]]
        if not are_short(result.classes):  # names of classes stand upright, each in its own room
            names = [[one] for one in ("parents", "votes", "activations")]
    parts = part.subplot_mosaic(names)
    J, iterations = len(result.classes), np.arange(1, len(result.couplings) + 1)
    counts = np.exp(result.entropy_nats)
    band = np.quantile(counts, [0.05, 0.95], 1).T
    more = "; band: 5 to 95 %" if wide else "\nband: 5 to 95 %"
    parents(parts["parents"], iterations, counts.mean(1), band, J, more)
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


def parents(axes, iterations, mean, band, J, more):
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
    figure.suptitle(_evidence_title(result), fontsize=7)
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
    part.suptitle(_maps_title(result, SHOWN, wide), fontsize=7)
    bar(part, drawn, grid, "evidence; −: well below 0")


def _maps_title(result, shown: int, wide: bool) -> str:
    """Return the title of maps of at most `shown` classes."""
    most = "longest" if result.layer is None else "most active"
    longest = f" ({shown} {most})" if len(result.classes) > shown else ""
    quantity, own = words_of(result.quantity), result.quantity is not None
    return (
        f"{_changed(result, chr(10))}evidence for each {result.parent}{longest} by position: "
        f"{chr(10) if own and not wide else ''}{quantity['part']} "
        f"summed over types;{' ' if wide and not own else chr(10)}"
        f"below each map its sum Σ{', ' if own else ' = '}{quantity['whole']}"
        f"{'' if result.layer is None else (' ' if wide else chr(10)) + 'of all positions'}"
    )


def _evidence_title(result) -> str:
    """Return the title of the evidence of capsules without positions."""
    quantity = words_of(result.quantity)
    return (
        f"{_changed(result, chr(10))}evidence for each {result.parent} by capsule, "
        f"{quantity['part']};\nΣ: {quantity['whole']}"
    )


def _changed(result, end: str) -> str:
    """Return what was changed in the network, if anything."""
    return f"{result.changed}{end}" if result.changed else ""


def dumbbells(axes, at, routed, uniform):
    """Draw values with routing and with uniform couplings, and the way between."""
    axes.vlines(at, uniform, routed, color=GREY, linewidth=0.8)
    axes.plot(at, routed, "o", color=RED, label="routed")
    axes.plot(at, uniform, "o", color=BLUE, mfc="white", label="uniform")


def by_capsule(grid, both, scale, child):
    """Draw the evidence (types, J) of each capsule, routed and uniform; "_" is well below 0."""
    for axes, values, name in zip(grid, both, ("routed", "uniform"), strict=True):
        drawn = axes.imshow(values.T, cmap=SIGNED, norm=scale, aspect="auto", interpolation="none")
        rows, columns = np.nonzero(-scale.halfrange / 5 > values.T)
        axes.plot(columns, rows, linestyle="none", marker="_", color="black", markersize=3)
        axes.set(title=name, xlabel=child)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    return drawn
