"""A capsule network that shares no layer with capsviz: it only fills a trace and decodes."""

import torch
from torch import nn


class Foreign(nn.Module):
    """One linear map to capsules, votes by a tensor product, two rounds of routing."""

    def __init__(self, image_shape=(1, 28, 28), classes=10, grid=(3, 2, 2), D=4, E=5):
        super().__init__()
        torch.manual_seed(0)
        self.card = {"name": "foreign", "dataset": {"name": "digits"}}
        self.image_shape, self.grid, self.D = image_shape, grid, D
        I, pixels = grid[0] * grid[1] * grid[2], image_shape[0] * image_shape[1] * image_shape[2]
        self.to_capsules = nn.Linear(pixels, I * D)
        self.matrices = nn.Parameter(torch.randn(I, classes, E, D))
        self.to_pixels = nn.Linear(classes * E, pixels)

    @property
    def config(self):
        return {"image_shape": self.image_shape, "classes": self.matrices.shape[1]}

    def receptive_field(self, row, column):
        _, height, width = self.image_shape
        return slice(0, height), slice(0, width)

    def look(self, images, *, keep, couplings=None, iterations=None):
        primary = torch.tanh(self.to_capsules(images.flatten(1)))
        primary = primary.view(len(images), -1, self.D)
        votes = torch.einsum("ijed,bid->bije", self.matrices, primary)
        logits, history = torch.zeros(votes.shape[:3]), []
        for _ in range(iterations or 2):
            c = logits.softmax(2) if couplings is None else couplings.expand(votes.shape[:3])
            s = (c[..., None] * votes).sum(1)
            n = s.norm(dim=-1, keepdim=True)
            v = s * n / (1 + n**2)
            history.append((logits, c, v))
            logits = logits + (votes * v[:, None]).sum(3)
        logits, c, poses = (torch.stack(part) for part in zip(*history, strict=True))
        lengths = poses[-1].norm(dim=-1)
        return {
            "primary": primary,
            "votes": votes,
            "logits": logits,
            "couplings": c,
            "poses": poses,
            "lengths": lengths,
            "reconstruction": self.decode(poses[-1], lengths.argmax(1)),
        }

    def decode(self, poses, classes):
        keep = nn.functional.one_hot(classes, poses.shape[1])[..., None]
        pixels = torch.sigmoid(self.to_pixels((poses * keep).flatten(1)))
        return pixels.view(-1, *self.image_shape)


class Closed(Foreign):
    """Its couplings cannot be replaced."""

    def look(self, images, *, keep, iterations=None):
        return super().look(images, keep=keep, iterations=iterations)
