"""Evaluate a network on a whole split: accuracy with its interval, confusion, losses per image."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from capsviz.data import Dataset
from capsviz.nn.functional import margin_loss, multi_hot, predict, reconstruction_loss
from capsviz.statistics.intervals import wilson
from capsviz.tracing import abilities, images_at_a_time, inference
from capsviz.tracing.record import require_finite
from capsviz.transforms.augment import to_float

LOW = 0.0002  # learning rate that also works for few images of few classes
NOTHING = 0.98  # nothing was learned if the loss is above this share of the best constant loss


class Evaluation(NamedTuple):
    """Scores of a network on n images; true classes are used for scoring only.

    If each image shows K objects, the K longest capsules are the prediction. It is correct if they
    are the image's K classes in any order.
    """

    n: int
    accuracy: float
    accuracy_ci95: tuple[float, float]  # Wilson score interval
    error_percent: float
    per_class: dict[str, float]  # recall of each class
    confusion: list[list[int]] | None  # row: true class, column: predicted; None for K > 1
    margin_loss: float  # mean over images, with the paper's margins for any objective
    reconstruction_sse: float | None  # mean over images, decoded from the predicted classes

    @property
    def balanced_accuracy(self) -> float:
        """Return the mean recall of the classes."""
        return sum(self.per_class.values()) / len(self.per_class)

    @property
    def largest_share(self) -> float | None:
        """Return the share of images of the largest class; None for K > 1."""
        return None if self.confusion is None else max(map(sum, self.confusion)) / self.n

    def mistaken(self, classes: Sequence[str]) -> list[tuple[str, str, int]]:
        """Return (true class, predicted class, number of images) of errors, most frequent first."""
        rows = zip(classes, self.confusion or (), strict=False)
        pairs = [(a, b, n) for a, row in rows for b, n in zip(classes, row, strict=True) if n]
        return sorted((one for one in pairs if one[0] != one[1]), key=lambda one: -one[2])

    def doubts(self, card: Mapping) -> list[str]:
        """Return a WARN line for each sign that nothing was learned, with likely causes in order.

        The learning rate in the `card` is not named as a cause if it is `LOW` or less.
        """
        if self.confusion is None or len(self.per_class) < 2:
            return []
        share, found = max(map(sum, self.confusion)) / self.n, []
        if sum(map(any, zip(*self.confusion, strict=True))) == 1:
            found.append(f"one class is predicted for all {self.n:,} images")
        least = least_constant_loss([sum(row) / self.n for row in self.confusion])
        if self.margin_loss >= NOTHING * least and self.accuracy_ci95[0] <= share:
            found.append(
                f"the margin loss is {self.margin_loss:.3f} per image, and capsule lengths that "
                f"are the same for every image reach {least:.3f}"
            )
        rate = card.get("recipe", {}).get("learning_rate", 1)
        lower = f"the learning rate (--learning-rate {LOW}), " if rate > LOW else ""
        causes = f"the labels, {lower}the number of steps (more epochs, a smaller --batch-size)"
        if share > 0.5:
            causes = f"the largest class ({share:.0%} of the images), {causes}"
        return [f"WARN {one}: check, in this order, {causes}" for one in found]


def least_constant_loss(shares: Sequence[float]) -> float:
    """Return the least margin loss of capsule lengths that are the same for every image.

    For a class with share p of the images, the best length lies between the paper's margins. Its
    loss is 0.8² p q / (p + q) with q = (1 - p) / 2. For ten equal classes the sum is 0.524.
    """
    return sum(0.64 * p * q / (p + q) for p in shares for q in [(1 - p) / 2])


def evaluate(
    model: nn.Module, dataset: Dataset, *, batch_size: int | None = None, progress=iter
) -> Evaluation:
    """Evaluate a network on a split; its training mode is restored.

    Parameters
    ----------
    batch_size  images at a time; the result does not depend on it. None: chosen by image size.
    progress    wraps the batches, for a progress bar.

    Raises
    ------
    ValueError      if there are no images, or if their shape or the number or order of the classes
                    differs from the network's.
    NotFiniteError  for infinite or NaN lengths or reconstruction errors.
    """
    if len(dataset) == 0:
        raise ValueError(f"{dataset.name} {dataset.split} holds no images: nothing to evaluate")
    known = abilities(model).class_names
    if dataset.in_order(known).classes != dataset.classes:
        raise ValueError(
            f"the classes of {dataset.name} are numbered otherwise than in the network: evaluate "
            "dataset.in_order(network.card['dataset']['classes'])"
        )
    answers, margins, sses = [], [], []
    batch_size = batch_size or images_at_a_time(model)
    device = next(model.parameters()).device
    classes, truth = len(dataset.classes), dataset.labels.cpu()[:, None].flatten(1)  # (N, K)
    with inference(model):
        for start in progress(range(0, len(dataset), batch_size)):
            batch = slice(start, start + batch_size)
            images = to_float(dataset.images[batch].to(device))
            labels = truth[batch].to(device)
            output = model(images)
            if output.lengths.shape[1] != classes:
                raise ValueError(
                    f"the network has {output.lengths.shape[1]} classes, "
                    f"but {dataset.name} has {classes}"
                )
            require_finite(output.lengths, "the lengths of the capsules")
            winners = longest(output.lengths, labels.shape[1])
            answers.append(winners.cpu())
            margins.append(margin_loss(output.lengths, multi_hot(labels, classes)).cpu())
            if abilities(model).decodes:
                alone = images[:, None]
                if dataset.parts is not None:
                    alone = to_float(dataset.parts[batch].to(device))
                sse = _sse(model, output.poses, winners, labels, alone)
                sses.append(require_finite(sse, "the reconstruction errors").cpu())
    predicted = torch.cat(answers)
    hits = (truth[:, :, None] == predicted[:, None]).any(2)  # (N, K)
    present, recalled = (
        labels.bincount(minlength=classes).tolist() for labels in (truth.flatten(), truth[hits])
    )
    right, n = int(hits.all(1).sum()), len(dataset)
    confusion = None
    if dataset.parts is None:
        pairs = truth[:, 0] * classes + predicted[:, 0]
        confusion = pairs.bincount(minlength=classes**2).view(classes, classes).tolist()
    return Evaluation(
        n=n,
        accuracy=right / n,
        accuracy_ci95=wilson(right, n),
        error_percent=100 * (n - right) / n,
        per_class={
            name: hit / shown
            for name, hit, shown in zip(dataset.classes, recalled, present, strict=True)
            if shown
        },
        confusion=confusion,
        margin_loss=float(torch.cat(margins).double().mean()),
        reconstruction_sse=float(torch.cat(sses).double().mean()) if sses else None,
    )


def longest(lengths: Tensor, k: int) -> Tensor:
    """Return the classes (B, k) of the k longest capsules of lengths (B, J), the longest first."""
    return predict(lengths)[:, None] if k == 1 else lengths.topk(k, 1).indices


def all_right(lengths: Tensor, labels: Tensor) -> Tensor:
    """Return whether the K longest capsules are the K true classes, in any order: (B,) bool.

    Lengths are (B, J), labels (B,) or (B, K). The K labels of an image are distinct.
    """
    truth = labels[:, None].flatten(1)
    winners = longest(lengths, truth.shape[1])
    return (winners.sort(1).values == truth.sort(1).values).all(1)


def paired(winners: Tensor, truth: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return permutations (B, K) of the predicted and of the true classes that pair them.

    Correct predictions come first, each paired with its class. Then wrong classes are paired with
    missed ones, both in ascending order.
    """
    same = winners[:, :, None] == truth[:, None]
    wrong, missed = ~same.any(2), ~same.any(1)
    return (winners + classes * wrong).argsort(1), (truth + classes * missed).argsort(1)


def _sse(model, poses: Tensor, winners: Tensor, labels: Tensor, alone: Tensor) -> Tensor:
    """Return the mean over K of the SSE between each winner's reconstruction and its part."""
    of_winners, of_parts = paired(winners, labels, poses.shape[1])
    winners, image = winners.gather(1, of_winners), torch.arange(len(alone), device=alone.device)
    each = [
        reconstruction_loss(alone[image, of_parts[:, k]], model.decode(poses, winners[:, k]))
        for k in range(winners.shape[1])
    ]
    return torch.stack(each).mean(0)
