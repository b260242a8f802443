"""Panels of `equivariance`: R2 by size of each warp, R2 of the probes, and R2 by law."""

import math
from functools import partial

import numpy as np

from capsviz.analyses.equivariance import REACH
from capsviz.analysis import Panel
from capsviz.results.panels import band, dots, kind, look, rows_from
from capsviz.statistics.estimate import Estimate

LINES = ("-", "--", "-.", (0, (3, 1, 1, 1, 1, 1)))
LOWEST = -0.6  # lower end of the axes of R2


def _by_count(warp: str, axes, result):
    """Draw R2 of affine maps by the number of images that they are fitted on."""
    for s, label in enumerate(_labels(result, result.kept)):
        one = result.by_count[s, result.warps.index(warp)]
        band(axes, result.fit_counts, one, **_look(s), label=label)
    _r2(axes)
    axes.set_xscale("log")
    axes.set_xticks(result.fit_counts, [str(m) for m in result.fit_counts])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(f"images per class, {warp}")


def _r2(axes):
    axes.set(ylim=(LOWEST, 1.03), ylabel="R² of an affine map")
    axes.axhline(0, color="#7F7F7F", linewidth=0.5)


def _look(s: int) -> dict:
    return look(s) | {"linestyle": LINES[s % len(LINES)], "markersize": 2.8}


def _labels(result, most: float = math.inf) -> list[str]:
    """Return legend labels of the kinds of vectors; those longer than `most` are PCA components."""
    return [
        f"{name}, {count:,} numbers" if count <= most else f"{name}, {most} components of {count:,}"
        for name, count in zip(result.sources, result.dimensions, strict=True)
    ]


def _curves(warp: str, axes, result):
    """Draw R2 of affine maps by the size of a warp; the first vector unchanged, dotted."""
    f, labels = result.warps.index(warp), _labels(result, result.kept)
    middle = result.sizes.shape[1] // 2
    x = np.insert(result.sizes[f], middle, result.neutral[f])
    measured = np.delete(np.arange(len(x)), middle).tolist()
    for s in range(len(result.sources)):
        one = result.fitted[s, f]  # R2 is 1 where nothing is warped
        whole = Estimate(*(np.insert(part, middle, 1.0, axis=0) for part in (one.value, one.ci95)))
        band(axes, x, whole, **_look(s), markevery=measured, label=labels[s])
    unchanged = np.insert(result.unchanged.value[0, f], middle, 1.0)
    axes.plot(x, unchanged, color="black", linestyle=":", linewidth=0.9,
              label=f"{result.sources[0]}, unchanged")  # fmt: skip
    _r2(axes)
    unit = f", {result.units[f].strip()}".removesuffix(", ")
    axes.set(xlabel=result.labels[f].split(",")[0] + unit)
    axes.set_xticks([*result.sizes[f, [0, -1]], result.neutral[f]])


def _probe(axes, result):
    """Draw R² of the size of each warp, by a linear probe of each vector."""
    labels = _labels(result, result.kept)
    _in_rows(axes, labels, result.probe, result.warps, "R² of the size,\nlinear probe")


def _law(warp: str, field: str, label: str, axes, result):
    """Draw R2 of each law, a row each, for each kind of vector."""
    estimate = getattr(result, field)[:, result.warps.index(warp)]
    for edge in (0.5, len(result.laws) - 1.5):  # laws are compared with the first and the last
        axes.axhline(edge, color="#BBBBBB", linewidth=0.5)
    _in_rows(axes, _labels(result), estimate, result.laws, f"{label},\n{warp}")


def _in_rows(axes, kinds, estimate, names, label):
    """Draw R2 (S, N) of each kind of vector, side by side in rows."""
    left = max(LOWEST, np.fmin.reduce(estimate.low, None, initial=0.0) - 0.05)  # some may be NaN
    kinds = list(map(kind, estimate, range(len(estimate)), kinds))
    dots(axes, kinds, 0.7 / len(kinds), left=left, markersize=3)
    rows_from(axes, names, left, label)


def _counted(warp: str, result) -> bool:
    """Return whether R2 by number of images is shown: for the first warp, and one more of many."""
    some = [0, len(result.warps) // 2][: 1 + (len(result.warps) > 3)]
    return warp in [result.warps[f] for f in some] and len(result.fit_counts) > 1


def _mapped(by: str, result) -> str:
    """Return the caption of a panel of affine maps."""
    text = f"R² of an affine map to the warped image's vector, within its class, by |{by}"
    long = any(count > result.kept for count in result.dimensions)
    kept = f"\nvectors are reduced to {result.kept} principal components at most"
    return text + kept * long


PANELS = {
    **{
        warp: Panel(
            partial(_curves, warp), 1.6, 1 / 4, 1 / 2, shown=f"warps:{warp}", marks="bands",
            caption=partial(_mapped, f"size of {warp}"),
        )
        for warp in REACH
    },
    **{
        f"{warp}-by-images": Panel(
            partial(_by_count, warp), 1.6, 1 / 4, 1 / 2, shown=partial(_counted, warp),
            marks="bands",
            caption=partial(_mapped, f"number of images fitted on under {warp}"),
        )
        for warp in REACH
    },
    "probe": Panel(_probe, 1.6, 1 / 4, 1 / 2, marks="bars"),
}  # fmt: skip
LAWS = {
    f"{warp}-{what}": Panel(
        partial(_law, warp, field, f"R² of {of}"),
        lambda r, width: 0.55 + len(r.laws) * max(0.26, 0.07 * len(r.sources)), 1 / 2,
        shown=f"warps:{warp}", marks="bars",
        caption=f"by maps fitted for each class and by laws, within a class, R² of |{full} under "
        f"{warp}\nlaws: half a warp twice, extrapolation from half, and one matrix or map for all",
    )
    for warp in REACH
    for what, field, of, full in (
        ("vector", "explained", "the vector", "the warped image's vector"),
        ("change", "change", "its change", "the vector's change"),
    )
}  # fmt: skip
