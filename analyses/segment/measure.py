"""Reconstruct an image from its two longest capsules; compare with controls."""

from typing import NamedTuple

import torch
from torch import Tensor

from capsviz.nn.functional import reconstruction_loss
from capsviz.tracing import decode, trace
from capsviz.training.evaluate import longest, paired
from capsviz.transforms.augment import to_float

BRIGHT = 0.5  # brighter pixels are foreground
K = 2  # objects in an image, and colours in the figure


class Drawn(NamedTuple):
    """Hold N images of two objects each, and their reconstructions, on the CPU."""

    images: Tensor  # (N, C, H, W) in [0, 1]
    parts: Tensor  # (N, 2, C, H, W) the objects, one in each image
    labels: Tensor  # (N, 2)
    predicted: Tensor  # (N, 2) classes of the two longest capsules, in the order of labels
    lengths: Tensor  # (N, 2) of these capsules
    absent: Tensor  # (N,) a class neither in labels nor in predicted
    drawn: Tensor  # (N, 2, C, H, W) decoded from predicted
    from_labels: Tensor  # (N, 2, C, H, W) decoded from labels
    from_absent: Tensor  # (N, C, H, W) decoded from absent


def require_pairs(part) -> None:
    """Raise ValueError unless each image shows two objects and there are at least 5 classes."""
    if part.parts is None or part.labels.shape[1] != 2:
        raise ValueError(
            f"{part.name} does not show two objects in each image: expected a data set like "
            "multimnist and a network for it (`capsviz train multimnist`)"
        )
    if len(part.classes) < 5:
        raise ValueError(
            f"{part.name} has {len(part.classes)} classes, expected at least 5: two in the image, "
            "two predicted, and an absent one"
        )


def draws(part, seed: int) -> Tensor:
    """Return random numbers (N, J) for the images and classes of a `Dataset`.

    The absent class has the highest number of those that are neither true nor predicted.
    """
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(len(part), len(part.classes), generator=generator)


def look(model, part, draw: Tensor) -> Drawn:
    """Classify and decode the images of a `Dataset` with two parts each; `draw`: from `draws`."""
    images, parts, labels = to_float(part.images), to_float(part.parts), part.labels
    traced = trace(model, images, keep=("poses", "lengths"))
    poses, lengths = traced.require("poses")[-1], traced.require("lengths")
    predicted = align(longest(lengths, K), labels, lengths.shape[1])
    absent = draw.scatter(1, torch.cat([labels, predicted], 1), -1.0).argmax(1)

    def drawn(classes: Tensor) -> Tensor:
        return torch.stack([decode(model, poses, some) for some in classes.unbind(1)], 1)

    return Drawn(
        images=images,
        parts=parts,
        labels=labels,
        predicted=predicted,
        lengths=lengths.gather(1, predicted),
        absent=absent,
        drawn=drawn(predicted),
        from_labels=drawn(labels),
        from_absent=decode(model, poses, absent),
    )


def align(predicted: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Reorder predicted classes (N, K): each takes the position of its label by `paired`."""
    ours, theirs = paired(predicted, labels, classes)
    return torch.empty_like(predicted).scatter(1, theirs, predicted.gather(1, ours))


def errors(drawn: Drawn) -> Tensor:
    """Return the mean SSE of reconstructions from the two objects: (N, 5), ordered as DRAWN."""
    drawings = (
        drawn.drawn,
        drawn.from_labels,
        drawn.drawn.flip(1),
        drawn.from_absent[:, None].expand_as(drawn.parts),
        torch.zeros_like(drawn.parts),
    )
    shape, parts = drawn.parts.shape[:2], drawn.parts.flatten(0, 1)
    losses = [reconstruction_loss(parts, one.flatten(0, 1)).unflatten(0, shape) for one in drawings]
    return torch.stack(losses, 1).mean(2)


def overlaps(drawn: Drawn) -> Tensor:
    """Return the mean IoU of the two objects with their assigned foreground: (N, 6).

    Each foreground pixel is assigned to the brighter reconstruction, or to both if they are equal.
    Columns are ordered as DIVIDED. For the absent class, each object in turn is decoded from
    it, and the other object from its label.
    """
    bright = drawn.images > BRIGHT
    own = drawn.parts > BRIGHT
    absent = drawn.from_absent[:, None].expand_as(drawn.parts)
    pairs = (
        (drawn.drawn, drawn.drawn.flip(1)),
        (drawn.from_labels, drawn.from_labels.flip(1)),
        (drawn.drawn.flip(1), drawn.drawn),
        (absent, drawn.from_labels.flip(1)),
        (torch.zeros_like(drawn.parts),) * 2,  # all foreground belongs to both
        (drawn.parts, drawn.parts.flip(1)),
    )
    values = []
    for first, other in pairs:
        division = bright[:, None] & (first >= other)
        both, either = (m.flatten(2).sum(2) for m in (division & own, division | own))
        values.append((both / either.clamp_min(1)).mean(1))
    return torch.stack(values, 1)
