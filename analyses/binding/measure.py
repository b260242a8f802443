"""Measures of `binding`: scores of routing against the ground truth of parts and wholes."""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression, RidgeCV
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.nn.functional import normalize

from capsviz import checkpoint
from capsviz.data import assemblies
from capsviz.data.assemblies import CLASSES, SIDE, Assemblies, render
from capsviz.experiments import maps as attribution
from capsviz.experiments import wholes as truth
from capsviz.experiments.wholes import Grid
from capsviz.statistics.comparison import compare_explained, draw_resamples
from capsviz.statistics.detection import auroc
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.intervals import student, wilson
from capsviz.tracing import Trace, evidence, from_children, parents, scores, trace
from capsviz.tracing.needs import missing
from capsviz.transforms.augment import to_float

CHUNK = 50  # images per forward pass with votes
PROBED = 20_000  # at most so many positions are used to fit the probe of single positions
NOTHING = 1e-6  # share of the largest coupling; smaller differences are rounding errors
COUPLING, LONG, EVIDENCE = "coupling", "coupling times length of the vote", "evidence"
AGREEMENT, UNIFORM = "agreement", "evidence with uniform couplings"
OF_ROUTING = (COUPLING, LONG, EVIDENCE, AGREEMENT, UNIFORM)
CEILING, FLOOR = "votes from the true poses", "votes from part types alone"
UNTRAINED, CAPSULES = "coupling, untrained network", "capsules"
ALONE, PRIOR, LENGTH = "one position alone (probe)", "mean coupling of other images", "|u|"
TREE, REMOVED = "parse tree: largest coupling", "removal of the position"
GIVEN = "couplings of another image at the position"
TRIED = 4  # one in so many positions is removed
SUBSETS = ("all parts", "types in both wholes", "two classes of the same parts")
SEES = ("positions of the other part", "positions of a distractor")
ANGLES_DEG, DISTANCES_PX = range(0, 181, 20), range(0, 11, 2)
POSE = ("position", "angle", "scale")
PENALTIES = np.logspace(-4, 4, 9)  # of ridge regression
COMPONENTS = 16  # principal components of pixels, as many as a pose has numbers
SERIES, MAPPED = 100, 50  # at most so many images for rotations and shifts, and for maps
BINS_DEG = (0, 30, 60, 90, 120, 150, 180)


class Seen(NamedTuple):
    """The part and the whole that each position (rows, columns) sees most of, in N images."""

    part: Tensor  # (N, rows, columns) index of the part; -1: none
    whole: Tensor  # (N, rows, columns) index of its whole; -1: none, or a distractor


def see(made: Assemblies, grid: Grid) -> Seen:
    """Return the part and the whole that each position sees most of."""
    return Seen(*made.seen(grid.centres, grid.field_px))


def collected(look, images: Tensor, progress=iter) -> dict[str, Tensor]:
    """Return the joined results (N, ...) of `look(images, rows)` over batches, by name.

    `look` gets a batch of the images (N, 1, H, W) uint8, scaled to [0, 1], and its indices.
    """
    batches = progress(torch.arange(len(images)).split(CHUNK))
    found = [look(to_float(images[rows]), rows) for rows in batches]
    return {name: torch.cat([one[name] for one in found]) for name in found[0]}


def by_position(values: Tensor, grid) -> Tensor:
    """Add up values (N, I, ...) over capsule types: (N, rows, columns, ...) double."""
    return values.double().cpu().unflatten(1, grid).sum(1)


def score(traced: Trace, name: str) -> Tensor:
    """Return a score of `OF_ROUTING` of positions for classes, (N, rows, columns, J).

    `UNIFORM` is `EVIDENCE` of a trace with uniform couplings.
    """
    values = traced.require("couplings")[-1]
    if name == LONG:
        values = values * traced.require("votes").norm(dim=-1)
    elif name in (EVIDENCE, UNIFORM):
        values = evidence.of_children(traced)
    elif name == AGREEMENT:
        direction = normalize(traced.require("poses")[-1], dim=-1)
        values = torch.einsum("bije,bje->bij", traced.require("votes"), direction)
    return by_position(values, traced.grid)


def capsules(traced: Trace) -> Tensor:
    """Return the capsules of each position with their activations, (N, rows, columns, F)."""
    children, active = traced.require("children"), traced.require("child_activations")
    joined = torch.cat([children, active[..., None]], 2).cpu().float()
    return joined.unflatten(1, traced.grid).permute(0, 2, 3, 1, 4).flatten(3)


def of_positions(model, made: Assemblies, names=OF_ROUTING, progress=iter) -> dict[str, Tensor]:
    """Return scores of all positions by name, and `CAPSULES`."""
    parts = ("couplings",) if [*names] == [COUPLING] else evidence.PARTS

    def look(images, _):
        whole = trace(model, images, keep=(*parts, "children", "child_activations"))
        found = {CAPSULES: capsules(whole)}
        for name in names:
            how = "uniform" if name == UNIFORM else None
            traced = whole if how is None else trace(model, images, keep=parts, couplings=how)
            found[name] = score(traced, name)
        return found

    return collected(look, made.images, progress)


def between(values: Tensor, classes: Tensor) -> Tensor:
    """Return values (N, ..., J) of the first class of each image (N, 2) minus the second's."""
    picked = [values[torch.arange(len(values)), ..., classes[:, k]] for k in (0, 1)]
    return picked[0] - picked[1]


def right(scored: Tensor, part: Tensor, whole: Tensor, made: Assemblies) -> np.ndarray:
    """Return AUROC (3, N) of scores (N, ...), which should be high at the first whole.

    `part` and `whole` (N, ...) are the part and the whole of each score, as in `Seen`. The three
    rows are those of `SUBSETS`.
    """
    scored, part, whole = scored.flatten(1), part.flatten(1), whole.flatten(1)
    own, kinds = made.part_wholes, made.part_types
    like = kinds[:, :, None] == kinds[:, None]  # (N, P, P)
    both = (like & (own == 0)[:, None]).any(2) & (like & (own == 1)[:, None]).any(2)
    same = truth.partner(made.classes[:, 0]) == made.classes[:, 1]
    subsets = whole >= 0, both.gather(1, part.clamp(0)), same[:, None]
    pairs = [((whole == 0) & among, (whole == 1) & among) for among in subsets]
    return np.stack([_areas(scored, *pair) for pair in pairs])


@threadpool_limits.wrap(1, user_api="blas")  # BLAS threads spin while they wait for each other
def alone(known: Tensor, made: Assemblies, seen: Seen, capsules: Tensor, grid: Grid, seed: int):
    """Return log-probabilities (N, rows, columns, J) of classes from single positions, by a probe.

    A logistic regression predicts the class of the whole that a position sees from its `capsules`
    (N, rows, columns, F) and coordinates. It is fitted on the images `made`, whose capsules are
    `known`, and what they see is `seen`.
    """
    whole = seen.whole.flatten()
    chosen = (whole >= 0).nonzero().flatten()
    draw = torch.Generator().manual_seed(seed)
    chosen = chosen[torch.randperm(len(chosen), generator=draw)[:PROBED]]
    image = chosen // grid.centres[..., 0].numel()
    probe = LogisticRegression(max_iter=300)
    probe.fit(_at_places(known, grid)[chosen].numpy(), made.classes[image, whole[chosen]].numpy())
    values = torch.full((*capsules.shape[:3], len(CLASSES)), -torch.inf, dtype=torch.double)
    logits = probe.predict_log_proba(_at_places(capsules, grid).numpy())
    values[..., probe.classes_] = torch.from_numpy(logits).double().unflatten(0, values.shape[:3])
    return values


def _at_places(capsules: Tensor, grid: Grid) -> Tensor:
    """Return the capsules and coordinates of each position of each image."""
    centres = (grid.centres.float() / SIDE).expand(len(capsules), -1, -1, -1)
    return torch.cat([capsules, centres], 3).flatten(0, 2)


def of_truth(made: Assemblies, parts: int, apart_px: float, poses: bool) -> np.ndarray:
    """Return AUROC like `right`, for couplings from votes of the true poses, or of part types."""
    votes = truth.true_votes(made, parts, apart_px, poses=poses)
    scored = between(truth.routed(votes)[-1], made.classes)
    N, P = made.part_types.shape
    return right(scored, torch.arange(P).expand(N, P), made.part_wholes, made)


def answers(poses: Tensor, activations: Tensor, classes: Tensor) -> dict[str, Tensor]:
    """Return the poses (N, E) of the true class, and whether it is predicted (N,).

    Arguments are poses (N, J, E) and activations (N, J), and the classes (N, W) of the images.
    """
    own = classes[:, 0]
    right = activations.argmax(1) == own
    return {"poses": poses[torch.arange(len(own)), own].cpu().double(), "right": right}


def context(model, made: Assemblies, seen: Seen, grid: Grid, progress=iter):
    """Measure whether the couplings of a position change with a part that it does not see.

    In the second image of a pair the second part is rotated, which turns class A into its partner
    B. Let d be the coupling to A minus that to B. The change is d in the image of A minus d in the
    image of B. It is averaged over positions that see equal pixels in both images, and that see
    most of the first part, or of a distractor.

    Returns
    -------
    change   (2, R, N) for both of `SEES`; NaN without such a position.
    sd       standard deviation of d over all positions, in the last iteration.
    unequal  largest difference of a capsule between the images.
    found    dict with `answers` for the first images.
    """
    other = truth.rotated(made)
    same = truth.same_field(made.images, other.images, grid)
    masks = [same & (seen.part == 0), same & (seen.part >= 0) & (seen.whole < 0)]
    classes = torch.stack([made.classes[:, 0], truth.partner(made.classes[:, 0])], 1)

    def look(images, rows):
        first, second = (
            trace(model, x, keep=("couplings", "children", "poses", "lengths"))
            for x in (images, to_float(other.images[rows]))
        )
        less = [
            torch.stack(
                [between(by_position(c, t.grid), classes[rows]) for c in t.require("couplings")]
            )
            for t in (first, second)
        ]
        change = less[0] - less[1]
        change[change.abs() <= NOTHING * float(first.require("couplings").max())] = 0
        changes = torch.stack([_mean_where(change, mask[rows]) for mask in masks])
        apart = first.require("children") - second.require("children")
        apart = apart.abs().amax(2).cpu().unflatten(1, first.grid).amax(1) * masks[0][rows]
        found = answers(first.require("poses")[-1], first.require("lengths"), made.classes[rows])
        return {"change": changes.movedim(2, 0), "own": less[0][-1], "apart": apart, **found}

    found = collected(look, made.images, progress)
    change = found["change"].movedim(0, 2).numpy()
    return change, float(found["own"].std()), float(found["apart"].max()), found


def _mean_where(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean (R, N) of values (R, N, rows, columns) over a mask; NaN if it is empty."""
    total = torch.where(mask, values, 0.0).sum((2, 3))
    return total / torch.where(mask.any((1, 2)), mask.sum((1, 2)), torch.nan)


def true_context(made: Assemblies, parts: int, apart_px: float, poses: bool) -> np.ndarray:
    """Return the change (R, N) of `context` for votes from the true poses, or from part types."""
    classes = torch.stack([made.classes[:, 0], truth.partner(made.classes[:, 0])], 1)
    less = []
    for one in (made, truth.rotated(made)):
        couplings = truth.routed(truth.true_votes(one, parts, apart_px, poses=poses))
        less.append(torch.stack([between(c, classes) for c in couplings]).double())
    change = less[0] - less[1]
    change[change.abs() <= NOTHING] = 0
    return change[..., 0].numpy()


def when_rotated(model, made: Assemblies) -> np.ndarray:
    """Return predictions (3, A, N), 0 or 1, of the class, its partner, any other, by angle."""
    own, rows = made.classes[:, 0], []
    for angle in ANGLES_DEG:
        images = to_float(truth.rotated(made, math.radians(angle)).images)
        found = scores(model, images).argmax(1)
        is_own, is_partner = found == own, found == truth.partner(own)
        rows.append(torch.stack([is_own, is_partner, ~(is_own | is_partner)]))
    return torch.stack(rows, 1).double().numpy()


def when_moved(model, made: Assemblies, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Return accuracy (D, N) and agreement of the other part's positions (D, N), by distance.

    Images that do not show the part completely at the largest distance are NaN.
    """
    whole, own = truth.inside(truth.moved(made, DISTANCES_PX[-1])), made.classes[:, 0]
    accuracy, agreement = [], []

    def look(images, rows):
        traced = trace(model, images, keep=(*evidence.PARTS, "lengths"))
        agreed = score(traced, AGREEMENT)[torch.arange(len(images)), ..., own[rows]]
        return {"agreed": agreed, "right": traced.require("lengths").argmax(1) == own[rows]}

    for distance in DISTANCES_PX:
        one = truth.moved(made, distance)
        mask = see(one, grid).part == 0
        found = collected(look, one.images)
        accuracy.append(torch.where(whole, found["right"].double(), torch.nan))
        agreement.append(torch.where(whole, _mean_where(found["agreed"][None], mask)[0], torch.nan))
    return torch.stack(accuracy).numpy(), torch.stack(agreement).numpy()


def pose_errors(rows: list[tuple[Tensor, Assemblies]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return squared errors and spreads (3, N) of true poses that ridge regression predicts.

    Each row has vectors (N, E) and their images. The regression is fitted on the first row and
    predicts the others. The first axis is `POSE`.
    """
    (fit, made), *tests = rows
    ridge = RidgeCV(PENALTIES).fit(fit.numpy(), _targets(made))

    def of_pose(squares):
        return np.stack([squares[:, :2].sum(1), squares[:, 2:4].sum(1), squares[:, 4]])

    found = []
    for vectors, made in tests:
        known = _targets(made)
        off, spread = ridge.predict(vectors.numpy()) - known, known - known.mean(0)
        found.append((of_pose(off**2), of_pose(spread**2)))
    return found


def _targets(made: Assemblies) -> np.ndarray:
    """Return x, y, cosine and sine of the angle, and scale of the first whole: (N, 5)."""
    x, y, angle, scale = made.poses[:, 0].double().unbind(1)
    return torch.stack([x, y, angle.cos(), angle.sin(), scale], 1).numpy()


def components(fit: Assemblies, others: list[Assemblies]) -> list[Tensor]:
    """Return principal components of pixels (N, 16) of `fit` and others; PCA is fitted on `fit`."""
    from sklearn.decomposition import PCA  # takes time to import

    pixels = [one.images.flatten(1).double().numpy() for one in (fit, *others)]
    n = len(pixels[0])
    few = PCA(min(COMPONENTS, n), svd_solver="arpack" if n > COMPONENTS else "full", random_state=0)
    few.fit(pixels[0])
    return [torch.from_numpy(few.transform(one)) for one in pixels]


def relevance(model, made: Assemblies, grid: Grid, seed: int, progress=iter):
    """Return AUROC (M, N) of maps for the whole against distractors, names (M,), and gaps.

    Maps of positions are scored at positions that see most of a part of either, and maps of pixels
    at lit pixels of either. The gaps are sentences on maps that the network does not have.
    """
    methods, left_out = attribution.methods(model, to_float(made.images[:1]), seed)
    lacks = missing(model, ("from_children", "interventions"))
    left_out += [f"no effects of single positions: it lacks {one}" for one in lacks]
    seen, own = see(made, grid), made.classes[:, 0]
    free = made.part_brightness.where(made.part_wholes < 0, 0.0)
    of_whole, of_free = made.alone(0)[:, 0], render(made.part_types, made.part_poses, free)[:, 0]
    masks = {
        False: (seen.whole == 0, (seen.part >= 0) & (seen.whole < 0)),
        True: (of_whole > of_free, of_free > of_whole),
    }

    def look(images, rows):
        classes = own[rows]
        parts = (*evidence.PARTS, "children", "child_activations")
        traced, each = trace(model, images, keep=parts), torch.arange(len(images))
        maps = {k: score(traced, k)[each, ..., classes] for k in OF_ROUTING[:-1]}
        maps[LENGTH] = by_position(traced.require("children").norm(dim=2), traced.grid)
        largest = traced.require("couplings")[-1].argmax(2) == classes[:, None]
        maps[TREE] = by_position(largest, traced.grid)
        if not lacks:
            maps |= effects(model, traced, classes, (masks[False][0] | masks[False][1])[rows])
        pixels = {f"{n} (pixels)": method(images, classes).order for n, method in methods.items()}
        return maps | pixels

    found = collected(look, made.images, progress)
    areas = [_areas(one, *masks[name.endswith("(pixels)")]) for name, one in found.items()]
    return np.stack(areas), list(found), left_out


def effects(model, traced: Trace, classes: Tensor, wanted: Tensor) -> dict[str, Tensor]:
    """Return the effect of each position on the activation of a class, (N, rows, columns) by name.

    The capsules of a position are replaced by their mean over these images, or get the couplings
    of the next image. Only every fourth of the positions `wanted` is tested; the others are NaN.
    """
    active, positions = traced.require("child_activations"), wanted[0].numel()
    own, couplings = traced.require("children"), traced.require("couplings")[-1]
    means = own.mean(0), active.mean(0)
    found = torch.full((2, len(own), positions), torch.nan, dtype=torch.double)
    position = torch.arange(own.shape[1]) % positions
    for b, c in enumerate(classes.tolist()):
        chosen = wanted[b].flatten().nonzero().flatten()[::TRIED]
        at = position == torch.cat([torch.tensor([-1]), chosen])[:, None]  # the first row: none
        removed = own[b].where(~at[..., None], means[0]), active[b].where(~at, means[1])
        given = couplings[b].where(~at[..., None], couplings[(b + 1) % len(own)])
        unchanged = own[b].expand_as(removed[0]), active[b].expand_as(removed[1])
        changed = (removed, None), (unchanged, given)
        for row, (children, how) in zip(found, changed, strict=True):
            left = from_children(model, *children, couplings=how)[:, c].double()
            row[b, chosen] = left[0] - left[1:]
    return dict(zip((REMOVED, GIVEN), found.unflatten(2, wanted.shape[1:]), strict=True))


def _areas(values: Tensor, first: Tensor, second: Tensor) -> np.ndarray:
    """Return AUROC (N,) of values (N, ...) at the positions `first` against those at `second`.

    The masks are disjoint. Values that are not finite are left out; NaN if none is left.
    """
    known = values.isfinite()
    masks = ((chosen & known).flatten(1).numpy() for chosen in (second, first))
    rows = zip(values.flatten(1).double().numpy(), *masks, strict=True)
    with np.errstate(invalid="ignore"):
        return np.array([auroc(one[low], one[high]) for one, low, high in rows])


def evaluate(model, n: int, options: dict, seed: int, progress=iter) -> dict:
    """Return the fields of a result for images of `assemblies` with these options and seed."""
    if n < COMPONENTS:
        raise ValueError(f"binding needs at least {COMPONENTS} images, got {n}")
    grid = truth.grid_of(model)
    parts, apart = options["parts"], assemblies.APART_PX[options["distance"]]
    one, outside = (
        assemblies.make(split, n, **options, seed=seed) for split in ("test", "test-outside")
    )
    two = assemblies.make("test", n, objects=2, **options, seed=seed)
    known = assemblies.make("train", max(n, 100), objects=2, **options, seed=seed)
    left_out = []
    try:
        untrained = checkpoint.untrained_like(model, seed, images=to_float(one.images[:64]))
    except ValueError as error:
        untrained, left_out = None, [f"no untrained network: {error}"]

    seen, found = see(two, grid), of_positions(model, two, progress=progress)
    elsewhere = of_positions(model, known, (COUPLING,))
    scores = {name: found[name] for name in OF_ROUTING}
    scores[PRIOR] = elsewhere[COUPLING].sum(0).expand_as(found[COUPLING])
    if untrained is not None:
        scores[UNTRAINED] = of_positions(untrained, two, (COUPLING,))[COUPLING]
    scores[ALONE] = alone(elsewhere[CAPSULES], known, see(known, grid), found[CAPSULES], grid, seed)
    areas = {name: right(between(one, two.classes), *seen, two) for name, one in scores.items()}
    for name, poses in ((CEILING, True), (FLOOR, False)):
        areas[name] = of_truth(two, parts, apart, poses)

    seen = see(one, grid)
    changes, spread, unequal, own = context(model, one, seen, grid, progress)
    pairs = {name: (change, spread) for name, change in zip(SEES, changes, strict=True)}
    fit = assemblies.make("validation", n, **options, seed=seed)

    def outputs(network, within):  # for the images of the fit, inside and outside
        before, after = (
            answers(*parents(network, to_float(made.images)), made.classes)
            for made in (fit, outside)
        )
        return [before, within, after]

    outputs_of = {"pose": outputs(model, own)}
    if untrained is not None:
        (change, _), spread, _, other = context(untrained, one, seen, grid)
        pairs[f"{SEES[0]}, untrained"] = change, spread
        outputs_of["pose, untrained network"] = outputs(untrained, other)
    iterations = changes.shape[1]
    for name, poses in ((CEILING, True), (FLOOR, False)):
        change = true_context(one, parts, apart, poses)
        wanted = np.linspace(0, len(change) - 1, iterations).round().astype(int)
        pairs[name] = change[wanted], np.nan
    changes, spreads = map(np.stack, zip(*pairs.values(), strict=True))
    follows = np.where(np.isnan(changes), np.nan, (np.sign(changes) + 1) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = changes / spreads[:, None, None]

    some, few = (Assemblies(*(values[:most] for values in one)) for most in (SERIES, MAPPED))
    rotated = when_rotated(model, some)
    accuracy, agreement = when_moved(model, some, grid)
    vectors = {name: [each["poses"] for each in rows] for name, rows in outputs_of.items()}
    vectors[f"{COMPONENTS} components of pixels"] = components(fit, [one, outside])
    counts, explained = draw_resamples(n, seed=seed), []
    for three in vectors.values():  # for the images of the fit, inside and outside
        errors = pose_errors(list(zip(three, (fit, one, outside), strict=True)))
        explained.append(stack(compare_explained(*each, counts).undrawn() for each in errors))
    maps, names, lacking = relevance(model, few, grid, seed, progress)
    angles = torch.rad2deg(torch.cat([one.poses[:, 0, 2], outside.poses[:, 0, 2]])).abs().numpy()
    correct = torch.cat([each["right"] for each in outputs_of["pose"][1:]])
    bins = [(angles >= low) & (angles < high) for low, high in pairwise(BINS_DEG)]
    in_bins = np.stack([np.where(chosen, correct.numpy(), np.nan) for chosen in bins])
    return dict(
        scored=list(areas),
        subsets=list(SUBSETS),
        assignment=_mean(np.stack(list(areas.values())), 0, 1),
        pairs=list(pairs),
        iterations=[f"iteration {k + 1}" for k in range(iterations)],
        follows=_mean(follows, 0, 1),
        change=_mean(sizes),
        unequal=unequal,
        answers=["its class", "the class of the same parts", "another class"],
        angles_deg=list(ANGLES_DEG),
        rotated=_mean(rotated, 0, 1),
        distances_px=list(DISTANCES_PX),
        accuracy=_mean(accuracy, 0, 1),
        agreement=_mean(agreement),
        vectors=list(vectors),
        pose=list(POSE),
        explained=stack(explained),
        ranges=["rotations of training", "other rotations"],
        maps=names,
        relevance=_mean(maps, 0, 1),
        viewpoint=_mean(correct.double().numpy().reshape(2, -1), 0, 1),
        by_angle=_mean(in_bins, 0, 1),
        bins=[f"{low}–{high}°" for low, high in pairwise(BINS_DEG)],
        **_example(model, two, grid),
        left_out=[*left_out, *lacking],
        distance=options["distance"],
        n=n,
        dataset="assemblies",
    )


def _mean(values: np.ndarray, low: float = -np.inf, high: float = np.inf) -> Estimate:
    """Return means over images (..., N) without NaN, with Wilson's or Student's intervals.

    Wilson's are used if all values are 0, 1/2 or 1. If numbers of images differ, `n` is the
    largest.
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
    most = int(np.isfinite(flat).sum(1).max(initial=0))
    return Estimate(means.reshape(shape), ends.reshape(*shape, 2), most)


def _example(model, two, grid) -> dict:
    """Return the first image of two wholes with different parts, and the whole of each position."""
    differ = truth.partner(two.classes[:, 0]) != two.classes[:, 1]
    one = type(two)(*(values[differ][:1] for values in two))
    less = of_positions(model, one, (COUPLING,))[COUPLING]
    less, true = between(less, one.classes)[0], see(one, grid).whole[0]
    found = torch.where(true < 0, -1, (less < 0).long())
    return {
        "example_image": one.images[0].numpy(),
        "example_true": true.numpy(),
        "example_assigned": torch.where(found == true, true, 2).numpy(),
    }
