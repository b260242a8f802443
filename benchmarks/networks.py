"""What capsviz is measured against: the floor, and a literal transcription of the paper."""

import torch
from torch import Tensor, nn

from capsviz import functional


class Floor(nn.Module):
    """The two convolutions of CapsNet and a squash: what no CapsNet can do without.

    No routing, no class capsules, no decoder; the loss is the mean of the primary capsules.
    """

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 256, 9), nn.Conv2d(256, 256, 9, 2)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 1, 28, 28) -> primary capsules (B, 1152, 8)."""
        features = self.conv1(images).relu().contiguous(memory_format=torch.channels_last)
        out = self.conv2(features)
        capsules = out.reshape(len(out), 32, 8, 6, 6).movedim(2, 4)
        return functional.squash(capsules.reshape(len(out), 1152, 8).float())

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """A scalar that depends on every capsule."""
        return self(images).square().mean()


class Literal(nn.Module):
    """The paper's network as its text reads, every tensor held: the way public code does it."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 256, 9), nn.Conv2d(256, 256, 9, 2)
        self.weight = nn.Parameter(torch.randn(1, 1152, 10, 16, 8) * 0.1)
        self.decoder = nn.Sequential(
            nn.Linear(160, 512), nn.ReLU(), nn.Linear(512, 1024), nn.ReLU(),
            nn.Linear(1024, 784), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 1, 28, 28) -> poses (B, 10, 16)."""
        out = self.conv2(self.conv1(images).relu())
        primary = functional.squash(out.view(-1, 32, 8, 6, 6).movedim(2, 4).reshape(-1, 1152, 8))
        votes = (self.weight @ primary[:, :, None, :, None])[..., 0]  # û_j|i
        logits = torch.zeros(votes.shape[:3], device=votes.device)  # b_ij
        for iteration in range(3):
            couplings = logits.softmax(2)  # c_ij
            total = (couplings[..., None] * votes).sum(1)  # s_j
            poses = functional.squash(total)  # v_j
            if iteration < 2:
                logits = logits + (votes * poses[:, None]).sum(3)
        return poses

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Margin loss and 0.0005 times the SSE."""
        poses = self(images)
        made = self.decoder(functional.mask(poses, labels)).view_as(images)
        margin = functional.margin_loss(functional.lengths(poses), labels)
        return (margin + 0.0005 * functional.reconstruction_loss(images, made)).mean()
