"""What training minimises, and how it follows lengths in the output, and target images."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from capsviz.checks.calling import Caller
from capsviz.checks.capsules import squeezed
from capsviz.checks.verdict import SkippedError
from capsviz.wrapping.environment import in_words, without_cuda
from capsviz.wrapping.leaves import named_tensors, replaced
from capsviz.wrapping.recorder import Pass

IMAGES = 4
CLOSE = 1e-4


class Loss:
    """A function (output, images, labels) -> a number, for four images of classes 0, 1, 2, ...

    `scores` is a function images -> scores (B, J).
    """

    def __init__(self, caller: Caller, function: Callable, scores: Callable):
        self.caller, self.function, self.scores = caller, function, scores
        self.images = caller.images(IMAGES)
        self.labels = torch.arange(IMAGES, device=self.images.device) % caller.classes

    @cached_property
    def output(self):
        """What the loss gets of the network, in evaluation mode."""
        return self.caller.output(self.images)

    def require_number(self) -> None:
        """Raise ValueError if it raises, or returns no number."""
        try:
            output = self.output
        except Exception:  # the checks say what is wrong
            return
        try:
            value = self._value(output, self.images)
        except Exception as error:  # a user's code may raise anything
            raise ValueError(
                f"loss= raises {in_words(error)}; it is called with (output, images, labels), "
                "output is that of evaluation mode, labels are indices (N,)"
            ) from error
        _number(value)

    def of(self, output, targets: Tensor) -> float:
        """Return the loss in float64; SkippedError if it is not finite."""
        number = _number(self._value(output, targets))
        if not math.isfinite(number):
            raise SkippedError("the loss is not finite")
        return number

    def at(self, present: float, absent: float, after: float | None = None) -> float:
        """Return the loss for these lengths of the true class and of all others.

        With `after`, the class after the true one has this length. SkippedError if the output
        holds neither lengths nor poses.
        """
        return self._with(self._replaceable, present, absent, after)

    def margin(self) -> float | None:
        """Return the coefficient of the true class in a squared margin loss; None for others."""
        rest = self.at(0.95, 0.05)
        near, false = self.at(0.7, 0.05) - rest, self.at(0.95, 0.3) - rest
        flat = abs(self.at(0.99, 0.01) - rest)
        apart = abs(self.at(0.7, 0.3) - rest - near - false)
        return near / 0.04 if near > 0 and max(flat, apart) <= 0.02 * near else None

    def _value(self, output, targets: Tensor):
        inside = self.caller.recipe.normalised(targets)
        with without_cuda():
            return Pass(self.caller.network).run(lambda: self.function(output, inside, self.labels))

    def _with(self, tensors: list[Tensor], present, absent, after=None) -> float:
        right = one_hot(self.labels, self.caller.classes).to(self.images)
        lengths = right * present + (1 - right) * absent
        if after is not None:
            lengths[right.roll(1, 1) > 0] = after
        others = {id(tensor): _of_lengths(tensor, lengths) for tensor in tensors}
        return self.of(replaced(self.output, others), self.images)

    @cached_property
    def _replaceable(self) -> list[Tensor]:
        """The tensors of the output that hold the lengths.

        If the loss does not follow them, those of the poses, from which it takes the lengths.
        """
        scores = self.scores(self.images)
        lengths: list[Tensor] = []
        poses: list[Tensor] = []
        for _, tensor in named_tensors(self.output):
            if not tensor.is_floating_point() or tensor.dim() < 2 or len(tensor) != IMAGES:
                continue
            thin = squeezed(tensor)
            values = thin.norm(dim=2) if thin.dim() == 3 else thin
            if values.shape == scores.shape and float((values - scores).abs().max()) < CLOSE:
                (lengths if values is thin else poses).append(tensor)
        if not lengths and not poses:
            raise SkippedError("the output holds neither the lengths nor the poses")
        both = lengths and poses
        if both and self._with(lengths, 0.95, 0.05) == self._with(lengths, 0.05, 0.95):
            return poses
        return lengths or poses


def _of_lengths(tensor: Tensor, lengths: Tensor) -> Tensor:
    """Poses of these lengths in place of poses, or the lengths."""
    thin = squeezed(tensor)
    if thin.dim() == 3:
        unit = thin / thin.norm(dim=2, keepdim=True).clamp_min(1e-12)
        lengths = unit * lengths[:, :, None]
    return lengths.to(tensor).reshape(tensor.shape)


def _number(value) -> float:
    """A loss in float64; ValueError if it is no number."""
    try:
        return float(value.cpu().double() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError) as error:
        shape = getattr(value, "shape", None)
        form = type(value).__name__ + (f" {tuple(shape)}" if shape is not None else "")
        raise ValueError(f"loss= returns {form}, expected a number") from error
