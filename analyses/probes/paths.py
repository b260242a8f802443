"""Poses decoded and encoded again, and straight paths between two poses."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from capsviz.statistics.comparison import compare_explained, compare_means, draw_resamples
from capsviz.statistics.estimate import Estimate, stack
from capsviz.tracing import decode, parents, score_name, scores, trace
from capsviz.tracing.many import of_like_class
from capsviz.transforms.augment import to_uint8

T = torch.linspace(0, 1, 9)  # steps of a path, both ends too
COUPLES = 100  # of images, at most: each takes two drawings a step
RETURNS = ("its drawing", "the image, noise as far", "a like image's drawing")


def poses_and_classes(model, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return poses (N, J, E) after the last iteration, and the predicted classes (N,)."""
    poses, activations = parents(model, images)
    return poses, activations.argmax(1)


def strips(model, first: Tensor, last: Tensor, classes) -> tuple[Tensor, Tensor]:
    """Return images along the path of P pairs (P, C, H, W), and the cross-fade of their ends.

    Both are (P, T, C, H, W) in [0, 1]; classes (P,), or one for all, say whose poses are joined.
    """
    classes = torch.as_tensor(classes).expand(len(first))
    a, b = (poses_and_classes(model, images)[0] for images in (first, last))
    steps = [torch.lerp(a, b, float(t)) for t in T]
    path = torch.stack([decode(model, poses, classes).float() for poses in steps], 1).clamp(0, 1)
    t = T[:, None, None, None]
    return path, (1 - t) * path[:, :1] + t * path[:, -1:]


def cycle(model, images: Tensor, *, seed: int) -> dict[str, Any]:
    """Return the fields of `Statistics` about decoding a pose and encoding it again.

    Images of a class that is predicted only once are left out: it has no variance.
    """
    generator = torch.Generator().manual_seed(seed)
    poses, read = poses_and_classes(model, images)
    several = torch.bincount(read, minlength=poses.shape[1])[read] > 1
    images, poses, read = images[several], poses[several], read[several]
    if len(images) < 2:
        return {"notes": ["no two images are predicted as the same class: no cycle"]}
    drawn = decode(model, poses, read).float().clamp(0, 1)
    noise = torch.randn(images.shape, generator=generator)
    noisy = as_far(images, noise, (drawn - images).flatten(1).norm(dim=1))
    like = of_like_class(read)
    own, back = poses[torch.arange(len(read)), read].double(), []
    for picture in (drawn, noisy):
        after, now = poses_and_classes(model, picture)
        back.append((after[torch.arange(len(read)), read].double(), now == read))
    back.append((back[0][0][like], back[0][1][like]))
    means = torch.stack([own[read == k].mean(0) if (read == k).any() else own[0] * 0
                         for k in range(poses.shape[1])])  # fmt: skip
    off = np.stack([(after - own).square().sum(1).numpy() for after, _ in back])
    spread = (own - means[read]).square().sum(1).numpy()
    counts = draw_resamples(len(images), seed=seed)
    same = np.stack([now.numpy() for _, now in back])
    return {
        "returns": list(RETURNS),
        "cycle": compare_explained(off, np.tile(spread, (len(back), 1)), counts),
        "cycle_read": compare_means(same, counts),
    }


def as_far(images: Tensor, noise: Tensor, distance: Tensor) -> Tensor:
    """Return images (N, C, H, W) in [0, 1] with noise, each at its distance (N,).

    By bisection, for what leaves [0, 1] is cut off; where no noise is enough, as much as there is.
    """
    low, high = torch.zeros_like(distance), torch.full_like(distance, 1e3)
    for _ in range(40):
        middle = (low + high) / 2
        away = (images + middle[:, None, None, None] * noise).clamp(0, 1) - images
        near = away.flatten(1).norm(dim=1) < distance
        low, high = torch.where(near, middle, low), torch.where(near, high, middle)
    return (images + high[:, None, None, None] * noise).clamp(0, 1)


def couples(read: Tensor, generator: torch.Generator) -> Tensor:
    """Return disjoint pairs (P, 2) of images with the same predicted class, at most `COUPLES`."""
    order = torch.randperm(len(read), generator=generator)
    parts = [order[read[order] == k] for k in read.unique()]
    pairs = torch.cat([part[: len(part) // 2 * 2].view(-1, 2) for part in parts])
    return pairs[torch.randperm(len(pairs), generator=generator)[:COUPLES]]


def along(model, images: Tensor, real=None, *, seed: int, progress=iter) -> dict[str, Any]:
    """Return the fields of `Statistics` about paths between pairs of images.

    They are compared with `real` images (M, C, H, W) of classes (M,), or with the images themselves
    but for those of the pair.
    """
    generator = torch.Generator().manual_seed(seed)
    _, read = poses_and_classes(model, images)
    pairs = couples(read, generator)
    if len(pairs) < 2:
        return {"notes": [f"{len(pairs)} couples are predicted as the same class: no paths"]}
    classes = read[pairs[:, 0]]
    kinds = strips(model, images[pairs[:, 0]], images[pairs[:, 1]], classes)
    among, of_real = (images, read) if real is None else real
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
    read, activation, distance = np.stack(values, 2)
    fields = {
        "t": T.numpy(),
        "couples": len(pairs),
        "path_read": _over(read, True, seed),
        "path_activation": _over(activation, False, seed),
    }
    whole = np.isfinite(distance).all((0, 1))  # a class may have no other image
    if whole.sum() >= 2:
        fields["path_distance"] = _over(distance[..., whole], False, seed)
    return fields


def _over(values: np.ndarray, shares: bool, seed: int) -> Estimate:
    """Means over couples (2, T, P), the cross-fade's less the path's beside them."""
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
