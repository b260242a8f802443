"""The sets of images that `detect` gives to a network, and their scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from capsviz.statistics.estimate import Estimate, less, stack

ANGLES_DEG = (45, 315)  # of random rotations: far from upright
VALIDATION = 1000  # images behind the threshold, where there are as many


def makers(model, others, eps, steps, seed, shape):
    """Return name -> (kind, function of images, labels and their indices), unchanged first.

    `shape` is (N, C, H, W), of all images. Random draws belong to an index among the N.
    """
    import torch

    from capsviz.experiments import attacks
    from capsviz.tracing.outputs import require_capsules
    from capsviz.transforms import warps

    require_capsules(model)
    attacks.check(eps, steps)
    low, high = ANGLES_DEG
    draws = torch.Generator().manual_seed(seed)
    angles = low + (high - low) * torch.rand(shape[0], generator=draws)
    starts = attacks.noise(shape, seed)

    def fast(one):
        return lambda images, labels, piece: attacks.fgsm(model, images, labels, eps=one)

    def descended(attack, one):
        return lambda images, labels, piece: attack(
            model, images, labels, eps=one, steps=steps, start=starts[piece]
        )

    def rotated(by):
        return lambda images, labels, piece: warps.rotate(images, by[piece]).clamp(0, 1)

    kinds = {"unchanged": ("clean", lambda images, labels, piece: images)}
    for one in eps:
        kinds |= {
            f"FGSM {one:g}": ("attack", fast(one)),
            f"PGD {one:g}": ("attack", descended(attacks.pgd, one)),
            f"R-PGD {one:g}": ("adaptive", descended(attacks.reconstructive_pgd, one)),
        }
    kinds["rotated 90°"] = ("shifted", rotated(torch.full((shape[0],), 90.0)))
    kinds[f"rotated {low}°–{high}°"] = ("shifted", rotated(angles))
    for name, other in others.items():
        kinds[name] = ("foreign", lambda images, labels, piece, other=other: other[piece])
    return kinds


def held_out(model, images):
    """Return distances of validation images (V, C, H, W), and the average of each class.

    Returns
    -------
    (V,) float32 distances to the winning capsule's reconstruction; (J, C, H, W) averages of the
    images with class j predicted, of all images where there are none.
    """
    import torch

    from capsviz.nn.functional import predict
    from capsviz.tracing import trace
    from capsviz.tracing.outputs import distance, require_reconstruction

    traced = trace(model, images, keep=("lengths", "reconstruction"))
    distances = distance(images, require_reconstruction(traced.reconstruction))
    winner, J = predict(traced.lengths), traced.lengths.shape[1]
    alike = [images[winner == j] if (winner == j).any() else images for j in range(J)]
    return distances.numpy(), torch.stack([some.mean(0) for some in alike])


def score_all(model, makers, averages, images, labels, pieces, seed, progress):
    """Score the A sets that `makers` makes of N images, piece by piece.

    Parameters
    ----------
    makers    of the function `makers`.
    averages  (J, C, H, W), an image for each class.
    pieces    indices (P,) of images that are scored together, all N in order.

    Returns
    -------
    (A, 4, N) float32: distance to the winning capsule's reconstruction, to that of a random other
    capsule, to that of the next image's winning capsule, after the last image the first one's, and
    to the average of the predicted class; (A, N) predicted classes;
    (A, 2, C, H, W) uint8, first images and their reconstructions.
    """
    import torch

    from capsviz.tracing.outputs import distance
    from capsviz.transforms.augment import to_uint8

    n = len(images)
    values = np.empty((len(makers), 4, n), np.float32)
    predicted = np.empty((len(makers), n), np.int64)
    parts, examples = [], []
    for a, piece in progress([(a, piece) for a in range(len(makers)) for piece in pieces]):
        changed = list(makers.values())[a][1](images[piece], labels[piece], piece)
        values[a][:2, piece], predicted[a][piece], own = score(model, changed, piece, n, seed)
        parts.append((changed, own))
        if len(parts) == len(pieces):
            changed, own = map(torch.cat, zip(*parts, strict=True))
            values[a, 2] = distance(changed, own.roll(-1, 0)).numpy()
            values[a, 3] = distance(changed, averages[predicted[a]]).numpy()
            examples.append(to_uint8(torch.stack([changed[0], own[0]])))
            parts = []
    return values, predicted, np.stack(examples)


def score(model, images, places, n, seed):
    """Score some of the N images of a set.

    Parameters
    ----------
    places  (P,) indices of the images among the N; random draws belong to an index.

    Returns
    -------
    (2, P) float32: distance to the winning capsule's reconstruction, and to that of a random other
    capsule; (P,) predicted classes; (P, C, H, W) the winning capsule's reconstruction.
    """
    import torch

    from capsviz.nn.functional import predict
    from capsviz.tracing import decode, trace
    from capsviz.tracing.outputs import distance

    traced = trace(model, images, keep=("poses", "lengths"))
    J = traced.lengths.shape[1]
    won = predict(traced.lengths)
    draws = torch.Generator().manual_seed(seed)
    offset = torch.randint(1, J, (n,), generator=draws)[places]
    own = decode(model, traced.poses[-1], won)
    other = decode(model, traced.poses[-1], (won + offset) % J)
    values = torch.stack([distance(images, one) for one in (own, other)])
    return values.numpy(), won.numpy(), own


def beside(inputs, n: int) -> tuple:
    """Return validation images, n images of another data set by its name, and what is missing."""
    validation = inputs.load("validation")
    drawn = _drawn(inputs, validation, min(VALIDATION, len(validation)))
    return drawn, *_others(inputs, n)


def _others(inputs, n) -> tuple[dict, list[str]]:
    """Return n test images of another data set by its name, or why there are none."""
    from capsviz import data

    name = "mnist" if inputs.dataset.name == "fashion_mnist" else "fashion_mnist"
    try:
        other = data.load(name, "test", inputs.data_dir, download=False)
    except (FileNotFoundError, ValueError) as error:
        return {}, [f"{name} is left out: {error}"]
    if other.image_shape != inputs.dataset.image_shape or len(other) < n:
        actual = f"{len(other)} images {other.image_shape}"
        expected = f"expected {n} of {inputs.dataset.image_shape}"
        return {}, [f"{name} is left out: it has {actual}, {expected}"]
    return {name: _drawn(inputs, other, n)}, []


def _drawn(inputs, part, n):
    """Return n images of a split, drawn as those of the inputs are."""
    return replace(inputs, dataset=part).images(n)[0]


def areas(values, foreign, seed: int) -> tuple[Estimate, Estimate]:
    """Return the AUROC (A - 1, S) of each set against the unchanged one, and gains (A - 1, S - 1).

    A gain is the first score's AUROC minus that of a control, on the same draws.

    Parameters
    ----------
    values   (A, S, N) of the sets, the unchanged one first.
    foreign  (A,) which are of other images: their draws are not paired.
    seed     of the bootstrap.
    """
    from capsviz.statistics.detection import told_apart

    clean, *others = values
    each = zip(others, foreign[1:], strict=True)
    auroc = stack(told_apart(clean, one, paired=not far, seed=seed) for one, far in each)
    return auroc, less(auroc[:, :1], auroc[:, 1:], paired=True).undrawn()
