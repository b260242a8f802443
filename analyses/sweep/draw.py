"""Panels of `sweep`: curves of all networks on one axis of sizes, and a summary."""

from functools import partial

from matplotlib.ticker import MaxNLocator

from capsviz.analysis import Panel
from capsviz.results.panels import band, groups, look, percent
from capsviz.statistics.comparison import holm

LINES = ("-", "--", "-.", ":")
LEVEL = 0.05  # significance level of the tests against the first network, over all sizes


def _labels(result) -> list[str]:
    return [f"{n} ({s})" for n, s in zip(result.names, result.scores, strict=True)]


def _curves(field: str, label: str, axes, result):
    """Draw a line for each network by the size of the warp."""
    axes.set(xlabel=result.label, ylabel=label)
    axes.margins(x=0.02)
    steps = [1, 1.5, 3, 4.5, 9, 10] if result.unit == "°" else [1, 2, 4, 5, 10]
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=steps))
    name, signed = field.removesuffix("_difference"), field.endswith("_difference")
    estimate = getattr(result, name)
    estimate = estimate.difference if signed else estimate
    if signed:
        axes.axhline(0, color=look(0)["color"], linewidth=0.8)
        axes.yaxis.set_major_formatter(_points)
    elif field == "accuracy":
        percent(axes.yaxis)
    every = max(1, len(result.sizes) // 24)
    for k in range(int(signed), len(result.names)):
        shown = {**look(k), "markersize": 2.6, "markevery": every, "label": _labels(result)[k]}
        band(axes, result.sizes, estimate[k], LINES[k % len(LINES)], **shown)
        if signed and (ringed := holm(result.mcnemar_p[k]) < LEVEL).any():
            ring = {"marker": "o", "markersize": 6, "markerfacecolor": "none", "linestyle": "none"}
            axes.plot(
                result.sizes[ringed], estimate.value[k][ringed], color=look(k)["color"], **ring
            )
            each = "" if result.accuracy.runs is None else " in every run"
            axes.set_title(f"rings: different{each} (McNemar, Holm)", fontsize=6.5)
    if not signed:
        axes.set_ylim(0, 1.02 if field != "calibration" else max(0.1, 1.05 * estimate.high.max()))


def _summary(axes, result):
    """Draw the mean accuracy over the sizes and worst case of the grid, with intervals."""
    estimates, names = [result.area], ["mean over sizes"]
    if result.worst is not None:
        estimates.append(result.worst)
        names.append(f"correct under\nall {9 * result.grid} warps")
    groups(axes, estimates, names, _labels(result))
    axes.set(xlim=(0, 1), xlabel="accuracy")


def _points(value: float, _) -> str:
    """Return a difference of accuracies in percentage points, with its sign."""
    points = round(100 * value, 6)
    return f"{points:+g}".replace("-", "\N{MINUS SIGN}") if points else "0"


UNDER = "by size of the {warp}, |"
DIFFERENCE = (
    "difference of accuracies\nrings: different from the first (McNemar's test, Holm's method)"
)
PANELS = {
    **{
        name: Panel(
            partial(_curves, field, label), 1.35, 0.3, marks="bands", caption=UNDER + text,
            shown="" if name != "difference" else lambda result: len(result.names) > 1,
        )
        for name, field, label, text in (
            ("accuracy", "accuracy", "accuracy", "accuracy"),
            ("score", "true_score", "mean score\nof true class", "score of the true class"),
            ("difference", "accuracy_difference", "accuracy minus\nfirst's, points", DIFFERENCE),
            ("calibration", "calibration", "calibration\nerror (ECE)", "calibration error"),
        )
    },
    "summary": Panel(
        _summary, lambda r, width: 0.5 + 0.13 * (2 - (r.worst is None)) * (len(r.names) + 1), 0.4,
        marks="bars",
        caption=lambda result: "mean accuracy over the sizes"
        + ", and images that are correct under every warp of a grid" * bool(result.grid),
    ),
}  # fmt: skip
