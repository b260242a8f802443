"""Drawings for `transplant`: two images, pairs, single parts, single iterations, and doses."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from capsviz.results import COLOURS
from capsviz.results.common_panels import band, name_rows
from capsviz.results.maps import SIGNED, coupling_scale, coupling_ticks, halfrange
from capsviz.results.panels import look, percent, points, show
from capsviz.statistics.words import strongest

OWN, PARTNER, NEITHER = COLOURS[0], COLOURS[1], "#7F7F7F"
COUPLING = "cividis"
CLASSES = ((PARTNER, "s", "donor's class"), (OWN, "o", "recipient's class"))
DONORS = (  # in the order of `Rounds.donors`
    (NEITHER, "^", "own, given back"),
    (COLOURS[2], "D", "same-class donor"),
    (PARTNER, "s", "other-class donor"),
)
PLURALS = {"types": "capsule types", "children": "groups of capsules"}
IN_A_ROW = 6.5  # inches: all panels of parts side by side
WIDE = 5.0  # inches: a figure from here on has a page's layout, below it a column's
TITLES = (
    "own\ncouplings",
    "the donor's\ncouplings",
    "the donor's,\nshuffled",
    "uniform\ncouplings",
)


def pair(result, width):
    """Draw each image, its couplings, and its predictions under four couplings."""
    wide = width >= WIDE
    first, other = (int(k) for k in result.read)
    maps = result.maps is not None
    columns = 7.2 if wide else 4
    cell = (width - 0.45) / columns
    heights = [cell + 0.12] * (2 if wide else 4)
    extra = (0.35 if wide else 0.7) + 0.45 * maps
    figure = Figure(figsize=(width, sum(heights) + extra))
    ratios = {"width_ratios": [1, 1, 1, 0.2, 1, 1, 1, 1] if wide else [1, 1, 1, 1]}
    grid = figure.add_gridspec(len(heights), 8 if wide else 4, height_ratios=heights, **ratios)
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.01, hspace=0.01)
    panels = []
    scale = coupling_scale(result.maps[:, [first, other]], result.even) if maps else None
    for k in range(2):
        name = result.classes[result.read[k]]
        axes = figure.add_subplot(grid[k, 0])
        show(axes, result.images[k], "\nimage" if k == 0 else None)
        axes.set_ylabel(f"image of {name}", fontsize=6.5)
        if maps:
            for column, j in ((1, first), (2, other)):
                axes = figure.add_subplot(grid[k, column])
                drawn = axes.imshow(result.maps[k, j], cmap=COUPLING, norm=scale)
                panels.append(axes)
                axes.set(xticks=[], yticks=[])
                if k == 0:
                    axes.set_title(f"couplings\nto {result.classes[j]}", fontsize=6.5)
        else:
            _bars(figure.add_subplot(grid[k, 1:3]), result, k)
        for condition in range(4):
            place = grid[k, 4 + condition] if wide else grid[2 + k, condition]
            axes = figure.add_subplot(place)
            _reading(axes, result, k, condition)
            if condition == 0:
                axes.set_ylabel(f"votes of\n{name}", fontsize=6.5)
    if maps:
        bar = figure.colorbar(drawn, ax=panels, location="bottom", aspect=25, pad=0.02)
        ticks = coupling_ticks(scale, panels, room=0.2)
        if len(ticks) > 1 and ticks[0] > scale.vmin:
            bar.ax.set_xlim(ticks[0], scale.vmax)
        bar.set_ticks(ticks, labels=[f"{tick:.3f}" for tick in ticks])
        bar.set_label("own coupling by position, mean over types", fontsize=6.5)
        bar.outline.set_visible(False)
    return figure


def _reading(axes, result, k, condition):
    """Draw what votes are classified as: the reconstruction, or else the activations."""
    values = result.activations[k, condition]
    read = int(values.argmax())
    if result.decoded is not None:
        show(axes, result.decoded[k, condition])
    else:
        axes.bar(range(len(values)), values, color=NEITHER)
        axes.set(xticks=[], yticks=[], ylim=(0, 1))
    if k == 0:
        axes.set_title(TITLES[condition], fontsize=6.5)
    role = {int(result.read[k]): OWN, int(result.read[1 - k]): PARTNER}.get(read, "black")
    text = f"{strongest(result.classes, values)}: {values[read]:.2f}"
    axes.set_xlabel(text, color=role, fontsize=6.5, labelpad=2)


def _bars(axes, result, k):
    """Draw mean couplings to each class, where capsules have no positions."""
    values = result.means[k] - result.even
    colours = [NEITHER] * len(values)
    colours[int(result.read[k])], colours[int(result.read[1 - k])] = OWN, PARTNER
    axes.bar(range(len(values)), values, color=colours)
    span = 1.15 * halfrange(result.means - result.even)
    axes.set(ylim=(-span, span), xticks=[])
    axes.tick_params(axis="y", labelsize=6)
    if k == 0:
        axes.set_title("own couplings to each class,\nmean less uniform", fontsize=6.5)


def shares(result, width):
    """Draw the share of pairs by predicted class under each condition, and activations beside."""
    wide, K = width >= WIDE, len(result.conditions)
    figure = Figure(figsize=(width, 0.26 * K * (1 if wide else 2) + (0.75 if wide else 1.0)))
    left, right = figure.subplots(*((1, 2) if wide else (2, 1)), sharey=True)
    predictions = (
        (result.as_own, OWN, "o", "the recipient's"),
        (result.as_partner, PARTNER, "s", "that of the other-class donor"),
        (result.as_neither, NEITHER, "^", "neither"),
    )
    for row, (estimate, colour, marker, name) in enumerate(predictions):
        points(left, estimate, colour, marker, name, (row - 1) * 0.2)
    activations = ((result.own_activation, OWN, "o"), (result.partner_activation, PARTNER, "s"))
    for row, (estimate, colour, marker) in enumerate(activations):
        points(right, estimate, colour, marker, None, (row - 0.5) * 0.2)
    sd = result.coupling_sd.value
    names = [f"{name}\ns.d. {value:.4f}" for name, value in zip(result.names, sd, strict=True)]
    name_rows(left, names, -0.03, "pairs")
    name_rows(right, names, -0.03, "mean activation of that class")
    right.tick_params(labelleft=not wide)
    percent(left.xaxis)
    title = f"{result.n:,} pairs of {result.dataset} images; s.d.: of couplings about uniform; "
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside upper center", ncols=3 if wide else 1,
        title=f"{title}{'' if wide else chr(10)}bars: 95 % intervals. Predicted class:",
        title_fontsize=6.5,
    )  # fmt: skip
    return figure


def parts(result, width):
    """Draw positions as maps, types as points, and predictions by the share exchanged."""
    wide, mapped = width >= IN_A_ROW, "places" in result.kinds
    rest = [kind for kind in result.kinds if kind != "places"]
    names, maps = [*rest, "shares"], ["partner", "own"] * mapped
    if wide:
        figure, rows = Figure(figsize=(width, 2.35)), [[*maps, *names]]
        ratios = {"width_ratios": [1.0] * len(maps) + [1.5] * len(names)}
    else:
        rows = [maps] * mapped + [[name, name] for name in names]
        figure, ratios = Figure(figsize=(width, 1.3 * len(rows) + 0.75)), {}
    axes = list(figure.subplot_mosaic(rows, **ratios).values())
    if mapped:
        _maps(figure, axes[:2], result, wide)
    for one, kind in zip(axes[2 * mapped :], rest, strict=False):
        _changes(one, result, kind)
    _shares(axes[-1], result)
    handles, labels = axes[2 * mapped].get_legend_handles_labels()
    where = "" if result.layer is None else f" of layer {result.layer}"
    title = f"{result.n:,} pairs of {result.dataset} images: {result.of}{where} of one part "
    if not wide:
        title = title.replace(": ", ":\n")
    figure.legend(
        handles, labels, loc="outside upper center", ncols=4 if wide else 2,
        title=f"{title}exchanged; bars and bands: 95 %", title_fontsize=6.5,
    )  # fmt: skip
    return figure


def _maps(figure, axes, result, wide):
    """The change of both activations by place, on one scale, and that of the control."""
    _, rows, columns = result.grid
    changes = (result.partner_change["places"], result.own_change["places"])
    scale = CenteredNorm(0, max(halfrange(one.value[1:]) for one in changes))
    for one, change, (colour, _, name) in zip(axes, changes, CLASSES, strict=True):
        values = change.value[1:].reshape(rows, columns)
        drawn = one.imshow(values, cmap=SIGNED, norm=scale)
        one.set(xticks=[], yticks=[])
        one.spines[:].set_visible(False)
        one.set_title(f"change by position:\n{name}", fontsize=6.5, color=colour)
        text = f"at random\n{float(change.value[0]):+.4f}".replace("-", "\N{MINUS SIGN}")
        one.set_xlabel(text, fontsize=6.5)
    bar = figure.colorbar(drawn, ax=list(axes), aspect=12 if wide else 8, pad=0.02, shrink=0.8)
    bar.locator = MaxNLocator(3, symmetric=True)
    bar.outline.set_visible(False)


def _changes(axes, result, kind):
    """The change of both activations by part, sorted, with that of as many children at random."""
    order = result.partner_change[kind].value[1:].argsort()
    x = np.arange(len(order))
    for change, (colour, marker, name) in zip(
        (result.partner_change[kind], result.own_change[kind]), CLASSES, strict=True
    ):
        one, control = change[1:], change[0]
        axes.axhspan(
            float(control.low), float(control.high), color=colour, alpha=0.25, linewidth=0,
            label=f"{name}, at random",
        )  # fmt: skip
        axes.axhline(float(control.value), color=colour, linestyle="--", linewidth=0.7)
        axes.vlines(x, one.low[order], one.high[order], color=colour, linewidth=0.8)
        axes.plot(x, one.value[order], marker, color=colour, markersize=2.5, label=name)
    axes.axhline(0, color="black", linewidth=0.5)
    axes.set(xlabel=f"{PLURALS[kind]}, sorted", ylabel="change of activation")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _shares(axes, result):
    """Draw predictions against the share of the children that are exchanged."""
    for k, (kind, share) in enumerate(result.some_partner.items()):
        colour, name = COLOURS[2 + k], kind.split()[-1].replace("places", "positions")
        shares = result.shares[kind]
        if kind.startswith("single"):  # the control of whole ones
            colour, name = NEITHER, f"{name} at random"
        band(axes, shares, share, f"{'D^v'[k]}-", color=colour, label=name)
    axes.set(xlim=(0, 1.03), ylim=(-0.03, 1.03), xlabel=f"{result.of} exchanged")
    axes.set_ylabel("classified as donor")
    percent(axes.xaxis)
    percent(axes.yaxis)
    axes.legend(loc="best", fontsize=6)


def iterations(result, width):
    """Draw predictions by the iteration that has other couplings: in it alone, and from it on."""
    wide = width >= WIDE
    figure = Figure(figsize=(width, 2.3 if wide else 4.3))
    panels = figure.subplots(*((1, 2) if wide else (2, 1)), sharey=True)
    for axes, mode, words in zip(panels, result.own, ("in it alone", "from it on"), strict=True):
        for k, (colour, marker, name) in enumerate(DONORS):
            for shares, line in ((result.own, "-"), (result.partner, "--")):
                one = shares[mode][k]
                x = np.arange(1, len(one) + 1) + 0.06 * (k - 1)
                axes.vlines(x, one.low, one.high, color=colour, linewidth=0.8)
                label = f"couplings: {name}" if line == "-" else None
                axes.plot(
                    x, one.value, f"{marker}{line}", color=colour, markersize=3.5, label=label
                )
        axes.set(ylim=(-0.03, 1.03), xlabel=f"iteration with other couplings, {words}")
        axes.set_ylabel("pairs", fontsize=6.5)
        axes.set_xticks(range(1, len(one) + 1))
        percent(axes.yaxis)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside upper center",
        ncols=3 if wide else 1, title_fontsize=6.5,
        title=f"{result.n:,} pairs of {result.dataset} images, classified as\n"
        "recipient (solid) or other-class donor (dashed)",
    )  # fmt: skip
    return figure


def doses(result, width):
    """Draw the share of pairs that follow the donor against the dose, on a logarithmic axis.

    Doses of 0 and below stand to the left, apart from the line, with bars.
    """
    wide = width >= WIDE
    figure = Figure(figsize=(width, 2.9 if wide else 3.5))
    axes = figure.subplots()
    values, above = result.doses, result.doses > 0
    aside = int((~above).sum())
    x = np.log2(np.where(above, values, 1))
    x[~above] = x[above].min() - 0.6 - np.arange(aside, 0, -1)
    axes.axhline(0.5, color="#BBBBBB", linewidth=0.7, zorder=0)
    if aside:
        axes.axvline(x[above].min() - 0.8, color="#DDDDDD", linewidth=0.7, zorder=0)
    for k, name in enumerate(result.conditions):
        share, style = result.follow[k], look(k)
        band(axes, x[above], share[above], **style, label=name)
        moved = x[~above] + 0.12 * (k - (len(result.conditions) - 1) / 2)
        axes.vlines(moved, share.low[~above], share.high[~above], color=style["color"])
        axes.plot(moved, share.value[~above], linestyle="none", **style)
        half = float(result.half.value[k])
        if np.isfinite(half):
            ring = {"markerfacecolor": "white", "markersize": 6, "marker": "o", "zorder": 3}
            axes.plot(np.log2(half), 0.5, color=style["color"], **ring)
    names = [f"{value:g}".replace("-", "\N{MINUS SIGN}") for value in values]
    axes.set_xticks(x, names)
    axes.set(ylim=(-0.03, 1.03), xlabel="dose: factor of the deviation from uniform couplings")
    axes.set_ylabel("classified as the donor")
    percent(axes.yaxis)
    title = f"{result.n:,} pairs of {result.dataset} images; scaled deviation of the couplings:"
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside upper center",
        ncols=len(result.conditions) if wide else 2, title=title, title_fontsize=6.5,
    )  # fmt: skip
    return figure
