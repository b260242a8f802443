"""Drawings for `routing`: one image's couplings and measures. Parts of panels."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from capsviz.analyses.routing.words import child_of, parent_of
from capsviz.results.maps import (
    BLUE,
    COUPLING,
    GREY,
    RED,
    are_short,
    class_ticks,
    coupling_scale,
    coupling_ticks,
)
from capsviz.results.panels import label_lines

WIDE = 5.0  # inches: a figure from here on has a page's layout, below it a column's
STEEP = 0.3  # of the height of the axes, from one iteration to the next
LINE = 0.14  # of the height of the axes, from a number to the next
LONG = 8  # letters of a class name that stands alone on its line


def one_image(result, width):
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
        axes.set_xlabel(child_of(result))
    for axes in grid[:, 0]:
        axes.set_ylabel(parent_of(result))
    coupling_bar(part, image, grid, scale)


def _measures(part, result, wide) -> list:
    """Spread, agreement and activations; the lines to be named."""
    names = [["parents", "votes", "activations"]]
    if not wide:
        names = [["parents", "activations"], ["votes", "votes"]]
        if not are_short(result.classes):  # names of classes stand upright, each in its own room
            names = [[one] for one in ("parents", "votes", "activations")]
    parts = part.subplot_mosaic(names)
    J, rounds = len(result.classes), np.arange(1, len(result.couplings) + 1)
    counts = np.exp(result.entropy_nats)
    parents(parts["parents"], rounds, counts.mean(1), np.quantile(counts, [0.05, 0.95], 1).T, J)
    parts["parents"].set_title("band: 5 to 95 % of capsules" if wide else "band: 5 to 95 %")
    axes, winner, named = parts["votes"], int(result.activations.argmax()), []
    roles = {winner: "predicted" if result.layer is None else "most active"}
    if result.label is not None:
        roles[result.label] = "true" if result.label != winner else "predicted,\ntrue"
    for (j, role), colour in zip(roles.items(), (RED, BLUE), strict=False):
        (line,) = axes.plot(rounds, result.agreement[:, j], "o-", color=colour)
        apart = " " if len(result.classes[j]) < LONG else "\n"
        named.append((axes, line, f"{result.classes[j]}{apart}({role})"))
    rest = np.delete(result.agreement, list(roles), 1)
    if rest.shape[1]:
        (line,) = axes.plot(rounds, rest.mean(1), "s--", color=GREY)
        named.append((axes, line, "mean of\nothers"))
    votes(axes, rounds)
    axes, at = parts["activations"], np.arange(J)
    axes.vlines(at, result.uniform_activations, result.activations, color=GREY, linewidth=0.8)
    axes.plot(at, result.activations, "o", color=RED, label="routed")
    axes.plot(at, result.uniform_activations, "o", color=BLUE, mfc="white", label="uniform")
    axes.set(xlabel=parent_of(result), ylabel="activation", ylim=(0, 1.05 if wide else 1.5))
    axes.set_title("class capsules" if result.layer is None else "mean over places")
    axes.set_yticks([0, 0.5, 1])
    class_ticks(axes.xaxis, result.classes)
    if wide:
        part.legend(*axes.get_legend_handles_labels(), loc="outside lower right", ncols=2)
    else:
        axes.legend(loc="upper center", borderaxespad=0)
    return named


def parents(axes, rounds, mean, band, J):
    """Effective parents, and on the right the entropy that they stand for."""
    axes.plot(rounds, mean, "o-", color=BLUE)
    if len(rounds) > 1:
        axes.fill_between(rounds, *band.T, color=BLUE, alpha=0.25, linewidth=0)
    else:
        axes.vlines(rounds, *band.T, color=BLUE, alpha=0.5, linewidth=3)
    axes.set(ylabel="effective parents", ylim=(1, J * 1.03))
    number = f"{mean[-1]:.2f}" if round(mean[-1], 2) < J else f"{mean[-1]:.3f}"
    last(axes, rounds, mean, number, below=mean[-1] > 1 + (J - 1) / 4,
         alone=len(rounds) == 1)  # fmt: skip
    axes.spines["right"].set_visible(True)
    right = axes.secondary_yaxis("right", functions=(np.log, np.exp))
    right.set_ylabel("entropy, nats")
    whole = [0]
    for nats in range(1, int(np.log(J)) + 1):
        if np.exp(nats) - np.exp(whole[-1]) > LINE * (J - 1):
            whole.append(nats)
    right.set_ticks(whole if np.log(J) > 2 else np.linspace(0, np.log(J), 3).round(2))
    iteration_ticks(axes, rounds)


def votes(axes, rounds):
    """Labels of the agreement of votes and pose."""
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0), high + 0.1 * (high - min(low, 0)))
    axes.set(ylabel="mean cosine", title="vote agreement")
    iteration_ticks(axes, rounds)


def last(axes, x, y, text, *, below, alone=False):
    """A number at the last point of a curve; left of it where the curve comes from that side.

    Right of a point that is `alone`, as of a routing of one pass.
    """
    if alone:
        axes.annotate(text, (x[-1], y[-1]), textcoords="offset points", xytext=(5, 0), ha="left",
                      va="center", fontsize=6.5)  # fmt: skip
        return
    rise = np.diff(y[-2:]).sum() * (1 if below else -1)
    beside = rise > STEEP * np.ptp(axes.get_ylim())
    axes.annotate(
        text, (x[-1], y[-1]), textcoords="offset points",
        xytext=(-6, 0) if beside else (3, -4 if below else 4), ha="right",
        va="center" if beside else "top" if below else "bottom", fontsize=6.5,
    )  # fmt: skip


def iteration_ticks(axes, rounds):
    """Whole iterations only; a routing of one pass has none."""
    room = max(0.3, 0.06 * (rounds[-1] - rounds[0]))  # of the last number
    axes.set_xlim(rounds[0] - room, rounds[-1] + room)
    if len(rounds) == 1:
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
