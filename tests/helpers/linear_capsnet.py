"""A capsule network that is linear in its pixels, so that what each one contributes is known."""

import torch
from torch import nn

from capsviz.nn.models import Scores

SHAPE, CLASSES = (1, 4, 5), 3


class Exact(nn.Module):
    """Each pixel is a child, each vote along its class's own axis, each coupling 1/J: |s_j| is
    Σ_i c w_ij x_i, with weights above zero that sum to J for each class.
    """

    decoder = None
    grid = (1, *SHAPE[1:])

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        weights = torch.rand(20, CLASSES, generator=generator) + 0.1
        self.weights = nn.Parameter(CLASSES * weights / weights.sum(0))
        self.config = {"image_shape": SHAPE, "classes": CLASSES}
        self.card = {"name": "exact", "dataset": {"name": "none"}}

    def contributions(self, images, classes):
        """(B, H, W): of each pixel to its image's class."""
        shares = self.weights.detach()[:, classes].T / CLASSES
        return (images.flatten(1) * shares).view(len(images), *SHAPE[1:])

    def receptive_field(self, row, column):
        return slice(row, row + 1), slice(column, column + 1)

    def from_children(self, children, activations=None, *, couplings=None):
        return None, children[..., 0] @ self.weights / CLASSES

    def look(self, images, *, keep, couplings=None, iterations=None):
        primary = images.flatten(1)[..., None]
        axes = torch.eye(CLASSES, 4)
        votes = primary[:, :, None] * self.weights[None, ..., None] * axes
        if couplings is None:
            couplings = torch.full(votes.shape[:3], 1 / CLASSES)
        couplings = couplings.expand(votes.shape[:3])
        poses = torch.einsum("bij,bije->bje", couplings, votes)
        return {
            "primary": primary,
            "votes": votes,
            "logits": torch.zeros_like(couplings)[None],
            "couplings": couplings[None],
            "poses": poses[None],
            "lengths": poses.sum(2),
        }


class Plain(nn.Module):
    """Linear in its pixels, without capsules."""

    def __init__(self):
        super().__init__()
        self.config = {"image_shape": SHAPE, "classes": CLASSES}
        self.exact = Exact()

    def forward(self, images):
        logits = images.flatten(1) @ self.exact.weights
        return Scores(logits.softmax(1), logits)
