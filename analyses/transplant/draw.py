"""Panels of `transplant`: two images, pairs, single parts, single iterations, and doses."""

from functools import partial

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.ticker import MaxNLocator

from capsviz.analysis import Panel
from capsviz.results import COLOURS, maps, panels
from capsviz.statistics.words import strongest

OWN, PARTNER, NEITHER = COLOURS[0], COLOURS[1], "#7F7F7F"
CLASSES = ((PARTNER, "s", "donor's class"), (OWN, "o", "recipient's class"))
LOOKS = ((NEITHER, "^"), (COLOURS[2], "D"), (PARTNER, "s"))  # colour, marker of `Rounds.donors`
WHAT = {
    "couplings": "their couplings are a donor's, and their votes are kept",
    "children": "they are a donor's, and routing runs by itself",
    "poses": "the directions of their poses are a donor's, and their lengths are kept",
}
PLURALS = {"types": "capsule types", "children": "groups of capsules"}
CELL = 0.62  # largest side of an image, in inches
TITLES = (
    "own\ncouplings",
    "the donor's\ncouplings",
    "the donor's,\nshuffled",
    "uniform\ncouplings",
)


def _tall_pair(result, width: float) -> float:
    return 2 * (min(CELL, width / 4) + 0.12) + 0.5


def _couplings(axes, result):
    """Draw two images and their couplings to the two classes, averaged over capsule types."""
    grid = panels.split(axes, 2, 3, wspace=0.01, hspace=0.01)
    columns = [int(k) for k in result.predicted]
    for k, row in enumerate(grid):
        panels.show(row[0], result.images[k], "\nimage" if k == 0 else None)
        name = panels.wrapped(f"image of {result.classes[result.predicted[k]]}", CELL)
        row[0].set_ylabel(name, fontsize=6.5)
        if result.maps is None:
            row[2].remove()
            row[1].set_subplotspec(axes.get_subplotspec().subgridspec(2, 3)[k, 1:])
            _bars(row[1], result, k)
            continue
        scale = maps.coupling_scale(result.maps[:, columns], result.even)
        for one, j in zip(row[1:], columns, strict=True):
            drawn = one.imshow(result.maps[k, j], cmap=maps.COUPLING, norm=scale)
            one.set(xticks=[], yticks=[])
            if k == 0:
                one.set_title(f"couplings\nto {result.classes[j]}", fontsize=6.5)
    if result.maps is not None:
        label = "own coupling, mean over types"
        place = {"location": "bottom", "aspect": 25, "pad": 0.02}
        maps.coupling_bar(drawn, grid[:, 1:], result.even, label, **place)


def _classified(axes, result):
    """Draw predicted class and reconstruction of their votes, with the couplings named above.

    By the reconstruction, or else the activations.
    """
    for k, row in enumerate(panels.split(axes, 2, 4, wspace=0.01, hspace=0.01)):
        roles = {int(result.predicted[1 - k]): PARTNER, int(result.predicted[k]): OWN}
        for condition, one in enumerate(row):
            values = result.activations[k, condition]
            predicted = int(values.argmax())
            if result.decoded is not None:
                panels.show(one, result.decoded[k, condition])
            else:
                one.bar(range(len(values)), values, color=NEITHER)
                one.set(xticks=[], yticks=[], ylim=(0, 1))
            text = f"{strongest(result.classes, values)}: {values[predicted]:.2f}"
            one.set_xlabel(text, color=roles.get(predicted, "black"), fontsize=6.5, labelpad=2)
            if k == 0:
                one.set_title(TITLES[condition], fontsize=6.5)
        row[0].set_ylabel(f"votes of\n{result.classes[result.predicted[k]]}", fontsize=6.5)


def _bars(axes, result, k):
    """Draw mean couplings to each class, where capsules have no positions."""
    values = result.means[k] - result.even
    colours = [NEITHER] * len(values)
    colours[int(result.predicted[k])], colours[int(result.predicted[1 - k])] = OWN, PARTNER
    axes.bar(range(len(values)), values, color=colours)
    span = 1.15 * maps.halfrange(result.means - result.even)
    axes.set(ylim=(-span, span), xticks=[])
    axes.tick_params(axis="y", labelsize=6)
    if k == 0:
        axes.set_title("own couplings to each class,\nmean minus uniform", fontsize=6.5)


def _by_condition(axes, result, label: str, estimates):
    """Draw the estimates of both classes, and of neither, with one row per condition."""
    panels.rows_from(axes, result.conditions, -0.03, label)
    for edge in np.arange(0.5, len(result.conditions) - 1):
        axes.axhline(edge, color="#DDDDDD", linewidth=0.5)
    names = ("the recipient's class", "the other-class donor's", "neither class")
    panels.dots(axes, zip(estimates, (OWN, PARTNER, NEITHER), "os^", names, strict=False), 0.2)


def _pairs(axes, result):
    """Draw predicted classes of images whose couplings are replaced, while their votes are kept."""
    shares = (result.as_own, result.as_partner, result.as_neither)
    _by_condition(axes, result, "pairs, by predicted class", shares)
    panels.percent(axes.xaxis)
    texts = [f"s.d. {value:.4f}" for value in result.coupling_sd.value]
    panels.beside(axes, "right", range(len(texts)), texts, fontsize=6)


def _activations(axes, result):
    """Draw activations of the recipient's and of the donor's class with replaced couplings."""
    means = (result.own_activation, result.partner_activation)
    _by_condition(axes, result, "mean activation of that class", means)


def _positions(axes, result):
    """Draw the change of both activations by position, and that of random capsules."""
    _, rows, columns = result.grid
    changes = (result.partner_change["positions"], result.own_change["positions"])
    scale = CenteredNorm(0, max(maps.halfrange(one.value[1:]) for one in changes))
    grid = panels.split(axes, 1, 2)[0]
    for one, change, (colour, _, name) in zip(grid, changes, CLASSES, strict=True):
        values = change.value[1:].reshape(rows, columns)
        drawn = one.imshow(values, cmap=maps.SIGNED, norm=scale)
        one.set(xticks=[], yticks=[])
        one.spines[:].set_visible(False)
        one.set_title(name.replace("'s ", "'s\n"), fontsize=6.5, color=colour)
        text = f"at random\n{float(change.value[0]):+.4f}".replace("-", "\N{MINUS SIGN}")
        one.set_xlabel(text, fontsize=6.5)
    bar = maps.colour_bar(drawn, grid, "change by position", aspect=10, shrink=0.9)
    bar.locator = MaxNLocator(3, symmetric=True)


def _changes(kind: str, axes, result):
    """Draw the change of both activations by part, sorted, and that of random capsules."""
    order = result.partner_change[kind].value[1:].argsort()
    x = np.arange(len(order))
    for change, (colour, marker, name) in zip(
        (result.partner_change[kind], result.own_change[kind]), CLASSES, strict=True
    ):
        panels.level(axes, change[0], colour, f"{name}, at random")
        panels.upright(axes, x, change[1:][order], marker, color=colour, markersize=2.5, label=name)
    axes.axhline(0, color="black", linewidth=0.5)
    axes.set(xlabel=f"{PLURALS[kind]}, sorted", ylabel="change of activation")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _shares(axes, result):
    """Draw predictions by the share that is exchanged."""
    for k, (kind, share) in enumerate(result.some_partner.items()):
        colour, name = COLOURS[2 + k], kind.split()[-1]
        shares = result.shares[kind]
        if kind.startswith("single"):  # the control for whole types or positions
            colour, name = NEITHER, f"{name} at random"
        panels.band(axes, shares, share, f"{'D^v'[k]}-", color=colour, label=f"exchanged: {name}")
    axes.set(xlim=(0, 1.03), ylim=(-0.03, 1.03), xlabel=f"{result.of} exchanged")
    axes.set_ylabel("classified as donor")
    panels.percent(axes.xaxis)
    panels.percent(axes.yaxis)


def _iterations(mode: int, axes, result):
    """Draw predictions by the iteration that has other couplings."""
    mode, words = list(zip(result.own, ("that one only", "that one and later"), strict=True))[mode]
    for k, (name, (colour, marker)) in enumerate(zip(result.donors, LOOKS, strict=True)):
        for shares, line in ((result.own, "-"), (result.partner, "--")):
            one = shares[mode][k]
            x = np.arange(1, len(one) + 1) + 0.06 * (k - 1)
            label = f"couplings: {name}" if line == "-" else None
            panels.upright(axes, x, one, marker + line, color=colour, markersize=3.5, label=label)
    axes.set(ylim=(-0.03, 1.03), xlabel=f"iteration with other couplings: {words}")
    axes.set_ylabel("pairs", fontsize=6.5)
    axes.set_xticks(range(1, len(one) + 1))
    panels.percent(axes.yaxis)


def _doses(axes, result):
    """Draw the share of images classified as the donor's class, by the factor (dose) of the
    deviation of its couplings, or of a control's, from uniform. Circles on the line of 50 % mark
    where half of the pairs follow.

    Doses of 0 and below stand to the left, apart from the line, with bars.
    """
    values, above = result.doses, result.doses > 0
    aside = int((~above).sum())
    x = np.log2(np.where(above, values, 1))
    x[~above] = x[above].min() - 0.6 - np.arange(aside, 0, -1)
    axes.axhline(0.5, color="#BBBBBB", linewidth=0.7, zorder=0)
    if aside:
        axes.axvline(x[above].min() - 0.8, color="#DDDDDD", linewidth=0.7, zorder=0)
    for k, name in enumerate(result.conditions):
        share, style = result.follow[k], panels.look(k)
        panels.band(axes, x[above], share[above], **style, label=name)
        moved = x[~above] + 0.12 * (k - (len(result.conditions) - 1) / 2)
        panels.upright(axes, moved, share[~above], style.pop("marker"), **style)
        half = float(result.half.value[k])
        if np.isfinite(half):
            ring = {"markerfacecolor": "white", "markersize": 6, "marker": "o", "zorder": 3}
            axes.plot(np.log2(half), 0.5, color=style["color"], **ring)
    names = [f"{value:g}".replace("-", "\N{MINUS SIGN}") for value in values]
    axes.set_xticks(x, names)
    axes.set(ylim=(-0.03, 1.03), xlabel="dose: factor of the deviation from uniform couplings")
    axes.set_ylabel("classified as the donor")
    panels.percent(axes.yaxis)


def _one_part(kind: str, result) -> str:
    """Return the caption of the changes by one kind of part."""
    return (
        "change of the activations of the donor's and the recipient's class if one part of the "
        f"lower-level capsules is exchanged ({WHAT[result.of]}), by |{kind}\n"
        "dashed lines and numbers at random: the change by as many random capsules"
    )


PANELS = {
    "couplings": Panel(_couplings, _tall_pair, 0.43),
    "classified": Panel(_classified, _tall_pair, 0.57),
}  # fmt: skip
MANY = {
    "pairs": Panel(_pairs, panels.by_rows("conditions", 0.26, 0.4), 0.55, marks="bars"),
    "activations": Panel(
        _activations, panels.by_rows("conditions", 0.26, 0.4), 0.45, marks="bars"
    ),
}  # fmt: skip
PARTS = {
    "positions": Panel(
        _positions, 1.6, 0.38, shown="kinds:positions", caption=partial(_one_part, "position")
    ),
    "types": Panel(
        partial(_changes, "types"), 1.5, 0.3, 1 / 2, shown="kinds:types", marks="bars",
        caption=partial(_one_part, "capsule type"),
    ),
    "groups": Panel(
        partial(_changes, "children"), 1.5, 0.3, 1 / 2, shown="kinds:children", marks="bars",
        caption=partial(_one_part, "group of capsules"),
    ),
    "shares": Panel(_shares, 1.5, 0.3, marks="bands"),
}  # fmt: skip
ITERATIONS = {
    name: Panel(
        partial(_iterations, mode), 1.7, marks="bars",
        caption="predicted classes, if the last iteration's couplings of another image, or of "
        f"the image itself, are used |{when}\nthe other iterations route the votes as usual",
    )
    for mode, name, when in ((0, "alone", "in one iteration"), (1, "onwards", "from one on"))
}  # fmt: skip
DOSES = {
    "doses": Panel(_doses, 2.3, 1, marks="bands and bars"),
}  # fmt: skip
