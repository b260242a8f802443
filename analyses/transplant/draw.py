"""Drawings for `transplant`: two images with each other's couplings, and shares of pairs."""

from __future__ import annotations

from matplotlib.figure import Figure

from capsviz.results import COLOURS
from capsviz.results.maps import coupling_scale, coupling_ticks, halfrange
from capsviz.results.panels import percent, points, show
from capsviz.statistics.words import strongest

OWN, PARTNER, NEITHER = COLOURS[0], COLOURS[1], "#7F7F7F"
COUPLING = "cividis"
WIDE = 5.0  # inches: a figure from here on has a page's layout, below it a column's
TITLES = ("own\ncouplings", "the other's\ncouplings", "the other's,\nshuffled", "even\ncouplings")


def pair(result, width):
    """For each image's votes: the image, its couplings, its readings under four couplings."""
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
    panels, scale = [], _scale(result, (first, other))
    for k in range(2):
        name = result.classes[result.read[k]]
        axes = figure.add_subplot(grid[k, 0])
        show(axes, result.images[k], "\nimage" if k == 0 else None)
        axes.set_ylabel(f"the {name}", fontsize=6.5)
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
                axes.set_ylabel(f"votes of\nthe {name}", fontsize=6.5)
    if maps:
        bar = figure.colorbar(drawn, ax=panels, location="bottom", aspect=25, pad=0.02)
        ticks = coupling_ticks(scale, panels, room=0.2)
        if len(ticks) > 1 and ticks[0] > scale.vmin:
            bar.ax.set_xlim(ticks[0], scale.vmax)
        bar.set_ticks(ticks, labels=[f"{tick:.3f}" for tick in ticks])
        bar.set_label("own coupling by place, mean over types", fontsize=6.5)
        bar.ax.tick_params(labelsize=6)
        bar.outline.set_visible(False)
    return figure


def _reading(axes, result, k, condition):
    """What votes are read as under some couplings: the decoded image, or else the activations."""
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
    """Mean couplings to each class, where children have no places."""
    values = result.means[k] - result.even
    colours = [NEITHER] * len(values)
    colours[int(result.read[k])], colours[int(result.read[1 - k])] = OWN, PARTNER
    axes.bar(range(len(values)), values, color=colours)
    span = 1.15 * _halfrange(result, range(len(values)))
    axes.set(ylim=(-span, span), xticks=[])
    axes.tick_params(axis="y", labelsize=6)
    if k == 0:
        axes.set_title("own couplings to each class,\nmean less even (no places)", fontsize=6.5)


def _scale(result, classes):
    return coupling_scale(_couplings(result, classes), result.even)


def _halfrange(result, classes) -> float:
    return halfrange(_couplings(result, classes) - result.even)


def _couplings(result, classes):
    values = result.means if result.maps is None else result.maps
    return values[:, list(classes)]


def shares(result, width):
    """For each condition the share of pairs by what they are read as; activations beside it."""
    wide = width >= WIDE
    K, more = len(result.conditions), result.parts is not None
    rows = [0.26 * K] * (1 if wide else 2) + ([1.5] if more else [])
    figure = Figure(figsize=(width, sum(rows) + (0.75 if wide else 1.0) + 0.3 * more))
    columns = 2 if wide else 1
    grid = figure.add_gridspec(len(rows), columns, height_ratios=rows)
    left = figure.add_subplot(grid[0, 0])
    right = figure.add_subplot(grid[0, 1] if wide else grid[1, 0], sharey=left)
    if more:
        _parts([figure.add_subplot(grid[-1, k]) for k in range(columns)], result)
    readings = (
        (result.as_own, OWN, "o", "their own class"),
        (result.as_partner, PARTNER, "s", "the unlike image's class"),
        (result.as_neither, NEITHER, "^", "a third class"),
    )
    for row, (estimate, colour, marker, name) in enumerate(readings):
        points(left, estimate, colour, marker, name, (row - 1) * 0.2)
    activations = ((result.own_activation, OWN, "o"), (result.partner_activation, PARTNER, "s"))
    for row, (estimate, colour, marker) in enumerate(activations):
        points(right, estimate, colour, marker, None, (row - 0.5) * 0.2)
    sd = result.coupling_sd.value
    names = [f"{n}\nsd {value:.4f}" for n, value in zip(result.conditions, sd, strict=True)]
    for axes in (left, right):
        axes.set_yticks(range(K), names, fontsize=6)
        axes.set_ylim(K - 0.5, -0.5)
        axes.set_xlim(-0.03, 1.03)
        axes.grid(axis="x", color="#DDDDDD", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0, labelleft=axes is left or not wide)
    left.set(xlabel="pairs", ylabel="couplings" if wide else None)
    percent(left.xaxis)
    right.set_xlabel("mean activation of that class")
    lines = [line for line in left.get_lines() if not line.get_label().startswith("_")]
    title = f"{result.n:,} pairs of {result.dataset} images; sd: of couplings about even ones; "
    figure.legend(
        handles=lines, loc="outside upper center", ncols=3 if wide else 1, fontsize=6.5,
        title=f"{title}{'' if wide else chr(10)}bars: 95 % intervals. Pairs are read as",
        title_fontsize=6.5,
    )  # fmt: skip
    return figure


def _parts(panels, result):
    """What pairs are read as against the share of children whose couplings are exchanged."""
    estimates = (result.part_as_partner, result.part_as_own)
    names = ("the unlike image's class", "their own class")
    for axes, estimate, name in zip(panels, estimates, names, strict=False):
        for k, part in enumerate(result.parts):
            colour, one = COLOURS[2 + k], estimate[k]
            axes.plot(result.shares, one.value, f"{'sD^'[k]}-", color=colour, label=part)
            axes.fill_between(result.shares, *one.ci95.T, color=colour, alpha=0.2, linewidth=0)
        axes.set(xlim=(0, 1), ylim=(-0.03, 1.03), xlabel="couplings exchanged")
        axes.set_ylabel(f"read as\n{name}", fontsize=6.5)
        percent(axes.xaxis)
        percent(axes.yaxis)
    panels[0].legend(loc="upper left", fontsize=6, title=f"{estimates[0].n} pairs")
