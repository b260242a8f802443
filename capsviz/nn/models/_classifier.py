"""Base of networks without capsules: probabilities by softmax, trained by cross entropy."""

from dataclasses import asdict

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from capsviz.nn.computation import channels_last
from capsviz.nn.functional import margin_loss, multi_hot
from capsviz.nn.models import Objective, Scores


class Classifier(nn.Module):
    """A network whose `scores(images) -> (B, J)` become probabilities; `settings` fix it."""

    def __init__(self, settings):
        super().__init__()
        if settings.classes < 2:
            raise ValueError(f"a classifier needs at least 2 classes, got {settings.classes}")
        self.settings = settings

    @property
    def config(self) -> dict:
        """Return what `build` needs to make this network again, as plain data for a card."""
        return asdict(self.settings)

    def scores(self, images: Tensor) -> Tensor:
        """Images (B, C, H, W) -> logits (B, J)."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Scores:
        """Images (B, C, H, W) in [0, 1] -> probabilities and logits (B, J), in float32."""
        expected = self.settings.image_shape
        if images.dim() != 4 or tuple(images.shape[1:]) != expected:
            raise ValueError(f"expected images (B, {expected}), got {tuple(images.shape)}")
        logits = self.scores(channels_last(images))
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return Scores(logits.softmax(1), logits)

    def objective(
        self, output: Scores, images: Tensor, labels: Tensor, reconstruction_factor: float = 1.0
    ) -> Objective:
        """Cross entropy; the margin loss of the probabilities beside it, for comparison.

        Probabilities sum to one, so they cannot all be near it: for K classes in each image, labels
        (B, K), the target of the cross entropy is 1/K for each, and the margin loss, which asks
        for 0.9 of each, cannot come to zero. Nothing is reconstructed here.
        """
        target = labels
        if labels.dim() == 2:
            target = one_hot(labels, output.logits.shape[1]).to(output.logits.dtype).mean(1)
        present = multi_hot(labels, output.lengths.shape[1])
        margin = margin_loss(output.lengths.detach(), present)
        return Objective(cross_entropy(output.logits, target), margin)


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
