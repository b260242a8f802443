"""Parts of `detect`: the sets of images that are shown to a network, and their scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

ANGLES_DEG = (45, 315)  # of random rotations: far from upright
VALIDATION = 1000  # images behind the threshold, where there are as many


def makers(model, others, eps, steps, seed, n):
    """Name -> (kind, function of images, labels and their places in the N), unchanged first."""
    import torch

    from capsviz import attacks, warps
    from capsviz.detection import require_capsules

    require_capsules(model)
    attacks.check(eps, steps)
    low, high = ANGLES_DEG
    draws = torch.Generator().manual_seed(seed)
    angles = low + (high - low) * torch.rand(n, generator=draws)

    def attacked(attack, **more):
        return lambda images, labels, piece: attack(model, images, labels, **more)

    def turned(by):
        return lambda images, labels, piece: warps.rotate(images, by[piece]).clamp(0, 1)

    made = {"unchanged": ("clean", lambda images, labels, piece: images)}
    for one in eps:
        same = {"steps": steps, "seed": seed, "eps": one}
        made |= {
            f"FGSM {one:g}": ("attack", attacked(attacks.fgsm, eps=one)),
            f"PGD {one:g}": ("attack", attacked(attacks.pgd, **same)),
            f"R-PGD {one:g}": ("adaptive", attacked(attacks.reconstructive_pgd, **same)),
        }
    made["turned 90°"] = ("shifted", turned(torch.full((n,), 90.0)))
    made[f"turned {low}°–{high}°"] = ("shifted", turned(angles))
    for name, other in others.items():
        made[name] = ("foreign", lambda images, labels, piece, other=other: other[piece])
    return made


def distances(model, images) -> np.ndarray:
    """Distances (N,) float32 of images (N, C, H, W) to the winning capsule's reconstruction."""
    from capsviz import detection
    from capsviz.tracing import trace

    seen = trace(model, images, keep=("lengths", "reconstruction"))
    return detection.distance(images, detection.require_decoder(seen.reconstruction)).numpy()


def score(model, images, places, n, seed):
    """What the network says of some of the N images of a set, at least 2 of them.

    Parameters
    ----------
    places  (P,) of the images among the N; random draws belong to a place.

    Returns
    -------
    (3, P) float32: distance to the winning capsule's reconstruction, to that of a random other
    capsule, and to that of the next image's winning capsule; (P,) predicted classes;
    (2, C, H, W) uint8, the first image and its reconstruction.
    """
    import torch

    from capsviz.augment import to_uint8
    from capsviz.detection import distance
    from capsviz.functional import predict
    from capsviz.tracing import decode, trace

    seen = trace(model, images, keep=("poses", "lengths"))
    J = seen.lengths.shape[1]
    won = predict(seen.lengths)
    draws = torch.Generator().manual_seed(seed)
    offset = torch.randint(1, J, (n,), generator=draws)[places]
    made = decode(model, seen.poses[-1], won)
    other = decode(model, seen.poses[-1], (won + offset) % J)
    values = [distance(images, one) for one in (made, other, made.roll(1, 0))]
    first = to_uint8(torch.stack([images[0], made[0]]))
    return torch.stack(values).numpy(), won.numpy(), first


def of_subject(subject, n) -> dict:
    """What `compute` needs of a subject: n test images, validation images, another data set."""
    from capsviz import data

    part, card = subject.dataset, subject.model.card["dataset"]
    own = card.get("options", {}) if card["name"] == part.name else {}
    held_out = data.load(part.name, "validation", subject.data_dir, **own)
    images, labels = subject.images(n)
    others, missing = _others(subject, n)
    return {
        "model": subject.model,
        "images": images,
        "labels": labels,
        "validation": _drawn(subject, held_out, min(VALIDATION, len(held_out))),
        "classes": part.classes,
        "dataset": part.name,
        "others": others,
        "missing": missing,
    }


def _others(subject, n) -> tuple[dict, list[str]]:
    """n test images of another data set by its name, or why there are none."""
    from capsviz import data

    name = "mnist" if subject.dataset.name == "fashion_mnist" else "fashion_mnist"
    try:
        other = data.load(name, "test", subject.data_dir, download=False)
    except (FileNotFoundError, ValueError) as error:
        return {}, [f"{name} is left out: {error}"]
    if other.image_shape != subject.dataset.image_shape or len(other) < n:
        has = f"{len(other)} images {other.image_shape}"
        wanted = f"expected {n} of {subject.dataset.image_shape}"
        return {}, [f"{name} is left out: it has {has}, {wanted}"]
    return {name: _drawn(subject, other, n)}, []


def _drawn(subject, part, n):
    """n images of a split, drawn as those of the subject are."""
    return replace(subject, dataset=part, drawn={}).images(n)[0]
