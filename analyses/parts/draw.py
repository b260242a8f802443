"""Panels of `parts`: an image in each form and its AUROC; relevance mass."""

import textwrap

from capsviz.analysis import Panel
from capsviz.results import COLOURS
from capsviz.results.panels import by_rows, kind, points, room, rows_from, show, split


def _forms(axes, result):
    """Draw an image in each form."""
    grid = split(axes, 1, len(result.kinds) + 1, wspace=0.02)[0]
    letters = int(room(axes) / len(grid) / 0.063)
    for one, image, name in zip(grid, result.examples, ["intact", *result.kinds], strict=True):
        show(one, image)
        lines = textwrap.fill(name, max(7, letters), break_long_words=False)
        one.set_title(lines, fontsize=6, pad=2)


def _auroc(axes, result):
    """Draw the probability that a broken image is more suspicious than an intact one (AUROC). Open
    markers: controls.
    """
    B = len(result.kinds)
    for b, name in enumerate(result.kinds):
        control = name in result.controls
        drawn = kind(result.auroc[:, b], b, f"{name} (control)" if control else name)
        fill = "none" if control else "full"
        points(axes, *drawn, (b - (B - 1) / 2) * 0.14, fillstyle=fill)
    rows_from(axes, result.scores, 0, "AUROC, intact against broken", at=0.5, fontsize=6)


def _masses(result) -> list:
    """Return (name, control, masses of units) of each measure."""
    return [
        (f"{kind}: {word}", *masses[:, k])
        for kind, field in (("units", "perturbed"), ("types", "selected"))
        if (masses := getattr(result, field)) is not None
        for k, word in enumerate(result.axes[field][1])
    ]


def _relevance(axes, result):
    """Draw relevance mass on the stroke and in one half of it, of units and of selected types. Open
    markers: controls.
    """
    measured = _masses(result)
    labels = ("control: random directions, another's stroke", f"units, types of {result.below}")
    for k, (_, *pair) in enumerate(measured):
        looks = zip(pair, labels, ("none", "full"), (0.14, -0.14), strict=True)
        for one, label, fill, shift in looks:
            label = None if k else label
            points(axes, one, COLOURS[0], "o", label, k + shift, fillstyle=fill)
    names = [name for name, *_ in measured]
    rows_from(axes, names, 0, "relevance mass, or cosine of two maps", fontsize=6)


PANELS = {
    "forms": Panel(
        _forms, lambda result, width: min(0.8, width / (len(result.kinds) + 1)) + 0.45, 1,
        shown=lambda result: result.examples is not None,
    ),
    "auroc": Panel(_auroc, by_rows("scores", 0.24, 0.45), 1, marks="bars"),
    "relevance": Panel(
        _relevance, lambda result, width: 0.17 * len(_masses(result)) + 0.45, 1,
        figure="relevance", shown=lambda result: bool(_masses(result)), marks="bars",
    ),
}  # fmt: skip
