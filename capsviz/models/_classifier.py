"""What the networks without capsules share: probabilities by softmax, trained by cross entropy."""

from dataclasses import asdict, fields

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


def settings_from(kind: type, name: str, image_shape, classes: int, options: dict):
    """The dataclass `kind` of a network from what `build` is given; ValueError for others."""
    known = {field.name for field in fields(kind)} - {"image_shape", "classes"}
    if strange := sorted(set(options) - known):
        raise ValueError(unknown(f"{name} option", strange[0], sorted(known)))
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    return kind(image_shape=tuple(image_shape), classes=classes, **options)


def require_positive(settings, *names: str) -> None:
    """ValueError unless each named setting, or each number in it, is at least 1."""
    for name in names:
        value = getattr(settings, name)
        if min(value if isinstance(value, tuple) else (value,)) < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def training_bytes(network: Classifier, batch: int) -> int:
    """Memory of training with a batch, at most about: weights, gradients, Adam, and a step.

    Not for networks with batch norm: of them no batch may be computed in parts.
    """
    return 16 * sum(p.numel() for p in network.parameters()) + batch * network.image_bytes
