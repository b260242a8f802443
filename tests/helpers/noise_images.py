"""Images of noise, their labels, and others like them: fixtures of several analyses' tests."""

import pytest
import torch

from capsviz.inputs.samples import Others
from capsviz.tracing import trace
from helpers.fixtures import build_strong

CLASSES = ["a", "b", "c"]


@pytest.fixture
def model():
    return build_strong()


@pytest.fixture
def images(generator):
    return torch.rand(24, 1, 21, 19, generator=generator)


@pytest.fixture
def images_of_classes(model, generator):
    """Up to 30, which the network reads as several classes."""
    return spread_out(model, 10, generator)


@pytest.fixture
def labels():
    return torch.arange(24) % 3


@pytest.fixture
def others(generator):
    return Others(torch.rand(15, 1, 21, 19, generator=generator), torch.arange(15) % 3, "15 others")


def spread_out(model, n, generator):
    """n images that the network reads as several classes."""
    images = torch.rand(20 * n, 1, 21, 19, generator=generator)
    images *= torch.rand(20 * n, 1, 1, 1, generator=generator)
    read = trace(model, images, keep=("lengths",)).lengths.argmax(1)
    counts = read.bincount(minlength=3)
    some = [(read == k).nonzero().flatten()[:n] for k in range(3) if counts[k]]
    return images[torch.cat(some)][torch.randperm(sum(map(len, some)), generator=generator)]
