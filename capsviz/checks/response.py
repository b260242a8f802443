"""How a loss follows the lengths in the output, and the target images."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from capsviz.checks.candidate import Candidate
from capsviz.checks.capsules import squeezed
from capsviz.checks.losses import IMAGES
from capsviz.checks.verdict import SkippedError
from capsviz.wrapping.leaves import named_tensors, replaced

CLOSE = 1e-4
NOTHING = 1e-5  # of a loss in float32


class Response:
    """The loss of four images, labelled 0, 1, 2, ..., as a function of lengths and targets."""

    def __init__(self, candidate: Candidate):
        self.loss, self.classes = candidate.loss, candidate.classes
        self.images = candidate.images(IMAGES).clamp(0, 1)
        self.labels = torch.arange(IMAGES, device=self.images.device) % self.classes
        self.output = candidate.caller.output(self.images)
        self._scores = candidate.scores

    def to_targets(self, targets: Tensor) -> float:
        """Return the loss for other target images."""
        return self.loss(self.output, targets, self.labels)

    def at(self, present: float | Tensor, absent: float, after: float | None = None) -> float:
        """Return the loss for these lengths of the true class and of all others.

        With `after`, the class after the true one has this length. SkippedError if the output
        holds neither lengths nor poses.
        """
        return self._with(self._replaceable, present, absent, after)

    def _with(self, kinds: dict[Tensor, str], present, absent, after=None) -> float:
        right = one_hot(self.labels, self.classes).to(self.images)
        lengths = right * present + (1 - right) * absent
        if after is not None:
            lengths[right.roll(1, 1) > 0] = after
        others = {id(tensor): _replaced(tensor, lengths, kind) for tensor, kind in kinds.items()}
        return self.loss(replaced(self.output, others), self.images, self.labels)

    def shared(self) -> float:
        """Return how far the loss is from a sum over images, relative to one image's change."""
        return max(self._shared(0.95, 0.3), self._shared(0.3, 0.1))

    def _shared(self, before: float, after: float) -> float:
        lengths = torch.full((IMAGES, 1), before).to(self.images)
        first, second, both = (lengths.clone() for _ in range(3))
        first[0], second[1], both[:2] = after, after, after
        rest = self.at(lengths, 0.05)
        one, other, two = (self.at(present, 0.05) - rest for present in (first, second, both))
        largest = max(abs(one), abs(other), abs(two))
        return abs(two - one - other) / largest if largest > NOTHING * abs(rest) else 0.0

    def margin(self) -> float | None:
        """Return the coefficient of the true class in a squared margin loss; None for others."""
        rest = self.at(0.95, 0.05)
        near, false = self.at(0.7, 0.05) - rest, self.at(0.95, 0.3) - rest
        flat = abs(self.at(0.99, 0.01) - rest)
        apart = abs(self.at(0.7, 0.3) - rest - near - false)
        return near / 0.04 if near > 0 and max(flat, apart) <= 0.02 * near else None

    @cached_property
    def _replaceable(self) -> dict[Tensor, str]:
        """The tensors of the output that hold the lengths.

        If the loss does not follow them, those of the poses, from which it takes the lengths.
        """
        lengths, poses = self._score_tensors()
        if not lengths and not poses:
            raise SkippedError("the output holds neither the lengths nor the poses")
        both = lengths and poses
        if both and self._with(lengths, 0.95, 0.05) == self._with(lengths, 0.05, 0.95):
            return poses
        return lengths or poses

    def _score_tensors(self) -> tuple[dict[Tensor, str], dict[Tensor, str]]:
        scores, shape = self._scores(self.images), (IMAGES, self.classes)
        lengths, poses = {}, {}
        for _, tensor in named_tensors(self.output):
            if not tensor.is_floating_point() or tensor.dim() < 2 or len(tensor) != IMAGES:
                continue
            thin = squeezed(tensor)
            if tuple(thin.shape) == shape and float((thin - scores).abs().max()) < CLOSE:
                lengths[tensor] = "lengths"
                continue
            vectors = thin.dim() == 3 and thin.shape[1] == shape[1]
            if vectors and float((thin.norm(dim=2) - scores).abs().max()) < CLOSE:
                poses[tensor] = "poses"
        return lengths, poses


def _replaced(tensor: Tensor, lengths: Tensor, kind: str) -> Tensor:
    if kind == "lengths":
        return lengths.to(tensor).reshape(tensor.shape)
    thin = squeezed(tensor)
    unit = thin / thin.norm(dim=2, keepdim=True).clamp_min(1e-12)
    return (unit * lengths[:, :, None]).reshape(tensor.shape)
