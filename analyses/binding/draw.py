"""Panels of `binding`: an example, scores against the truth, context, geometry, relevance."""

from functools import partial

import numpy as np
from matplotlib.colors import ListedColormap

from capsviz.analysis import Panel
from capsviz.results import COLOURS
from capsviz.results.maps import GREY
from capsviz.results.panels import band, by_rows, percent, points, rows_from, show

CONTROLS = ("mean coupling", "coupling, untrained", "one position", "votes from", "random")
SHORT = {
    "coupling times length of the vote": "coupling × |vote|",
    "evidence with uniform couplings": "evidence, uniform coupl.",
    "mean coupling of other images": "mean of other images",
    "coupling, untrained network": "untrained network",
    "one position alone (probe)": "one position alone",
    "votes from the true poses": "true poses (ceiling)",
    "votes from part types alone": "part types (floor)",
    "couplings of another image at the position": "another image's coupling",
    "positions of the other part": "other part of the whole",
    "positions of a distractor": "distractor",
    "positions of the other part, untrained": "untrained network",
}


def short(names) -> list[str]:
    """Return short names of rows."""
    return [SHORT.get(name, name.replace(" (pixels)", ", pixels")) for name in names]


def _points(axes, names, estimate, colour, marker="o", label=None, shift=0.0):
    """Draw estimates (M,) in named rows; those of controls are grey."""
    for row, (name, one) in enumerate(zip(names, estimate, strict=True)):
        control = name.startswith(CONTROLS) or "untrained" in name or name == "brightness (pixels)"
        own = GREY if control else colour
        points(axes, one, own, marker, None if row else label, row + shift)


def example(k: int, axes, result):
    """Draw the image of two wholes, the true whole of each position, and the assigned one."""
    shows = (result.example_image, result.example_true, result.example_assigned)[k]
    if k == 0:
        show(axes, shows, "two wholes and\na distractor")
        return
    colours = ListedColormap(["#E4E4E4", COLOURS[0], COLOURS[1], COLOURS[8]])
    axes.imshow(shows, cmap=colours, vmin=-1, vmax=2, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    titles = ("true whole\nof each position", "by couplings\n(red: wrong)")
    axes.set_title(titles[k - 1], fontsize=6.5)


def assignment(axes, result):
    """Draw how well scores of positions tell to which of two wholes they belong."""
    for s, name in enumerate(result.subsets):
        one, shift = result.assignment[:, s], 0.2 * (s - 1)
        _points(axes, result.scored, one, COLOURS[s], "oDs"[s], name, shift)
    rows_from(axes, short(result.scored), 0.38, "AUROC for the whole of a position", at=0.5)


def context(axes, result):
    """Draw how often the couplings of a position follow a part that it does not see."""
    last = len(result.iterations) - 1
    for r in sorted({min(1, last), last}):
        look = (COLOURS[3], "o") if r == last else (COLOURS[4], "D")
        shift = 0.12 if r == last else -0.12
        _points(axes, result.pairs, result.follows[:, r], *look, result.iterations[r], shift)
    label = "pairs whose couplings\nfollow the unseen part"
    rows_from(axes, short(result.pairs), -0.02, label, at=0.5)
    percent(axes.xaxis)


def rotated(axes, result):
    """Draw the predictions while one part is rotated."""
    for k, name in enumerate(result.answers):
        colour = (COLOURS[0], COLOURS[1], GREY)[k]
        band(axes, result.angles_deg, result.rotated[k], color=colour, label=name)
    axes.set(ylim=(0, 1), xlabel="one part rotated by (degrees)", ylabel="share of predictions",
             xticks=range(0, 181, 60))  # fmt: skip
    percent(axes.yaxis)


def moved(axes, result):
    """Draw the accuracy while one part is moved away."""
    band(axes, result.distances_px, result.accuracy, color=COLOURS[0])
    axes.set(ylim=(0, 1), xlabel="one part shifted away by (px)", ylabel="accuracy")
    percent(axes.yaxis)


def by_angle(axes, result):
    """Draw the accuracy by the angle of the whole."""
    x = np.arange(len(result.bins))
    axes.bar(x, result.by_angle.value, color=COLOURS[0], width=0.7)
    axes.vlines(x, *result.by_angle.ci95.T, color="black", linewidth=0.8)
    axes.axvline(result.rotation / 30 - 0.5, color=GREY, linewidth=0.5, linestyle=":")
    axes.set(ylim=(0, 1), xlabel="angle of the whole; dotted: training limit", ylabel="accuracy")
    axes.set_xticks(x, [name.partition("–")[0] + "°" for name in result.bins])
    percent(axes.yaxis)


def relevance(axes, result):
    """Draw how well maps rank the whole above distractors."""
    _points(axes, result.maps, result.relevance, COLOURS[0])
    rows_from(axes, short(result.maps), 0.2, "AUROC of the whole\nagainst distractors", at=0.5)


def _over(images: str, marks: str, text: str):
    """Return the caption of a panel with its own number of images; {0} stands for the result."""

    def caption(result) -> str:
        runs = "runs and " * (result.relevance.training_runs > 1)
        return f"{text}\n{marks}: 95 % intervals over {runs}{images}".format(result)

    return caption


PANELS = {
    "assignment": Panel(assignment, by_rows("scored", 0.135, 0.45), marks="bars"),
    "context": Panel(context, by_rows("scored", 0.135, 0.45), marks="bars"),
    **{
        name: Panel(partial(example, k), 1.3, 1 / 4, 1 / 3, caption=caption)
        for k, (name, caption) in enumerate((
            ("image", "an image of two wholes and a distractor"),
            ("wholes", "the true whole of each position"),
            ("assigned", "the whole of each position by its couplings (red: wrong)"),
        ))
    },
    **{
        name: Panel(
            draw, 1.6, 1 / 3, figure="geometry",
            caption=_over("these images of {0.dataset}", "bars and bands", text),
        )
        for name, draw, text in (
            ("rotated", rotated, "predictions while one part of {0.rotated.n} images is rotated"),
            ("moved", moved, "accuracy while it is shifted away, in those that show it completely"),
            ("angles", by_angle, "accuracy by the angle of the whole, of {0.n} images inside and "
             "{0.n} outside the rotations of training"),
        )
    },
    "relevance": Panel(
        relevance, by_rows("maps", 0.135, 0.45), 1, figure="relevance",
        caption=_over(
            "{0.relevance.n} images of {0.dataset}", "bars",
            "how well maps rank the whole above distractors",
        ),
    ),
}  # fmt: skip
