"""Linear probes of poses, with their controls; the cycle through the decoder; paths of poses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analyses.probes import dci
from capsviz.analysis import Analysis, Flag, Range, Seed
from capsviz.statistics.comparison import compare_explained, draw_resamples
from capsviz.statistics.estimate import Estimate, less, stack
from capsviz.statistics.intervals import mean_interval
from capsviz.statistics.replicates import at_most_one, mean, within_one
from capsviz.statistics.runs import fields_over_draws
from capsviz.statistics.threads import on_one_thread
from capsviz.statistics.words import in_a_row, sentence

PENALTIES = np.logspace(-4, 5, 19)  # of ridge regression on standardised vectors
LABELLINGS = 5  # of the control task, each drawn anew
LEAST = 8  # images of a class to fit on
FIT = 500  # training images of each class that a probe is fitted on
TINY = 1e-12  # standard deviation of a constant
TURNED = "turned at random"


class Statistics(NamedTuple):
    """S kinds of vectors probed for M measures; intervals are 95 %.

    Differences are less the first kind's, paired; the last fields are None without a decoder.
    """

    measures: list[str]  # (M,) names with units
    sources: list[str]  # S names, the network's pose first
    dimensions: list[int]  # (S,) numbers in a vector
    r2: Estimate  # (S, M) on test images
    control: Estimate  # (S, M) R2 of the control task
    selectivity: Estimate  # (S, M) r2 - control, where that is above 0
    informed: Estimate  # (S,) mean of r2 over measures
    codes: list[str]  # (S + 1,) sources, and after the first the same rotated at random
    disentanglement: Estimate  # (S + 1,) mean over classes
    completeness: Estimate  # (S + 1,)
    spread: np.ndarray  # (M,) standard deviation of a measure within a class, in its unit
    n: int  # test images
    fitted: int  # images that probes are fitted on
    fit_of: str  # what they are
    probed: int  # classes that are predicted often enough to be probed
    shift_px: int
    seeds: int  # of an untrained network; each sees all images
    dataset: str
    notes: list[str]
    seconds: float
    returns: list[str] | None = None  # (3,) what is encoded: the reconstruction, and its controls
    cycle: Estimate | None = None  # (3,) R2 of the pose within its class
    cycle_read: Estimate | None = None  # (3,) share predicted as the same class
    t: np.ndarray | None = None  # (T,) of the path
    path_read: Estimate | None = None  # (2, T) share predicted as the class: path, cross-fade
    path_activation: Estimate | None = None  # (2, T) mean activation of the class
    path_distance: Estimate | None = None  # (2, T) to the nearest training image, rms grey value
    couples: int = 0

    axes = {
        **dict.fromkeys(("r2", "control", "selectivity"), ("sources", "measures")),
        "informed": ("sources",),
        **dict.fromkeys(("disentanglement", "completeness"), ("codes",)),
        **dict.fromkeys(("cycle", "cycle_read"), ("returns",)),
        **dict.fromkeys(
            ("path_read", "path_activation", "path_distance"), (("path", "cross-fade"), "t")
        ),
    }
    formats = {
        **dict.fromkeys(axes, ".2f"),
        "cycle_read": ".1%",
        "path_read": ".1%",
        "path_distance": ".3f",
    }
    over_runs = {
        "spread": mean,
        "seconds": sum,
        **dict.fromkeys(("n", "fitted", "probed", "couples"), min),
        **dict.fromkeys(("r2", "control", "selectivity", "informed", "cycle"), at_most_one),
        **dict.fromkeys(
            ("disentanglement", "completeness", "cycle_read", "path_read", "path_activation"),
            within_one,
        ),
    }


class Probes(Analysis):
    """Linear probes of N poses, and what their decoder makes of them."""

    Result = Statistics
    needs = ("poses",)  # without a decoder, cycle and paths are left out
    slow = True
    figure_set = {"fit": lambda n: min(FIT // 2, max(LEAST, n // 4))}  # a small set is a quick one
    headline = ("r2", "informed", "disentanglement", "completeness", "cycle")

    def measure(
        self, network, images, *, dataset, inputs, progress=iter,
        fit: Annotated[
            int,
            Range(LEAST),
            Flag("--fit", metavar="N"),
            "Training images of each class that a probe is fitted on.",
        ] = FIT,
        shift_px: Annotated[int, Range(0), "Shift of images, at most."] = 2,
        seeds: Annotated[
            int,
            Range(0),
            Flag("--seeds", metavar="K"),
            "Freshly initialised networks of each preset, each of which sees all images.",
        ] = 3,
        seed: Seed = 0,
    ) -> Statistics:  # fmt: skip
        """Probe N images (N, C, H, W), beside the data set's networks without capsules."""
        from capsviz.inputs.opening import with_baselines
        from capsviz.inputs.samples import training_images

        side = min(images.shape[2:])
        if shift_px >= side:
            raise ValueError(f"expected a shift of 0 to {side - 1} px, got --shift-px {shift_px}")
        return evaluate(
            network, images, name=inputs.name, dataset=dataset,
            baselines={one.name: one.model for one in with_baselines(inputs)[1:]}, fit=fit,
            shift_px=shift_px, seeds=seeds, seed=seed, progress=progress,
            **training_images(inputs, fit),
        )  # fmt: skip

    def parts(self, result):
        """Return "paths" too, where there is a decoder."""
        decoded = result.cycle is not None or result.path_read is not None
        return ("", "paths") if decoded else ("",)

    def draw(self, result, *, width=7.16, part=""):
        """Draw probes and their controls, or what the decoder makes of poses."""
        from capsviz.analyses.probes import draw

        return (draw.paths if part == "paths" else draw.sheet)(result, width)

    def verdict(self, result) -> str:
        """Compare the pose with untrained networks, and its axes with random axes."""
        from capsviz.analyses.probes.draw import NAMES

        fresh = [s for s, name in enumerate(result.sources) if "freshly initialised" in name]
        difference, parts = result.r2.difference, []
        if fresh:
            known = [
                NAMES.get(measure, measure)
                for j, measure in enumerate(result.measures)
                if all(difference.high[s, j] < 0 for s in fresh)
            ]
            what = in_a_row(known) if known else "no measure"
            parts.append(f"The pose tells {what} clearly better than untrained networks do.")
        if result.disentanglement.difference is not None:  # of several classes
            gap = result.disentanglement.difference[1]
            no = "" if float(gap.high) < 0 else "not clearly "
            parts.append(f"Its axes are {no}more disentangled than axes drawn at random.")
        return " ".join([*parts, *map(sentence, result.notes)])

    def caption(self, result, part="") -> str:
        """Return what a picture shows, and what its intervals are over."""
        if part == "paths":
            return (
                "R² of the pose when its reconstruction is encoded again. Activation of the class "
                "and distance to the nearest image of the class, along straight paths between two "
                f"poses and along cross-fades. Bars and bands: 95 % intervals over {result.n:,} "
                f"images of {result.dataset} and {result.couples} pairs (bootstrap)."
            )
        drawn = f" and over {result.seeds} untrained networks" if result.seeds > 1 else ""
        return (
            "R² of ridge regressions from the pose of the predicted class to measures of the image "
            "(filled), and of the control task, the measures of other images (hollow). At the "
            "right, disentanglement and completeness (DCI), also of the pose rotated at random. "
            f"Bars: 95 % intervals over {result.n:,} images of {result.dataset}{drawn} "
            "(bootstrap; DCI: Student's t over classes)."
        )


class Errors(NamedTuple):
    """Squared errors of M measures of the images of one fold and class."""

    real: np.ndarray  # (n, M)
    spread: np.ndarray  # (n, M) of the mean of the class
    control: np.ndarray  # (a, M) of other images' measures, mean over labellings
    control_spread: np.ndarray  # (a, M)


@on_one_thread
def evaluate(
    model, images, *, name, dataset, baselines=None, fit_images=None, fit_labels=None, fit=FIT,
    shift_px=2, seeds=3, seed=0, progress=iter,
) -> Statistics:  # fmt: skip
    """Probe the poses of N images (N, C, H, W), and others to fit on.

    Parameters
    ----------
    name        of the network.
    baselines   name -> network without capsules.
    fit_images  (M, C, H, W) that none of the images is among; None: their halves take turns.
    fit_labels  (M,) their true classes.
    fit         that they are so many of each class, for the record.
    shift_px    that all images are shifted by, at most, in whole pixels; 0: not at all.
    seeds       untrained networks of each preset, and draws of rotated poses.
    seed        of shifts, control tasks, untrained networks and the bootstrap.

    Raises
    ------
    ValueError  where no class is predicted often enough.
    """
    from capsviz.analyses.probes import paths, vectors
    from capsviz.tracing import reconstructs

    begin = time.perf_counter()
    data = vectors.gather(model, images, fit_images, shift_px=shift_px, seed=seed)
    groups = grouped(data)
    if not groups:
        raise ValueError(
            f"the network predicts no class often enough: expected {LEAST} images of one to fit on "
            "and 2 to measure"
        )
    every, notes = vectors.kinds(
        model, name, baselines or {}, data, seeds=range(seed, seed + seeds), progress=progress
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
    rotated = [rotations(data, groups, [seed, 1, k]) for k in range(max(1, seeds))]
    codes = [[code for _, code in some] for some in tested]
    codes.insert(1, rotated)
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
    notes = [*data.notes, *notes]
    if measured < data.n:
        notes.append(
            f"{data.n - measured} of {data.n} images are predicted as a class that is too rare"
        )
    decoded: dict = {}
    if reconstructs(model):
        real = None if fit_images is None else (fit_images.cpu(), fit_labels.cpu())
        shown = images.cpu()
        once = {"seed": seed, "looked": paths.poses_and_classes(model, shown)}
        back = paths.cycle(model, shown, **once)
        led = paths.along(model, shown, real, **once, progress=progress)
        notes += [note for part in (back, led) for note in part.pop("notes", [])]
        decoded = {**back, **led}
    else:
        notes.append("no decoder: neither cycle nor paths")
    return Statistics(
        measures=list(vectors.MEASURES),
        sources=names,
        dimensions=widths,
        **fields_over_draws(drawn),
        codes=[name, f"{name} {TURNED}", *names[1:]],
        spread=np.sqrt(tested[0][0][0].spread.mean(0)),
        n=measured,
        fitted=sum(len(rows) for _, rows, _ in groups) // len(data.folds),
        fit_of=f"training images, up to {fit} of each class"
        if fit_images is not None
        else "images (the halves take turns)",
        probed=len(set(probed)),
        shift_px=shift_px,
        seeds=seeds if any("freshly" in one for one in names) else 0,
        dataset=dataset,
        notes=notes,
        **decoded,
        seconds=round(time.perf_counter() - begin, 1),
    )


def grouped(data) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return rows measured, rows fitted on, rows of the control task, by fold and class."""
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
    """Return the errors of probes of vectors (X, F), of all groups, and the `dci` of each.

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


def rotations(data, groups, seed: Sequence[int]) -> list:
    """Return the `dci` of the pose rotated at random, of each group."""
    draw = np.random.default_rng(seed)
    return [dci.dci(dci.rotated(data.poses[fit], draw), data.factors[fit]) for _, fit, _ in groups]


def components(parts: list[np.ndarray], count: int) -> list[np.ndarray]:
    """Return vectors of test, fit and control task by the principal components of the fit."""
    from sklearn.decomposition import PCA

    count = min(count, *parts[1].shape)
    axes = PCA(count, svd_solver="full").fit(parts[1])
    return [axes.transform(part).astype(float) for part in parts]


def probe(test, fit, again, factors, fit_factors, of_again, draw) -> Errors:
    """Fit ridge regressions from vectors of one class to its measures, and to those of others.

    The control task has the penalties of the measures: chosen for itself, they would let nothing be
    memorised.

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
    """Return R2 of the measures, of the control task, and selectivity, from S kinds' errors."""
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
    """Return an estimate cut off from below: R2 below 0 says no more than 0."""
    return Estimate(np.maximum(one.value, floor), np.maximum(one.ci95, floor))


def concentrated(codes, classes) -> dict:
    """Return means of disentanglement and completeness over classes, with Student's intervals.

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
