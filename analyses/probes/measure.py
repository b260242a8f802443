"""Linear probes of poses with their controls, poses encoded again, and paths between two poses."""

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from capsviz import checkpoint
from capsviz.analyses.probes import dci
from capsviz.analyses.probes.dci import LEAST
from capsviz.inputs.samples import halves
from capsviz.statistics.comparison import (
    compare_explained,
    compare_means,
    draw_resamples,
    student_means,
)
from capsviz.statistics.estimate import Estimate, less, stack
from capsviz.statistics.moments import Moments, moments, on_dark
from capsviz.statistics.runs import fields_over_draws
from capsviz.statistics.words import untrained_of
from capsviz.tracing import abilities, decode, features, parents, score_name, scores, trace
from capsviz.tracing.many import of_like_class
from capsviz.transforms import Fill
from capsviz.transforms.augment import to_uint8
from capsviz.transforms.warps import matrix, warp

PENALTIES = np.logspace(-4, 5, 19)  # of ridge regression on standardised vectors
LABELLINGS = 5  # random labellings of the control task
TINY = 1e-12  # standard deviation below which a value is constant
AGAIN = 50  # fitted images of a class that are shifted again and scored in the control task
T = torch.linspace(0, 1, 9)  # steps of a path, both ends included
COUPLES = 100  # pairs of images, at most: each needs two reconstructions a step
LOWEST = {  # smallest possible value of fields whose largest is 1
    **dict.fromkeys(("r2", "control", "selectivity", "informed"), -np.inf),
    **dict.fromkeys(("disentanglement", "completeness"), 0.0),
}
RETURNS = ("its reconstruction", "the image with noise", "another image's reconstruction")


class Data(NamedTuple):
    """X images: n measured ones, those fitted on, and some of the latter shifted again."""

    images: Tensor  # (X, C, H, W), shifted
    factors: np.ndarray  # (., M) measures; none for images shifted again
    classes: np.ndarray  # (X,) predicted classes; if shifted again, the first prediction
    poses: np.ndarray  # (X, E) of that class
    folds: list[tuple[np.ndarray, np.ndarray]]  # rows measured, rows fitted on
    again: dict[int, int]  # row of an image shifted again -> its row among those fitted on
    n: int
    notes: list[str]


def gather(
    model,
    images: Tensor,
    fit_images: Tensor | None,
    *,
    shift_px: int,
    seed: int,
    fill: Fill = "black",
) -> Data:
    """Shift images, measure them, and trace the pose of the predicted class.

    Images without foreground pixels are left out.
    """
    generator = torch.Generator().manual_seed(seed)
    images, notes = images.cpu(), []
    if not on_dark(images.numpy()):
        notes.append(
            "the images have no dark background: measures are moments of brightness, not of a shape"
        )
    whole = images if fit_images is None else torch.cat([images, fit_images.cpu()])
    moving = shifted(whole, shift_px, fill, generator)
    factors = np.stack(moments(moving.numpy()), 1)
    drawn = np.isfinite(factors).all(1)
    if not drawn.all():
        notes.append(f"{int((~drawn).sum())} images without foreground pixels are left out")
    n = int(drawn[: len(images)].sum())
    whole, moving, factors = whole[drawn], moving[drawn], factors[drawn]
    poses, predicted = poses_and_classes(model, moving)
    labels, rows = predicted.numpy(), np.arange(len(predicted))
    if fit_images is None:
        folds = halves(labels)
        notes.append("no training images: probes are fitted on each half of the images in turn")
    else:
        folds = [(rows[:n], rows[n:])]
    first = [
        fit[labels[fit] == k][:AGAIN] for _, fit in folds for k in np.unique(labels[fit])
    ]  # in the control task, a shifted image keeps its label
    tokens = np.concatenate(first)
    anew = shifted(whole[tokens], shift_px, fill, generator)
    classes = torch.cat([predicted, predicted[tokens]])
    poses = torch.cat([poses, poses_and_classes(model, anew)[0]])
    return Data(
        torch.cat([moving, anew]),
        factors,
        classes.numpy(),
        poses[torch.arange(len(classes)), classes].double().numpy(),
        folds,
        dict(zip(range(len(labels), len(labels) + len(tokens)), tokens.tolist(), strict=True)),
        n,
        notes,
    )


def shifted(images: Tensor, shift_px: int, fill: Fill, generator: torch.Generator) -> Tensor:
    """Return images shifted at random by up to `shift_px` whole pixels along each axis."""
    if shift_px == 0:
        return images
    x, y = torch.randint(-shift_px, shift_px + 1, (2, len(images)), generator=generator).double()
    height, width = images.shape[2:]
    by = matrix((height, width), shift_x_px=x, shift_y_px=y)
    parts = zip(images.split(512), by.split(512), strict=True)
    with torch.no_grad():
        return torch.cat([warp(some, which, fill).clamp(0, 1) for some, which in parts])


def kinds(model, name: str, baselines: dict, data: Data, *, seeds, progress=iter):
    """Return vectors (X, F) of every kind by name, the pose first, and notes on missing ones.

    Each kind is a list: one entry per seed for untrained networks, otherwise one entry. Pixels are
    not reduced here, because their principal components depend on the images fitted on.
    """
    classes, looked = torch.from_numpy(data.classes), defaultdict(list)
    notes: list[str] = []
    for seed in progress(seeds):
        for what, network in checkpoint.controls(model, seed, data.images, notes=notes):
            looked[f"{name} {what}"].append(features(network, data.images, classes).numpy())
            del network  # free memory before the next one
    for what, network in baselines.items():
        looked[what].append(features(network, data.images, classes).numpy())
    return {name: [data.poses], **looked, "pixels": [data.images.flatten(1).numpy()]}, notes


class Errors(NamedTuple):
    """Squared errors of M measures, for the images of one fold and class."""

    real: np.ndarray  # (n, M) of the probe
    spread: np.ndarray  # (n, M) of the class mean as prediction
    control: np.ndarray  # (a, M) of the probe in the control task, mean over labellings
    control_spread: np.ndarray  # (a, M) of the mean as prediction in the control task


@threadpool_limits.wrap(1, user_api="blas")  # waiting BLAS threads would spin
def evaluate(
    model, images, *, name, baselines, fit, shift_px, seeds, seed=0, fill="black", progress=iter,
    fit_images=None, fit_labels=None,
) -> dict[str, Any]:  # fmt: skip
    """Return the fields of `Statistics`, except the data set's name, for images (N, C, H, W).

    `baselines` are networks without capsules, by name. `seeds` is the number of untrained networks
    of each preset, and of random rotations of poses. Without `fit_images` (M, C, H, W), probes are
    fitted on each half of the images in turn. ValueError if no class is predicted often enough.
    """
    begin = time.perf_counter()
    data = gather(model, images, fit_images, shift_px=shift_px, fill=fill, seed=seed)
    groups = grouped(data)
    if not groups:
        raise ValueError(
            f"the network predicts no class often enough: expected {LEAST} images of one to fit on "
            "and 2 to measure"
        )
    draws, of_untrained = range(max(1, seeds)), range(seed, seed + seeds)
    every, notes = kinds(model, name, baselines, data, seeds=of_untrained, progress=progress)
    kept = min(data.poses.shape[1], *(len(fit) for _, fit, _ in groups))  # components of pixels
    probed = [data.classes[test[0]] for test, *_ in groups]  # class of each group
    most = {"pixels": kept}
    tested = [
        [probes(values, data, groups, seed, most.get(source)) for values in some]
        for source, some in every.items()
    ]
    codes = [[code for _, code in some] for some in tested]
    codes.insert(1, [rotations(data, groups, [seed, 1, k]) for k in draws])
    drawn = [
        {
            **explained([some[k % len(some)][0] for some in tested], seed),
            **concentrated([some[k % len(some)] for some in codes], probed),
        }
        for k in draws
    ]
    widths = [some[0].shape[1] for some in every.values()]
    widths[-1] = min(kept, widths[-1])
    names = [*list(every)[:-1], f"pixels, {widths[-1]} components"]
    measured = sum(len(test) for test, *_ in groups)
    notes = [*data.notes, *notes]
    if rare := data.n - measured:
        notes.append(f"{rare} of {data.n} images are predicted as a class that is too rare")
    decoded: dict[str, Any] = {}
    if abilities(model).decodes:
        real = None if fit_images is None else (fit_images.cpu(), fit_labels.cpu())
        back = cycle(model, images.cpu(), seed=seed)
        led = along(model, images.cpu(), real, seed=seed, progress=progress)
        notes += [note for part in (back, led) for note in part.pop("notes", [])]
        decoded = {**back, **led}
    else:
        notes.append("no decoder: neither cycle nor paths")
    of_training = f"training images, up to {fit} of each class"
    return {
        **fields_over_draws(drawn, LOWEST),
        **decoded,
        "measures": list(Moments._fields),
        "sources": names,
        "dimensions": widths,
        "codes": [name, f"{name} rotated at random", *names[1:]],
        "spread": np.sqrt(tested[0][0][0].spread.mean(0)),
        "n": measured,
        "fitted": sum(len(rows) for _, rows, _ in groups) // len(data.folds),
        "fit_of": "images (the halves take turns)" if fit_images is None else of_training,
        "probed": len(set(probed)),
        "shift_px": shift_px,
        "fill": fill,
        "seeds": seeds if untrained_of(names) else 0,
        "notes": notes,
        "seconds": round(time.perf_counter() - begin, 1),
    }


def grouped(data) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return (rows measured, rows fitted on, rows of the control task) by fold and class."""
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
    """Return the errors of probes of vectors (X, F) in all groups, and the `dci` of each group.

    Vectors are reduced to `reduced` principal components, if it is not None. The labellings are the
    same for every kind of vectors.
    """
    from sklearn.decomposition import PCA

    errors, codes, draw = [], [], np.random.default_rng(seed)
    for test, fit, again in groups:
        x, x_fit, x_again = (values[rows] for rows in (test, fit, again))
        if reduced is not None:
            axes = PCA(min(reduced, x_fit.shape[1]), svd_solver="full").fit(x_fit)
            x, x_fit, x_again = (axes.transform(v).astype(float) for v in (x, x_fit, x_again))
        of_again = [int(np.flatnonzero(fit == data.again[row])[0]) for row in again]
        factors = data.factors[test], data.factors[fit]
        errors.append(probe(x, x_fit, x_again, *factors, of_again, draw))
        codes.append(dci.dci(x_fit, data.factors[fit]))
    return Errors(*(np.concatenate(part) for part in zip(*errors, strict=True))), codes


def rotations(data, groups, seed: Sequence[int]) -> list:
    """Return the `dci` of randomly rotated poses, for each group."""
    draw = np.random.default_rng(seed)
    return [dci.dci(dci.rotated(data.poses[fit], draw), data.factors[fit]) for _, fit, _ in groups]


def probe(test, fit, again, factors, fit_factors, of_again, draw) -> Errors:
    """Fit ridge regressions from vectors of one class to its measures, and to permuted ones.

    The control task has the penalties of the real measures. Penalties chosen for the control task
    would prevent the probe from memorising anything.

    Parameters
    ----------
    test         (n, F) vectors of measured images.
    fit          (m, F) vectors of images fitted on.
    again        (a, F) vectors of some of the latter, shifted again.
    factors      (n, M) measures of `test`.
    fit_factors  (m, M) measures of `fit`.
    of_again     (a,) rows of `fit` that `again` comes from.
    draw         generator of numpy.
    """
    from sklearn.linear_model import Ridge, RidgeCV

    centre, scale = fit.mean(0), fit.std(0)
    scale = np.where(scale > TINY, scale, 1)
    x, x_again, x_test = ((values - centre) / scale for values in (fit, again, test))
    middle, spread = fit_factors.mean(0), fit_factors.std(0)
    spread = np.where(spread > TINY, spread, 1)
    y, m = (fit_factors - middle) / spread, len(fit)
    ridge = RidgeCV(PENALTIES, alpha_per_target=True).fit(x, y)
    same = Ridge(np.tile(ridge.alpha_, LABELLINGS))  # the same probe with the same penalties
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
    """Return the fields about R2 and selectivity, from the errors of S kinds of vectors."""
    real, spread, control, far = (np.stack(part) for part in zip(*tested, strict=True))
    counts, others = (draw_resamples(one.shape[1], seed=seed) for one in (real, control))
    M = real.shape[2]
    r2 = stack([compare_explained(real[..., j], spread[..., j], counts) for j in range(M)], 1)
    other = stack([compare_explained(control[..., j], far[..., j], others) for j in range(M)], 1)
    errors, among = (one / spread.sum(1, keepdims=True) for one in (real, spread))
    return {
        "r2": Estimate(r2.value, r2.ci95, real.shape[1], r2.difference),
        "control": Estimate(other.value, other.ci95, control.shape[1], other.difference),
        "selectivity": less(r2, Estimate(np.maximum(other.value, 0), np.maximum(other.ci95, 0))),
        "informed": compare_explained(errors.mean(2), among.mean(2), counts),
    }


def concentrated(codes, classes) -> dict:
    """Return mean disentanglement and completeness over classes, with Student's t intervals.

    `codes` (S + 1, G, 2) are of G groups, and `classes` (G,) are their classes. Groups of one class
    are averaged first.
    """
    fields, classes = {}, np.array(classes)
    parts = np.array(codes).transpose(2, 1, 0)  # (2, G, S + 1)
    for name, part in zip(("disentanglement", "completeness"), parts, strict=True):
        v = np.stack([part[classes == k].mean(0) for k in np.unique(classes)])
        unknown = np.stack([v[0] * 0, v[0] * 0 + 1], -1)
        fields[name] = student_means(v) if len(v) > 1 else Estimate(v[0], unknown)
    return fields


def poses_and_classes(model, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return poses (N, J, E) after the last iteration, and the predicted classes (N,)."""
    poses, activations = parents(model, images)
    return poses, activations.argmax(1)


def strips(model, first: Tensor, last: Tensor, classes) -> tuple[Tensor, Tensor]:
    """Return images along paths between P pairs (P, C, H, W), and cross-fades of the paths' ends.

    Both are (P, T, C, H, W) in [0, 1]. `classes` (P,), or one for all, chooses the poses.
    """
    classes = torch.as_tensor(classes).expand(len(first))
    a, b = (poses_and_classes(model, images)[0] for images in (first, last))
    steps = [torch.lerp(a, b, float(t)) for t in T]
    path = torch.stack([decode(model, poses, classes).float() for poses in steps], 1).clamp(0, 1)
    t = T[:, None, None, None]
    return path, (1 - t) * path[:, :1] + t * path[:, -1:]


def cycle(model, images: Tensor, *, seed: int) -> dict[str, Any]:
    """Return the fields of `Statistics` about decoding a pose and encoding it again.

    Images of a class that is predicted only once are left out, because it has no variance.
    """
    generator = torch.Generator().manual_seed(seed)
    poses, predicted = poses_and_classes(model, images)
    several = torch.bincount(predicted, minlength=poses.shape[1])[predicted] > 1
    images, poses, predicted = images[several], poses[several], predicted[several]
    if len(images) < 2:
        return {"notes": ["no two images are predicted as the same class: no cycle"]}
    drawn = decode(model, poses, predicted).float().clamp(0, 1)
    noise = torch.randn(images.shape, generator=generator)
    noisy = as_far(images, noise, (drawn - images).flatten(1).norm(dim=1))
    like = of_like_class(predicted)
    own, back = poses[torch.arange(len(predicted)), predicted].double(), []
    for picture in (drawn, noisy):
        after, now = poses_and_classes(model, picture)
        back.append((after[torch.arange(len(predicted)), predicted].double(), now == predicted))
    back.append((back[0][0][like], back[0][1][like]))
    means = torch.stack([own[predicted == k].mean(0) if (predicted == k).any() else own[0] * 0
                         for k in range(poses.shape[1])])  # fmt: skip
    off = np.stack([(after - own).square().sum(1).numpy() for after, _ in back])
    spread = (own - means[predicted]).square().sum(1).numpy()
    counts = draw_resamples(len(images), seed=seed)
    same = np.stack([now.numpy() for _, now in back])
    return {
        "returns": list(RETURNS),
        "cycle": compare_explained(off, np.tile(spread, (len(back), 1)), counts).undrawn(),
        "cycle_predicted": compare_means(same, counts).undrawn(),
    }


def as_far(images: Tensor, noise: Tensor, distance: Tensor) -> Tensor:
    """Return images (N, C, H, W) in [0, 1] with noise added, each at its `distance` (N,).

    The scale is found by bisection, because values are clipped to [0, 1]. If no scale reaches the
    distance, the largest one is used.
    """
    low, high = torch.zeros_like(distance), torch.full_like(distance, 1e3)
    for _ in range(40):
        middle = (low + high) / 2
        away = (images + middle[:, None, None, None] * noise).clamp(0, 1) - images
        near = away.flatten(1).norm(dim=1) < distance
        low, high = torch.where(near, middle, low), torch.where(near, high, middle)
    return (images + high[:, None, None, None] * noise).clamp(0, 1)


def couples(predicted: Tensor, generator: torch.Generator) -> Tensor:
    """Return disjoint pairs (P, 2) of images with the same predicted class, at most `COUPLES`."""
    order = torch.randperm(len(predicted), generator=generator)
    parts = [order[predicted[order] == k] for k in predicted.unique()]
    pairs = torch.cat([part[: len(part) // 2 * 2].view(-1, 2) for part in parts])
    return pairs[torch.randperm(len(pairs), generator=generator)[:COUPLES]]


def along(model, images: Tensor, real=None, *, seed: int, progress=iter) -> dict[str, Any]:
    """Return the fields of `Statistics` about paths between pairs of images.

    Distances are to `real`: images (M, C, H, W) and their classes (M,). If it is None, distances
    are to `images`, except those of the pair.
    """
    generator = torch.Generator().manual_seed(seed)
    _, predicted = poses_and_classes(model, images)
    pairs = couples(predicted, generator)
    if len(pairs) < 2:
        note = f"no paths: expected 2 or more pairs of one predicted class, got {len(pairs)}"
        return {"notes": [note]}
    classes = predicted[pairs[:, 0]]
    kinds = strips(model, images[pairs[:, 0]], images[pairs[:, 1]], classes)
    among, of_real = (images, predicted) if real is None else real
    values = []
    for step in progress(range(len(T))):
        row = []
        for strip in kinds:
            pictures = strip[:, step]
            lengths = trace(model, pictures, keep=("lengths",)).require("lengths")
            far = torch.cdist(pictures.flatten(1), among.flatten(1))
            far[classes[:, None] != of_real] = torch.inf
            if real is None:
                far.scatter_(1, pairs, torch.inf)
            nearest = far.min(1).values / pictures[0].numel() ** 0.5
            own = lengths.gather(1, classes[:, None])[:, 0]
            row.append(torch.stack([lengths.argmax(1) == classes, own.double(), nearest]))
        values.append(torch.stack(row, 1).numpy())  # (3, 2, P)
    hits, activation, distance = np.stack(values, 2)
    fields = {
        "t": T.numpy(),
        "couples": len(pairs),
        "path_predicted": _mean_over_pairs(hits, True, seed),
        "path_activation": _mean_over_pairs(activation, False, seed),
    }
    whole = np.isfinite(distance).all((0, 1))  # infinite if a class has no other image
    if whole.sum() >= 2:
        fields["path_distance"] = _mean_over_pairs(distance[..., whole], False, seed)
    return fields


def _mean_over_pairs(values: np.ndarray, shares: bool, seed: int) -> Estimate:
    """Return means over pairs of values (2, T, P), with the cross-fade minus the path."""
    steps, counts = range(values.shape[1]), draw_resamples(values.shape[2], seed=seed)
    one = stack([compare_means(values[:, t], counts, shares=shares) for t in steps], 1)
    return Estimate(one.value, one.ci95, values.shape[2], one.difference)


def path_between(model, images: Tensor) -> dict[str, Any]:
    """Return the fields of `Result` about the path between two images (2, C, H, W)."""
    images = images.cpu()
    activations = scores(model, images)
    capsule = int(activations[0].argmax())
    path, fade = (one[0] for one in strips(model, images[:1], images[1:], capsule))
    return {
        "images": to_uint8(images),
        "capsule": capsule,
        "t": T.numpy(),
        "path": to_uint8(path),
        "fade": to_uint8(fade),
        "path_activations": scores(model, path).numpy(),
        "fade_activations": scores(model, fade).numpy(),
        "activations": activations.numpy(),
        "score": score_name(model, images),
    }
