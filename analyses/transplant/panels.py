"""Drawings for `transplant`: what single parts, and single iterations, do."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from capsviz.analyses.transplant.draw import NEITHER, OWN, PARTNER, WIDE
from capsviz.results import COLOURS
from capsviz.results.maps import SIGNED, halfrange
from capsviz.results.panels import percent

IN_A_ROW = 6.5  # inches: all panels of parts side by side
CLASSES = ((PARTNER, "s", "unlike image's class"), (OWN, "o", "own class"))
DONORS = ((NEITHER, "^"), (COLOURS[2], "D"), (PARTNER, "s"))  # in the order of `Rounds.donors`


def parts(result, width):
    """Places as maps, types as points, and what is read of shares of them."""
    wide, mapped = width >= IN_A_ROW, "places" in result.kinds
    rest = [kind for kind in result.kinds if kind != "places"]
    if wide:
        figure = Figure(figsize=(width, 2.35))
        ratios = ([1.0, 1.0] if mapped else []) + [1.5] * (1 + len(rest))
        grid = figure.add_gridspec(1, len(ratios), width_ratios=ratios)
        spots = [grid[0, k] for k in range(len(ratios))]
    else:
        rows = [1.3] * (mapped + len(rest) + 1)
        figure = Figure(figsize=(width, sum(rows) + 0.75))
        grid = figure.add_gridspec(len(rows), 2, height_ratios=rows)
        spots = [grid[0, 0], grid[0, 1]] if mapped else []
        spots += [grid[mapped + k, :] for k in range(1 + len(rest))]
    axes = [figure.add_subplot(spot) for spot in spots]
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
        handles, labels, loc="outside upper center", ncols=4 if wide else 2, fontsize=6.5,
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
        one.set_title(f"change by place:\n{name}", fontsize=6.5, color=colour)
        text = f"at random\n{float(change.value[0]):+.4f}".replace("-", "\N{MINUS SIGN}")
        one.set_xlabel(text, fontsize=6.5)
    bar = figure.colorbar(drawn, ax=list(axes), aspect=12 if wide else 8, pad=0.02, shrink=0.8)
    bar.locator = MaxNLocator(3, symmetric=True)
    bar.ax.tick_params(labelsize=6)
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
    axes.set(xlabel=f"{kind}, sorted", ylabel="change of activation")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _shares(axes, result):
    """What is read against the share of the children that are exchanged."""
    for k, (kind, share) in enumerate(result.some_partner.items()):
        colour, name = COLOURS[2 + k], kind.split()[-1]
        shares = result.shares[kind]
        if kind.startswith("single"):  # the control of whole ones
            colour, name = NEITHER, f"{name} at random"
        axes.plot(shares, share.value, f"{'D^v'[k]}-", color=colour, markersize=3, label=name)
        axes.fill_between(shares, share.low, share.high, color=colour, alpha=0.2, linewidth=0)
    axes.set(xlim=(0, 1.03), ylim=(-0.03, 1.03), xlabel=f"{result.of} exchanged")
    axes.set_ylabel("read as the unlike class", fontsize=6.5)
    percent(axes.xaxis)
    percent(axes.yaxis)
    axes.legend(loc="best", fontsize=6)


def rounds(result, width):
    """Read as what, by the iteration that has other couplings: in it alone, and from it on."""
    wide = width >= WIDE
    figure = Figure(figsize=(width, 2.3 if wide else 4.3))
    panels = figure.subplots(*((1, 2) if wide else (2, 1)), sharey=True)
    for axes, mode, words in zip(panels, result.own, ("in it alone", "from it on"), strict=True):
        for k, (colour, marker) in enumerate(DONORS):
            for shares, line in ((result.own, "-"), (result.partner, "--")):
                one = shares[mode][k]
                x = np.arange(1, len(one) + 1) + 0.06 * (k - 1)
                axes.vlines(x, one.low, one.high, color=colour, linewidth=0.8)
                label = f"couplings: {result.donors[k]}" if line == "-" else None
                axes.plot(
                    x, one.value, f"{marker}{line}", color=colour, markersize=3.5, label=label
                )
        axes.set(ylim=(-0.03, 1.03), xlabel=f"iteration with other couplings, {words}")
        axes.set_ylabel("pairs read as that class", fontsize=6.5)
        axes.set_xticks(range(1, len(one) + 1))
        percent(axes.yaxis)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside upper center", fontsize=6.5,
        ncols=3 if wide else 1, title_fontsize=6.5,
        title=f"{result.n:,} pairs of {result.dataset} images; solid: own class, "
        "dashed: unlike image's",
    )  # fmt: skip
    return figure
