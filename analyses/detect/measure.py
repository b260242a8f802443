"""The sets of images that `detect` gives to a network, and their scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from capsviz import data
from capsviz.experiments import attacks
from capsviz.nn.functional import predict
from capsviz.statistics.detection import told_apart
from capsviz.statistics.estimate import Estimate, less, stack
from capsviz.tracing import decode, trace
from capsviz.tracing.outputs import distance, require_capsules, require_reconstruction
from capsviz.transforms import warps
from capsviz.transforms.augment import to_uint8

ANGLES_DEG = (45, 315)  # of random rotations: far from upright
VALIDATION = 1000  # images behind the threshold, where there are as many


def makers(model, others, eps, steps, seed, shape):
    """Return name -> (kind, function of images, labels and their indices), unchanged first.

    `shape` is (N, C, H, W), of all images. Random draws belong to an index among the N.
    """
    require_capsules(model)
    attacks.check(eps, steps)
    low, high = ANGLES_DEG
    draws = torch.Generator().manual_seed(seed)
    angles = low + (high - low) * torch.rand(shape[0], generator=draws)
    starts = attacks.noise(shape, seed)

    def attacked(look, one):
        def make(images, labels, piece):
            how = {"steps": steps, "start": starts[piece], "leave": False}
            found = attacks.apgd(model, look, images, labels, attacks.Ball(one), **how)
            return found.images.to(images)

        return make

    def rotated(by):
        return lambda images, labels, piece: warps.rotate(images, by[piece]).clamp(0, 1)

    kinds = {"unchanged": ("clean", lambda images, labels, piece: images)}
    for one in eps:
        kinds |= {
            f"APGD {one:g}": (
                "attack", attacked(attacks.on_scores(model, attacks.LOSSES["apgd-ce"]), one)
            ),
            f"adaptive {one:g}": ("adaptive", attacked(attacks.on_detector(model), one)),
        }  # fmt: skip
    kinds["rotated 90°"] = ("shifted", rotated(torch.full((shape[0],), 90.0)))
    kinds[f"rotated {low}°–{high}°"] = ("shifted", rotated(angles))
    for name, other in others.items():
        kinds[name] = ("foreign", lambda images, labels, piece, other=other: other[piece])
    return kinds


def held_out(model, images):
    """Return distances (V,) of validation images, and averages (J, C, H, W) by class.

    Distances are to the winning capsule's reconstruction; an average is of the images with the
    class predicted, of all images where there are none.
    """
    traced = trace(model, images, keep=("lengths", "reconstruction"))
    distances = distance(images, require_reconstruction(traced.reconstruction))
    winner, J = predict(traced.require("lengths")), traced.require("lengths").shape[1]
    alike = [images[winner == j] if (winner == j).any() else images for j in range(J)]
    return distances.numpy(), torch.stack([some.mean(0) for some in alike])


def score_all(model, makers, averages, images, labels, pieces, seed, progress):
    """Score the A sets that `makers` makes of N images, by pieces: indices that are taken together.

    Returns
    -------
    (A, 4, N) float32: distance to the winning capsule's reconstruction, to that of a random other
    capsule, to that of the next image's winning capsule, after the last image the first one's, and
    to the average of the predicted class; (A, N) predicted classes;
    (A, 2, C, H, W) uint8, first images and their reconstructions.
    """
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
    """Return distances (2, P), predicted classes (P,) and reconstructions of some of N images.

    Distances are to the reconstruction of the winning capsule, which is returned, and of a random
    other one, whose draw belongs to an image's index among `places`.
    """
    traced = trace(model, images, keep=("poses", "lengths"))
    poses, lengths = traced.require("poses")[-1], traced.require("lengths")
    J, won = lengths.shape[1], predict(lengths)
    draws = torch.Generator().manual_seed(seed)
    offset = torch.randint(1, J, (n,), generator=draws)[places]
    own = decode(model, poses, won)
    other = decode(model, poses, (won + offset) % J)
    values = torch.stack([distance(images, one) for one in (own, other)])
    return values.numpy(), won.numpy(), own


def beside(inputs, n: int) -> tuple:
    """Return validation images, n images of another data set by its name, and what is missing."""

    def drawn(part, count):
        return replace(inputs, dataset=part).images(count)[0]

    validation = inputs.load("validation")
    held = drawn(validation, min(VALIDATION, len(validation)))
    name = "mnist" if inputs.dataset.name == "fashion_mnist" else "fashion_mnist"
    try:
        other = data.load(name, "test", inputs.data_dir, download=False)
    except (FileNotFoundError, ValueError) as error:
        return held, {}, [f"{name} is left out: {error}"]
    if other.image_shape != inputs.dataset.image_shape or len(other) < n:
        actual = f"{len(other)} images {other.image_shape}"
        expected = f"expected {n} of {inputs.dataset.image_shape}"
        return held, {}, [f"{name} is left out: it has {actual}, {expected}"]
    return held, {name: drawn(other, n)}, []


def areas(values, foreign, seed: int) -> tuple[Estimate, Estimate]:
    """Return the AUROC (A - 1, S) of sets (A, S, N) against the first, and gains (A - 1, S - 1).

    A gain is the first score's AUROC minus that of a control, on the same draws. Draws of sets of
    other images, `foreign` (A,), are not paired.
    """
    clean, *others = values
    each = zip(others, foreign[1:], strict=True)
    auroc = stack(told_apart(clean, one, paired=not far, seed=seed) for one, far in each)
    return auroc, less(auroc[:, :1], auroc[:, 1:], paired=True).undrawn()
