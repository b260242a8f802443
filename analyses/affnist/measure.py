"""Rows of the table of `affnist`: means over seeds, intervals over digits and seeds."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from capsviz.experiments import affnist as experiment
from capsviz.statistics.attribution import attribute
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.intervals import Z, require_two, student

REFERENCE = "capsnet"  # gaps are differences from its accuracy
FACTORS = ("largest shift, px", "angle, °", "shear", "scale")
BINS = (  # edges of the bins of each factor, equally many for all
    (0, 2, 4, 6, 7, 8, 10, 12, 20),
    (-20, -15, -10, -5, 0, 5, 10, 15, 20),
    (-0.2, -0.15, -0.1, -0.05, 0, 0.05, 0.1, 0.15, 0.2),
    (0.8, 0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15, 1.2),
)
FEWEST = 1000  # images of a logistic fit


def check(results: list[dict]) -> None:
    """Raise ValueError for results with different settings."""
    shared = ("target", "checks", "batch_size", "ema", "train_limit", "precision")
    terms = {name: {r["terms"].get(name) for r in results} for name in shared}
    terms["images of affnist_like"] = {r["affnist_like"]["n"] for r in results}
    terms["epochs of full training"] = {
        r["terms"]["epochs"] for r in results if r["state"] == "full"
    }
    for name, values in terms.items():
        if len(values) > 1:
            raise ValueError(f"the results differ in {name}: {', '.join(sorted(map(str, values)))}")


def row(runs: dict[int, dict], reference: dict[int, dict], transforms: dict) -> dict:
    """Return the columns of one network in one state, from its runs and the reference's by seed.

    `transforms` are the parameters of the images, by the names of `affnist_like.Transforms`.
    """
    hits, pair = _hits(runs, reference)
    inside, terms = near(transforms), features(transforms)
    accuracy = [run["affnist_like"]["accuracy"] for run in runs.values()]
    real = [run["affnist"] for run in runs.values()]
    comparable = None not in real and len({score["n"] for score in real}) == 1
    first = next(iter(runs.values()))
    options = first.get("recipe", {}).get("options", {})
    columns = {
        "parameters": first["parameters"],
        "reconstruction_weight": options.get("reconstruction_weight"),
        "held_out": np.mean([run["held_out"]["accuracy"] for run in runs.values()]),
        "test": np.mean([run["test"]["accuracy"] for run in runs.values()]),
        "affine": _accuracy(hits, pair),
        "affine_range": [min(accuracy), max(accuracy)],
        "affnist": np.mean([score["accuracy"] for score in real]) if comparable else np.nan,
        "inside": _accuracy(hits, pair, inside),
        "outside": _accuracy(hits, pair, ~inside),
        "by_factor": stack(
            stack(_accuracy(hits, pair, mask) for mask in masks) for masks in bins(transforms)
        ),
    }
    if hits.shape[1] < FEWEST:  # too few for a fit
        return columns
    return columns | {
        "upright": attribute(terms, hits.mean(0)).base,
        "lost": _estimate(partial(_lost, terms), hits, pair),
        "lost_share": _estimate(partial(_lost, terms, relative=True), hits, None),
    }


def join(rows: list[dict]) -> dict:
    """Return columns from rows: estimates are stacked, numbers become arrays, others lists."""
    columns: dict = {name: [row[name] for row in rows] for name in rows[0]}
    for name, values in columns.items():
        if isinstance(values[0], Estimate):
            columns[name] = stack(values)
        elif name != "reconstruction_weight":
            columns[name] = np.array(values)
    return columns


def images(transforms: dict) -> dict:
    """Return the fields of a result that describe the images, from their transforms."""
    means = [
        [level[mask].mean() if mask.any() else np.nan for mask in masks]
        for level, masks in zip(factors(transforms), bins(transforms), strict=True)
    ]
    return {
        "share_outside": float(1 - near(transforms).mean()),
        "factors": list(FACTORS),
        "levels": np.array(means),
    }


def near(transforms: dict) -> np.ndarray:
    """Return which images (n,) lie inside the training shift range."""
    return factors(transforms)[0] <= experiment.SHIFT_PX


def factors(transforms: dict) -> np.ndarray:
    """Return (4, n): larger of the two shifts in pixels, angle in degrees, shear, scale.

    Shifts are those of the centre, which rotation, shear and scale do not move. The scale is the
    geometric mean over both axes.
    """
    shift = np.maximum(abs(transforms["shift_x_px"]), abs(transforms["shift_y_px"]))
    scale = np.sqrt(transforms["scale_x"] * transforms["scale_y"])
    return np.stack([shift, transforms["angle_deg"], transforms["shear"], scale])


def bins(transforms: dict) -> list[list[np.ndarray]]:
    """Return masks (n,) of the images in each bin of each factor; an edge is in the upper bin.

    Bins of angle, shear and scale contain only images inside the training shift range. Smaller
    digits are shifted further, so over all images the scale would be confounded with the shift.
    """
    inside = near(transforms)
    whole = np.ones_like(inside)
    return [
        [(np.digitize(level, edges[1:-1]) == k) & chosen for k in range(len(edges) - 1)]
        for level, edges, chosen in zip(
            factors(transforms), BINS, (whole, inside, inside, inside), strict=True
        )
    ]


def features(transforms: dict) -> list[np.ndarray]:
    """Return the parameters of each factor and their squares (n, P); 0 for no change."""

    def both(*values):
        return np.column_stack([power for v in values for power in (v, v**2)]).astype(float)

    shift = both(transforms["shift_x_px"] / 6, transforms["shift_y_px"] / 6)
    scale = both(*(np.log(transforms[f"scale_{axis}"]) / np.log(1.2) for axis in "xy"))
    return [shift, both(transforms["angle_deg"] / 20), both(transforms["shear"] / 0.2), scale]


def _hits(runs: dict[int, dict], reference: dict[int, dict]) -> tuple:
    """Return correct answers (S, n) by seed, and (own, reference's) over common seeds, or None."""

    def by_seed(some, seeds):
        each = [some[seed]["affnist_like"] for seed in seeds]
        return np.stack([experiment.unpack(one["right"], one["n"]) for one in each]).astype(float)

    common = sorted(set(runs) & set(reference))
    pair = (by_seed(runs, common), by_seed(reference, common)) if common else None
    return by_seed(runs, sorted(runs)), None if runs is reference else pair


def _share(hits: np.ndarray, mask=None) -> tuple:
    """Return the share of correct answers in the mask, its influences (n,), and its images."""
    mask = np.ones(len(hits), bool) if mask is None else mask
    if not mask.any():
        return np.nan, np.full(len(hits), np.nan), 0
    value = hits[mask].mean()
    return value, mask * (hits - value) / mask.mean(), int(mask.sum())


def _lost(terms: list, hits: np.ndarray, relative=False) -> tuple:
    """Return like `_share` the loss of accuracy to each factor, or its share of the whole loss."""
    _, lost, influence = attribute(terms, hits)
    if relative:
        total = lost.sum()
        influence = (influence - lost / total * influence.sum(1, keepdims=True)) / total
        lost = lost / total
    return lost, influence, len(hits)


def _accuracy(hits: np.ndarray, pair: tuple | None, mask=None) -> Estimate:
    """Return the share of correct answers in the mask; its interval is clipped to 0 and 1."""
    one = _estimate(partial(_share, mask=mask), hits, pair)
    return replace(one, ci95=one.ci95.clip(0, 1))


def _estimate(statistic: Callable, hits: np.ndarray, pair: tuple | None) -> Estimate:
    """Return a statistic of correct answers (S, n), and its paired difference to the reference."""
    value, influence, n = statistic(hits.mean(0))
    each = [statistic(one)[0] for one in hits]
    if pair is None:
        none = np.full((*np.shape(value), 2), np.nan)
        difference = Estimate(none[..., 0], none)
    else:
        (own, a, _), (other, b, _) = (statistic(some.mean(0)) for some in pair)
        gaps = [statistic(one)[0] - statistic(two)[0] for one, two in zip(*pair, strict=True)]
        difference = Estimate(own - other, _around(own - other, a - b, gaps), n)
    return Estimate(value, _around(value, influence, each), n, difference)


def _around(value: np.ndarray, influence: np.ndarray, each: list) -> np.ndarray:
    """Return the interval of a value () or (F,) from the influences (n,) or (n, F) of the images.

    Variants of one digit are not independent, so their influences are summed. The Student margin of
    the values of S seeds, `each`, is added in quadrature, as in `statistics.runs`.
    """
    original = np.arange(len(influence)) % experiment.ORIGINALS
    digits = original.max() + 1
    require_two(digits)
    sums = np.zeros((digits, *influence.shape[1:]))
    np.add.at(sums, original, influence)
    half = Z * sums.std(0, ddof=1) * np.sqrt(digits) / len(influence)
    if (S := len(each)) > 1:
        half = np.hypot(half, student(S) * np.std(each, 0, ddof=1) / np.sqrt(S))
    return np.stack([value - half, value + half], -1)
