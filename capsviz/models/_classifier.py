"""What the networks without capsules share: probabilities by softmax, trained by cross entropy."""

from dataclasses import asdict
from typing import get_args, get_type_hints

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from capsviz.discovery import unknown
from capsviz.functional import margin_loss
from capsviz.models import Objective, Scores


class Classifier(nn.Module):
    """A network whose `scores(images) -> (B, J)` become probabilities; `settings` fix it."""

    def __init__(self, settings):
        super().__init__()
        if settings.classes < 2:
            raise ValueError(f"a classifier needs at least 2 classes, got {settings.classes}")
        self.settings = settings

    @property
    def config(self) -> dict:
        """What `build` needs to make this network again, as plain data for a card."""
        return asdict(self.settings)

    def scores(self, images: Tensor) -> Tensor:
        """Images (B, C, H, W) -> logits (B, J)."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Scores:
        """Images (B, C, H, W) in [0, 1] -> probabilities and logits (B, J), in float32."""
        expected = self.settings.image_shape
        if images.dim() != 4 or tuple(images.shape[1:]) != expected:
            raise ValueError(f"expected images (B, {expected}), got {tuple(images.shape)}")
        images = images.contiguous(memory_format=torch.channels_last)
        logits = self.scores(images)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return Scores(logits.softmax(1), logits)

    def objective(self, output: Scores, images: Tensor, labels: Tensor) -> Objective:
        """Cross entropy; the margin loss of the probabilities beside it, for comparison."""
        margin = margin_loss(output.lengths.detach(), labels)
        return Objective(cross_entropy(output.logits, labels), margin)


class PlainClassifier(Classifier):
    """Convolutions of `settings.channels` and no batch norm: a batch may be computed in parts."""

    @property
    def image_bytes(self) -> int:
        """Memory that one image takes on its way through the network and back, at most about."""
        c, (_, height, width) = self.settings, self.settings.image_shape
        return 4 * 4 * sum(c.channels) * height * width

    def training_bytes(self, batch: int) -> int:
        """Memory of training with a batch, at most about: weights, gradients, Adam, and a step."""
        return 16 * sum(p.numel() for p in self.parameters()) + batch * self.image_bytes


def settings_from(kind: type, name: str, image_shape, classes: int, options: dict):
    """The dataclass `kind` of a network from what `build` is given.

    Raises
    ------
    ValueError  for an unknown option, or one whose value is not of the type of its field.
    """
    known = get_type_hints(kind)
    del known["image_shape"], known["classes"]
    if strange := sorted(set(options) - set(known)):
        raise ValueError(unknown(f"{name} option", strange[0], sorted(known)))
    for option, value in options.items():
        _require_type(option, value, known[option])
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    return kind(image_shape=tuple(image_shape), classes=classes, **options)


def require_positive(settings, *names: str) -> None:
    """ValueError unless each named setting, or each number in it, is at least 1."""
    for name in names:
        value = getattr(settings, name)
        if min(value if isinstance(value, tuple) else (value,)) < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def _require_type(name: str, value, kind) -> None:
    """ValueError unless a value is an int, a float, a str, or a sequence of ints, as `kind` is."""
    numbers = get_args(kind)  # of a tuple: (int, ...) or one int for each number
    if numbers and numbers[-1] is Ellipsis:
        words = "a list of one or more whole numbers"
        fits = isinstance(value, list | tuple) and len(value) > 0 and all(map(_is_whole, value))
    elif numbers:
        words = f"a list of {len(numbers)} whole numbers"
        fits = isinstance(value, list | tuple) and len(value) == len(numbers)
        fits = fits and all(map(_is_whole, value))
    elif kind is int:
        words, fits = "a whole number", _is_whole(value)
    elif kind is float:
        words, fits = "a number", _is_whole(value) or isinstance(value, float)
    else:
        words, fits = "text", isinstance(value, kind)
    if not fits:
        raise ValueError(f"{name} must be {words}, got {value!r}")


def _is_whole(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
