"""Drawing for `sweep`: curves of all networks on one axis of sizes, and a summary under them."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

from capsviz.results import COLOURS
from capsviz.results.panels import MARKERS, groups, legend_columns, percent
from capsviz.statistics.comparison import holm

WIDE = 5.0  # inches from which on panels stand in two columns
LINES = ("-", "--", "-.", ":")
LEVEL = 0.05  # of the tests that are counted


def sheet(result, width):
    """Accuracy, its difference to the first network, score and calibration; then the summary."""
    names, columns = _panels(result), 2 if width >= WIDE else 1
    rows = -(-len(names) // columns)
    below = columns == 1 or len(names) % 2 == 0  # else the summary takes the cell that is left
    tall = 0.5 + 0.13 * (1 if result.worst is None else 2) * (len(result.names) + 1)
    heights = [1.45 if columns > 1 else 1.15] * rows + ([tall] if below else [])
    labels = [f"{n} ({s})" for n, s in zip(result.names, result.scores, strict=True)]
    across = legend_columns(width, labels)
    figure = Figure(figsize=(width, sum(heights) + 0.44 + 0.14 * -(-len(labels) // across)))
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    first = None
    for i, (field, label) in enumerate(names):
        row, column = divmod(i, columns)
        axes = figure.add_subplot(grid[row, column], sharex=first)
        first = first or axes
        _curves(axes, result, field)
        axes.set_ylabel(label)
        lowest = i + columns >= len(names)
        axes.tick_params(labelbottom=lowest)
        if lowest:
            axes.set_xlabel(result.label)
    _x_axis(first, result)
    _summary(figure.add_subplot(grid[rows if below else rows - 1, 0 if below else 1 :]), result)
    lines = first.get_lines()[: len(labels)]
    figure.legend(
        lines, labels, loc="outside upper center", ncols=across,
        title=f"{result.n:,} images of {result.dataset}; bands and bars: 95 %", title_fontsize=6.5,
    )  # fmt: skip
    return figure


def _panels(result) -> list[tuple[str, str]]:
    panels = [("accuracy", "accuracy"), ("true_score", "mean score\nof true class")]
    if len(result.names) > 1:
        panels.append(("accuracy_difference", "accuracy minus\nfirst's, points"))
    return [*panels, ("calibration", "calibration\nerror (ECE)")]


def _curves(axes, result, field):
    """One line with its band for each network; no line of the first minus itself."""
    name, signed = field.removesuffix("_difference"), field.endswith("_difference")
    estimate = getattr(result, name)
    estimate = estimate.difference if signed else estimate
    values, bands = estimate.value, estimate.ci95
    if signed:
        axes.axhline(0, color=_colour(0), linewidth=0.8)
        axes.yaxis.set_major_formatter(_points)
    elif field == "accuracy":
        percent(axes.yaxis)
    every = max(1, len(result.sizes) // 24)
    for k in range(int(signed), len(result.names)):
        colour, marker = _colour(k), MARKERS[k % len(MARKERS)]
        look = {"color": colour, "marker": marker, "markersize": 2.6, "markevery": every}
        axes.plot(result.sizes, values[k], LINES[k % len(LINES)], **look)
        axes.fill_between(result.sizes, *bands[k].T, color=colour, alpha=0.22, linewidth=0)
        if signed:
            ringed = unequal(result, k)
            ring = {"marker": "o", "markersize": 6, "markerfacecolor": "none", "linestyle": "none"}
            axes.plot(result.sizes[ringed], values[k][ringed], color=colour, **ring)
            axes.set_title("rings: different (McNemar, Holm)", fontsize=6.5)
    if not signed:
        axes.set_ylim(0, 1.02 if field != "calibration" else max(0.1, 1.05 * bands.max()))


def unequal(result, k: int):
    """Return (A,) whether a network differs from the first, by Holm's correction for A sizes."""
    return holm(result.mcnemar_p[k]) < LEVEL


def _summary(axes, result):
    """Draw mean accuracy over the sizes and worst case of the grid, with intervals."""
    estimates, names = [result.area], ["mean over sizes"]
    if result.worst is not None:
        estimates.append(result.worst)
        names.append(f"correct under\nall {9 * result.grid} warps")
    groups(axes, estimates, names)
    axes.set(xlim=(0, 1), xlabel="accuracy")


def _colour(k: int) -> str:
    return COLOURS[k % len(COLOURS)]


def _points(value: float, _) -> str:
    """A difference of accuracies in points of per cent, with its sign."""
    points = round(100 * value, 6)
    return f"{points:+g}".replace("-", "\N{MINUS SIGN}") if points else "0"


def _x_axis(axes, result):
    first, last = result.sizes[[0, -1]]
    margin = 0.02 * (last - first) or 1
    axes.set_xlim(first - margin, last + margin)
    if result.unit == "°" and 90 <= last - first <= 360:
        axes.xaxis.set_major_locator(MultipleLocator(30 if last - first <= 200 else 45))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 4, 5, 10]))
