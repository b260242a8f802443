"""All scores of one network, as the fields of a result."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch

from capsviz import checkpoint
from capsviz.analyses.binding import measure
from capsviz.analyses.binding.measure import CAPSULES, CEILING, COUPLING, FLOOR, SEES
from capsviz.data import assemblies
from capsviz.experiments import wholes as truth
from capsviz.statistics.comparison import compare_explained, draw_resamples
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.intervals import student, wilson
from capsviz.transforms.augment import to_float

SERIES, MAPPED = 100, 50  # images of a series of turns, and of maps, at most
BINS_DEG = (0, 30, 60, 90, 120, 150, 180)


def evaluate(model, n: int, options: dict, seed: int, progress=iter) -> dict:
    """Measure a network on images that `assemblies` makes with these options from the seed."""
    if n < measure.COMPONENTS:
        raise ValueError(f"binding needs at least {measure.COMPONENTS} images, got {n}")
    grid = truth.grid_of(model)
    parts, apart = options["parts"], assemblies.APART_PX[options["distance"]]
    one, outside = (
        assemblies.make(split, n, **options, seed=seed) for split in ("test", "test-outside")
    )
    two = assemblies.make("test", n, objects=2, **options, seed=seed)
    known = assemblies.make("train", max(n, 100), objects=2, **options, seed=seed)
    left_out = []
    try:
        fresh = checkpoint.fresh(model, seed, images=to_float(one.images[:64]))
    except ValueError as error:
        fresh, left_out = None, [f"no untrained network: {error}"]

    seen, found = measure.see(two, grid), measure.of_positions(model, two, progress=progress)
    elsewhere = measure.of_positions(model, known, (COUPLING,))
    scores = {name: found[name] for name in measure.OF_ROUTING}
    scores[measure.PRIOR] = elsewhere[COUPLING].sum(0).expand_as(found[COUPLING])
    if fresh is not None:
        scores[measure.UNTRAINED] = measure.of_positions(fresh, two, (COUPLING,))[COUPLING]
    scores[measure.ALONE] = measure.alone(
        elsewhere[CAPSULES], known, measure.see(known, grid), found[CAPSULES], grid, seed
    )
    areas = {
        name: measure.right(measure.between(one, two.classes), *seen, two)
        for name, one in scores.items()
    }
    for name, poses in ((CEILING, True), (FLOOR, False)):
        areas[name] = measure.of_truth(two, parts, apart, poses)

    seen = measure.see(one, grid)
    changes, spread, unequal, own = measure.context(model, one, seen, grid, progress)
    pairs = {name: (change, spread) for name, change in zip(SEES, changes, strict=True)}
    fit = assemblies.make("validation", n, **options, seed=seed)

    def said(network, within):  # of the images of the fit, inside and outside
        return [measure.answered(network, fit), within, measure.answered(network, outside)]

    answers = {"pose": said(model, own)}
    if fresh is not None:
        (change, _), spread, _, other = measure.context(fresh, one, seen, grid)
        pairs[f"{SEES[0]}, untrained"] = change, spread
        answers["pose, untrained network"] = said(fresh, other)
    rounds = changes.shape[1]
    for name, poses in ((CEILING, True), (FLOOR, False)):
        change = measure.true_context(one, parts, apart, poses)
        wanted = np.linspace(0, len(change) - 1, rounds).round().astype(int)
        pairs[name] = change[wanted], np.nan
    changes, spreads = map(np.stack, zip(*pairs.values(), strict=True))
    follows = np.where(np.isnan(changes), np.nan, (np.sign(changes) + 1) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = changes / spreads[:, None, None]

    some, few = _first(one, SERIES), _first(one, MAPPED)
    turned = measure.when_turned(model, some)
    accuracy, agreement = measure.when_moved(model, some, grid)
    vectors = {name: [each["poses"] for each in rows] for name, rows in answers.items()}
    vectors[f"{measure.COMPONENTS} components of pixels"] = measure.components(fit, [one, outside])
    counts, explained = draw_resamples(n, seed=seed), []
    for three in vectors.values():  # of the images of the fit, and of both that it is measured on
        errors = measure.pose_errors(list(zip(three, (fit, one, outside), strict=True)))
        explained.append(stack(compare_explained(*each, counts).undrawn() for each in errors))
    maps, names, lacking = measure.relevance(model, few, grid, seed, progress)
    angles = torch.rad2deg(torch.cat([one.poses[:, 0, 2], outside.poses[:, 0, 2]])).abs().numpy()
    right = torch.cat([each["right"] for each in answers["pose"][1:]])
    bins = [(angles >= low) & (angles < high) for low, high in pairwise(BINS_DEG)]
    in_bins = np.stack([np.where(chosen, right.numpy(), np.nan) for chosen in bins])
    return dict(
        scored=list(areas),
        subsets=list(measure.SUBSETS),
        assignment=_mean(np.stack(list(areas.values())), 0, 1),
        pairs=list(pairs),
        iterations=[f"iteration {k + 1}" for k in range(rounds)],
        follows=_mean(follows, 0, 1),
        change=_mean(sizes),
        unequal=unequal,
        answers=["its class", "the class of the same parts", "another class"],
        angles_deg=list(measure.ANGLES_DEG),
        turned=_mean(turned, 0, 1),
        distances_px=list(measure.DISTANCES_PX),
        accuracy=_mean(accuracy, 0, 1),
        agreement=_mean(agreement, -1, 1),
        vectors=list(vectors),
        pose=list(measure.POSE),
        explained=stack(explained),
        ranges=["rotations of training", "other rotations"],
        maps=names,
        relevance=_mean(maps, 0, 1),
        viewpoint=_mean(right.double().numpy().reshape(2, -1), 0, 1),
        by_angle=_mean(in_bins, 0, 1),
        bins=[f"{low}–{high}°" for low, high in pairwise(BINS_DEG)],
        **_example(model, two, grid),
        left_out=[*left_out, *lacking],
        distance=options["distance"],
        n=n,
        dataset="assemblies",
    )


def _mean(values: np.ndarray, low: float = -np.inf, high: float = np.inf) -> Estimate:
    """Mean over images (..., N), NaN left out: Wilson's interval of shares, else Student's.

    Shares are values of 0, 1/2 and 1.
    """
    flat = values.reshape(-1, values.shape[-1])
    means, ends = np.full(len(flat), np.nan), np.full((len(flat), 2), np.nan)
    for k, one in enumerate(flat):
        known = one[np.isfinite(one)]
        if len(known) < 2:
            continue
        means[k], n = known.mean(), len(known)
        if (known == 0.5).all():  # by definition
            ends[k] = 0.5
        elif np.isin(known, (0, 0.5, 1)).all():
            ends[k] = wilson(known.sum(), n)
        else:
            half = student(n) * known.std(ddof=1) / np.sqrt(n)
            ends[k] = np.clip([means[k] - half, means[k] + half], low, high)
    shape = values.shape[:-1]
    return Estimate(means.reshape(shape), ends.reshape(*shape, 2), values.shape[-1])


def _first(made, n: int):
    return type(made)(*(values[:n] for values in made))


def _example(model, two, grid) -> dict:
    """The first image of two wholes of unlike parts, and the wholes of its positions."""
    unlike = truth.partner(two.classes[:, 0]) != two.classes[:, 1]
    one = type(two)(*(values[unlike][:1] for values in two))
    less = measure.of_positions(model, one, (COUPLING,))[COUPLING]
    less, true = measure.between(less, one.classes)[0], measure.see(one, grid).whole[0]
    found = torch.where(true < 0, -1, (less < 0).long())
    return {
        "example_image": one.images[0].numpy(),
        "example_true": true.numpy(),
        "example_assigned": torch.where(found == true, true, 2).numpy(),
    }
