"""Probes and their control tasks for `probes`: fits on some images of a class, errors on others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from capsviz.analyses.probes import dci, paths, vectors
from capsviz.statistics.comparison import compare_explained, draw_resamples
from capsviz.statistics.estimate import Estimate, less, stack
from capsviz.statistics.intervals import mean_interval
from capsviz.statistics.runs import fields_over_draws
from capsviz.statistics.threads import on_one_thread
from capsviz.tracing import reconstructs

PENALTIES = np.logspace(-4, 5, 19)  # of ridge regression on standardised vectors
LABELLINGS = 5  # of the control task, each drawn anew
LEAST = 8  # images of a class to fit on
TINY = 1e-12  # standard deviation of what does not vary
TURNED = "turned at random"


class Errors(NamedTuple):
    """Squared errors of M measures of the images of one fold and class."""

    real: np.ndarray  # (n, M)
    spread: np.ndarray  # (n, M) of the mean of the class
    control: np.ndarray  # (a, M) of other images' measures, mean over labellings
    control_spread: np.ndarray  # (a, M)


@on_one_thread
def statistics(
    model, images, *, name, baselines, fit_images, fit_labels, shift_px, seeds, seed, progress=iter
) -> dict:
    """The fields of `Statistics` that are computed."""
    begin = time.perf_counter()
    data = vectors.gather(model, images, fit_images, shift_px=shift_px, seed=seed)
    groups = grouped(data)
    if not groups:
        raise ValueError(
            f"the network reads no class often enough: expected {LEAST} images of one to fit on "
            "and 2 to measure"
        )
    every, notes = vectors.kinds(
        model, name, baselines, data, seeds=range(seed, seed + seeds), progress=progress
    )
    kept = data.poses.shape[1]
    probed = [data.classes[test[0]] for test, *_ in groups]  # of each group
    tested = [
        [
            probes(values, data, groups, seed, kept if source == "pixels" else None)
            for values in some
        ]
        for source, some in every.items()
    ]
    turned = [turns(data, groups, [seed, 1, k]) for k in range(max(1, seeds))]
    codes = [[code for _, code in some] for some in tested]
    codes.insert(1, turned)
    drawn = [
        {
            **explained([some[k % len(some)][0] for some in tested], seed),
            **concentrated([some[k % len(some)] for some in codes], probed),
        }
        for k in range(max(1, seeds))
    ]
    widths = [some[0].shape[1] for some in every.values()]
    widths[-1] = min(kept, widths[-1])
    names = [*list(every)[:-1], f"pixels, {widths[-1]} components"]
    measured = sum(len(test) for test, *_ in groups)
    if measured < data.n:
        notes.append(f"{data.n - measured} of {data.n} images are read as a class that is too rare")
    fields = {
        "measures": list(vectors.MEASURES),
        "sources": names,
        "dimensions": widths,
        **fields_over_draws(drawn),
        "codes": [name, f"{name} {TURNED}", *names[1:]],
        "spread": np.sqrt(tested[0][0][0].spread.mean(0)),
        "n": measured,
        "fitted": sum(len(fit) for _, fit, _ in groups) // len(data.folds),
        "probed": len(set(probed)),
        "shift_px": shift_px,
        "seeds": seeds if any("freshly" in one for one in names) else 0,
        "notes": [*data.notes, *notes],
    }
    if reconstructs(model):
        real = None if fit_images is None else (fit_images.cpu(), fit_labels.cpu())
        shown = images.cpu()
        once = {"seed": seed, "looked": paths.poses_and_classes(model, shown)}
        back = paths.cycle(model, shown, **once)
        led = paths.along(model, shown, real, **once, progress=progress)
        more = [note for part in (back, led) for note in part.pop("notes", [])]
        fields |= {**back, **led, "notes": [*fields["notes"], *more]}
    else:
        fields["notes"].append("no decoder: neither cycle nor paths")
    return {**fields, "seconds": round(time.perf_counter() - begin, 1)}


def grouped(data) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each fold and class read: rows measured, rows fitted on, rows of the control task."""
    tokens, groups = np.array(list(data.again)), []
    origins = np.array(list(data.again.values()))
    for measured, fitted in data.folds:
        for k in np.unique(data.classes[measured]):
            test, fit = (rows[data.classes[rows] == k] for rows in (measured, fitted))
            again = tokens[np.isin(origins, fit)]
            if len(fit) >= LEAST and len(test) >= 2:
                groups.append((test, fit, again))
    return groups


def probes(values, data, groups, seed: int, reduced: int | None) -> tuple[Errors, list]:
    """Errors of probes of vectors (X, F), of all groups, and the `dci` of each.

    Every kind of vectors has the same labellings. Those that are to be reduced are, to so many
    principal components of each fit.
    """
    errors, codes, draw = [], [], np.random.default_rng(seed)
    for test, fit, again in groups:
        x = [values[rows] for rows in (test, fit, again)]
        x = x if reduced is None else components(x, reduced)
        of_again = [int(np.flatnonzero(fit == data.again[row])[0]) for row in again]
        errors.append(probe(*x, data.factors[test], data.factors[fit], of_again, draw))
        codes.append(dci.dci(x[1], data.factors[fit]))
    return Errors(*(np.concatenate(part) for part in zip(*errors, strict=True))), codes


def turns(data, groups, seed: Sequence[int]) -> list:
    """The `dci` of the pose turned at random, of each group."""
    draw = np.random.default_rng(seed)
    return [dci.dci(dci.turned(data.poses[fit], draw), data.factors[fit]) for _, fit, _ in groups]


def components(parts: list[np.ndarray], count: int) -> list[np.ndarray]:
    """Vectors of the test, the fit and the control task by the fit's principal components."""
    from sklearn.decomposition import PCA

    count = min(count, *parts[1].shape)
    axes = PCA(count, svd_solver="full").fit(parts[1])
    return [axes.transform(part).astype(float) for part in parts]


def probe(test, fit, again, factors, fit_factors, of_again, draw) -> Errors:
    """Ridge regressions from vectors of one class to its measures, and to those of other images.

    The control task has the penalties of the measures: chosen for itself, they would let nothing be
    learnt by heart.

    Parameters
    ----------
    test, fit, again      (n, F), (m, F) and (a, F) vectors: `again` is of images of the fit, shown
                          once more.
    factors, fit_factors  (n, M) and (m, M) measures.
    of_again              (a,) which image of the fit each is.
    draw                  numpy generator of the control task.
    """
    from sklearn.linear_model import Ridge, RidgeCV

    centre, scale = fit.mean(0), fit.std(0)
    scale = np.where(scale > TINY, scale, 1)
    x, x_again, x_test = ((values - centre) / scale for values in (fit, again, test))
    middle, spread = fit_factors.mean(0), fit_factors.std(0)
    spread = np.where(spread > TINY, spread, 1)
    y, m = (fit_factors - middle) / spread, len(fit)
    ridge = RidgeCV(PENALTIES, alpha_per_target=True).fit(x, y)
    same = Ridge(np.tile(ridge.alpha_, LABELLINGS))  # the same probe, its penalties too
    labels = np.concatenate([y[draw.permutation(m)] for _ in range(LABELLINGS)], 1)
    shape, drawn = (len(again), LABELLINGS, y.shape[1]), labels[of_again]
    off = (same.fit(x, labels).predict(x_again) - drawn) ** 2
    return Errors(
        (ridge.predict(x_test) * spread + middle - factors) ** 2,
        (middle - factors) ** 2,
        off.reshape(shape).mean(1) * spread**2,
        (drawn**2).reshape(shape).mean(1) * spread**2,
    )


def explained(tested: list[Errors], seed: int) -> dict:
    """R2 of the measures, of the control task, and selectivity, from the errors of S kinds."""
    real, spread, control, far = (np.stack(part) for part in zip(*tested, strict=True))
    counts, others = (draw_resamples(one.shape[1], seed=seed) for one in (real, control))
    M = real.shape[2]
    r2 = stack([compare_explained(real[..., j], spread[..., j], counts) for j in range(M)], 1)
    other = stack([compare_explained(control[..., j], far[..., j], others) for j in range(M)], 1)
    share = [one / spread.sum(1, keepdims=True) for one in (real, spread)]
    return {
        "r2": Estimate(r2.value, r2.ci95, real.shape[1], r2.difference),
        "control": Estimate(other.value, other.ci95, control.shape[1], other.difference),
        "selectivity": less(r2, at_least(other, 0.0)),
        "informed": compare_explained(*(one.mean(2) for one in share), counts),
    }


def at_least(one: Estimate, floor: float) -> Estimate:
    """An estimate, cut off from below: what a probe loses by heart is not learned either."""
    return Estimate(np.maximum(one.value, floor), np.maximum(one.ci95, floor))


def concentrated(codes, classes) -> dict:
    """Disentanglement and completeness, means over classes, with Student's intervals.

    Parameters
    ----------
    codes    (S + 1, G, 2) of G groups.
    classes  (G,) of each: halves that take turns are of one class, and count once.
    """
    values, classes = np.array(codes).transpose(2, 1, 0), np.array(classes)  # (2, G, S + 1)
    means = [np.stack([one[classes == k].mean(0) for k in np.unique(classes)]) for one in values]
    if len(means[0]) < 2:
        pair = [Estimate(v[0], np.stack([v[0] * 0, v[0] * 0 + 1], -1)) for v in means]
    else:
        pair = [
            Estimate(*mean_interval(v), len(v), Estimate(*mean_interval(v - v[:, :1]), len(v)))
            for v in means
        ]
    return dict(zip(("disentanglement", "completeness"), pair, strict=True))
