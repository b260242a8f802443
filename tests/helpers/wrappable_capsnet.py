"""A small capsule network that knows nothing of capsviz, by itself for images of 28 x 28 pixels."""

import os
import time
from pathlib import Path

import torch
from torch import nn


class Gray(nn.Module):
    over = 2  # axis of the softmax

    def __init__(self, channels=1, classes=10, kernel=9, stride=9, children=9):
        super().__init__()
        self.maps = nn.Conv2d(channels, 4, kernel, stride)
        self.matrices = nn.Parameter(torch.randn(children, classes, 5, 4))

    def forward(self, images):
        wait()
        children = torch.tanh(self.maps(images)).flatten(2).transpose(1, 2)
        votes = torch.einsum("ijed,bid->bije", self.matrices, children)
        logits = torch.zeros(votes.shape[:3])
        for _ in range(2):
            s = (logits.softmax(self.over)[..., None] * votes).sum(1)
            norm = s.norm(dim=-1, keepdim=True)
            poses = s * norm / (1 + norm**2)
            logits = logits + (votes * poses[:, None]).sum(3)
        return poses.norm(dim=-1)


def wait():
    """As slow as is wished: while the file $HOLD is there. Whoever waits leaves $HOLD.waits."""
    hold = Path(os.environ.get("HOLD", "nothing"))
    if hold.exists():
        hold.with_suffix(".waits").touch()
    while hold.exists():
        time.sleep(0.05)


def build():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Gray()
