"""Panels of `faithfulness`: one image's maps, curves, and measures over many images."""

import textwrap
from functools import partial
from itertools import cycle

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.ticker import MaxNLocator, PercentFormatter

from capsviz.analysis import Panel
from capsviz.results import COLOURS
from capsviz.results.maps import GREY
from capsviz.results.panels import band, dots, name_rows, room, rule, show, split, wrapped

HIGHER = "\n(higher is better)"
TARGETS = {"predicted": "the predicted class", "true": "the true class"}
WHAT = {"positions": "positions", "capsules": "primary capsules", "pixels": "pixels"}
CONTROLS = ("random order", "brightness", "|u| map", "constant map", "random map",
            "routing map, permuted", "another image's map")  # fmt: skip
WIDE = 6.0  # inches: wider figures show the maps in one line, others in two
GREYS = [(GREY, "-"), ("black", "--"), (GREY, ":"), ("black", "-."), (GREY, "--"), ("black", ":")]


def _styles(names) -> dict[str, tuple[str, str]]:
    """Return colour and line style of each map, in order; controls are grey and black."""
    greys, colours = cycle(GREYS), cycle(zip(COLOURS, cycle(("-", "--")), strict=False))
    return {name: next(greys if name in CONTROLS else colours) for name in names}


def _columns(result, width: float) -> tuple[int, int]:
    """Return columns and lines of the image and its maps."""
    columns = len(result.names) + 1 if width > WIDE else 6
    return columns, min(2, -(-(len(result.names) + 1) // columns))


def _omits(result, width: float) -> list[str]:
    columns, lines = _columns(result, width)
    return result.names[: max(0, len(result.names) + 1 - lines * columns)]


def _maps(axes, result):
    """Draw the image and its maps, and below each that of a network with random weights."""
    columns, lines = _columns(result, room(axes))
    grid = split(axes, 2 * lines, columns, wspace=0.01, hspace=0.01)
    for one in grid.flat:
        one.set_axis_off()
    show(grid[0, 0], result.image, "\nimage")
    grid[0, 0].set_axis_on()
    true = "" if result.label in (None, result.target) else f"\n(a {result.classes[result.label]})"
    grid[0, 0].set_xlabel(f"class\n{result.classes[result.target]}{true}", fontsize=6, labelpad=2)
    out = len(_omits(result, room(axes)))  # controls come first
    for cell, k in enumerate(range(out, len(result.names)), 1):
        block, column = divmod(cell, columns)
        upper, lower = grid[2 * block : 2 * block + 2, column]
        name = result.names[k]
        upper.set_title(textwrap.fill(name, 11), fontsize=6, pad=2)
        signed = result.maps[k].min() < 0 or result.random_maps[k].min() < 0  # same scale for both
        _map(upper, result.maps[k], signed)
        upper.set_xlabel(
            f"del {result.deletion_area[k]:.2f}\nins {result.insertion_area[k]:.2f}\n"
            f"infid {result.infidelity[k]:.2f}",
            fontsize=6, labelpad=2,
        )  # fmt: skip
        if np.isfinite(result.correlation[k]):
            _map(lower, result.random_maps[k], signed)
            varies = np.ptp(result.random_maps[k]) > 0  # else the correlation is undefined
            text = f"ρ {result.correlation[k]:.2f}" if varies else "ρ –"
            lower.set_xlabel(text, fontsize=6, labelpad=2)


def _tall_maps(result, width: float) -> float:
    columns, lines = _columns(result, width)
    _, tall, wide = result.image.shape
    cell = min((width - 0.1) / columns - 0.06, 1.0)
    return lines * (2 * cell * max(1, tall / wide) + 0.95)


def _map(axes, values, signed):
    """Draw a map on its own scale, centred on zero if `signed`; cross out a constant map."""
    axes.set_axis_on()
    if not np.ptp(values):
        corners = {"transform": axes.transAxes, "color": GREY, "linewidth": 0.5}
        axes.plot([0, 1], [[0, 1], [1, 0]], **corners)
    scale = CenteredNorm(0, np.abs(values).max() or 1.0) if signed else None
    axes.imshow(values, cmap="RdBu_r" if signed else "cividis", norm=scale)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, linewidth=0.3, color=GREY)


def _curve(part: int, field: str, label: str, axes, result):
    """Draw the score when units are removed, or shown alone, in the order of each map."""
    estimate = getattr(result, field, None)
    for m, (name, (colour, line)) in enumerate(_styles(_names(result)).items()):
        look = {"color": colour, "linewidth": 1, "label": name}
        if estimate is not None:
            band(axes, result.shares, estimate[part, m], line, **look)
        else:  # of one image
            axes.plot(result.shares, (result.deletion, result.insertion)[part][m], line, **look)
    what = WHAT[getattr(result, "over", "pixels")]
    axes.set(xlim=(-0.02, 1.02), ylim=(0, 1.02), xticks=[0, 0.25, 0.5, 0.75, 1], ylabel=label)
    axes.set_xlabel(f"% of {what} {('removed', 'shown')[part]}")
    axes.set_title(("deletion: lower is better", "insertion: higher is better")[part])
    axes.xaxis.set_major_formatter(PercentFormatter(1, 0, None))


def _names(result) -> list[str]:
    """Return the names of maps, without their evenly divided versions."""
    return [name for name in result.names if not name.endswith(", evenly")]


def _one(field: str, title: str, label: str, axes, result):
    """Draw a measure of each map."""
    _points(axes, result, [getattr(result, field)], title, label)


def _sanity(axes, result):
    """Draw rank correlation of a map with itself after layers get random weights."""
    text = f"rank correlation; blue: {result.stages[0]} random; orange: down to {result.stages[-1]}"
    levels = [result.sanity[:, 0], result.sanity[:, -1]]
    title, text = "sanity: random weights\n(near 0 is better)", wrapped(text, 1.7, 6)
    _points(axes, result, levels, title, text)
    axes.set_xlim(-1.03, 1.03)


def _area(field: str, name: str, axes, result):
    """Draw the area under insertion minus deletion, by the order of each map."""
    one, M = getattr(result, field), len(_names(result))
    text = "insertion minus deletion"
    text += "\nblue: by brightness, orange: evenly" * (len(one) > M)
    pairs = [one[k : k + M] for k in range(0, len(one), M)]
    _points(axes, result, pairs, name + HIGHER, text)


def _apart(axes, result):
    """Draw AUROC of a map for the object's positions."""
    text = f"AUROC, {result.apart.n:,} images"
    _points(axes, result, [result.apart], "object's positions" + HIGHER, text, 0.5)


def _points(axes, result, several, title, label, reference=0.0):
    """Draw one estimate for each map, or two side by side, and a line at the reference value."""
    names = _names(result)
    name_rows(axes, names, fontsize=6)
    rule(axes)
    dots(axes, zip(several, COLOURS, "os", strict=False), 0.28)
    axes.axvline(reference, color=GREY, linewidth=0.5)
    axes.set_title(title)
    axes.set_xlabel(label, fontsize=6)
    axes.xaxis.set_major_locator(MaxNLocator(4))


def _tall(result, width: float) -> float:
    return 0.12 * len(_names(result)) + 0.75


def _shown(result) -> str:
    """Return a caption line on the quantity of the routing map, unless it is c (û·v̂)."""
    shows, words = ((result.quantity or {}).get(name) for name in ("plain", "words"))
    return f"\nthe routing map shows {shows}, which adds up to {words}" if shows else ""


def _curves(
    field: str, label: str, of, name: str = "", tall: float = 1.7, marks: str = "bands"
) -> dict[str, Panel]:
    """Return the panels of deletion and insertion; `of(result)` names the plotted quantity."""

    def caption(done: str, result) -> str:
        what, controls = WHAT[getattr(result, "over", "pixels")], "grey and black: controls"
        more = controls if marks else "one image is no evidence"
        return f"as {what} are {done} in the order of a map, |{of(result)}\n{more}"

    return {
        f"{name}{what}": Panel(
            partial(_curve, part, field, label), tall, figure="curves", marks=marks,
            caption=partial(caption, ("removed", "shown alone")[part]),
        )
        for part, what in enumerate(("deletion", "insertion"))
    }  # fmt: skip


PANELS = {
    "maps": Panel(
        _maps, _tall_maps, 1, omits=_omits,
        caption=lambda result: f"maps of one image for class {result.classes[result.target]}, each "
        "on its own colour scale, and below them maps of random weights\nnumbers: areas under "
        f"deletion and insertion, infidelity, and rank correlation of both{_shown(result)}",
    ),
    **_curves(
        "curves", "score of the class", lambda r: f"score of class {r.classes[r.target]}", marks=""
    ),
}  # fmt: skip
MANY = {
    "gap": Panel(
        partial(_one, "gap", f"insertion minus deletion{HIGHER}", "difference of areas"),
        _tall, 0.4, marks="bars",
        caption=lambda result: "area under insertion minus deletion of the score of "
        f"{TARGETS[result.target]}{_shown(result)}",
    ),
    "infidelity": Panel(
        partial(_one, "infidelity", "infidelity\n(lower is better)", "share of losses unexplained"),
        _tall, 0.3, marks="bars",
        caption="infidelity, the share of squared losses by black squares that a map leaves "
        "unexplained",
    ),
    "sanity": Panel(_sanity, _tall, 0.3, marks="bars"),
    **_curves("curves", "score of the class", lambda r: f"mean score of {TARGETS[r.target]}"),
}  # fmt: skip
AREA = "area under insertion minus deletion, if {over} are removed in the order of a map, of |"
UNITS = {
    "activation": Panel(
        partial(_area, "gap", "activation"), _tall, 0.4, marks="bars",
        caption=f"{AREA}the true class's activation",
    ),
    "accuracy": Panel(
        partial(_area, "accuracy_gap", "accuracy"), _tall, 0.3, marks="bars",
        caption=f"{AREA}accuracy",
    ),
    "positions": Panel(_apart, _tall, 0.3, shown="apart", marks="bars"),
    **_curves(
        "curves", "activation", lambda r: "mean activation of the true class", "activation-", 1.45
    ),
    **_curves("accuracy", "accuracy", lambda r: "accuracy", "accuracy-", 1.45),
}  # fmt: skip
