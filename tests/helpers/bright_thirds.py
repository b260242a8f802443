"""A problem that is learned in seconds: which third of an image, or which two, is bright."""

import pytest
import torch

from capsviz import checkpoint
from capsviz.data import Dataset
from capsviz.training.history import STATE
from capsviz.training.recipe import Recipe
from capsviz.training.train import fit

CLASSES = ("a", "b", "c")
RECIPE = Recipe(
    dataset="random",
    options={"channels": 5, "types": 2, "primary_dimensions": 4, "hidden": [8, 9]},
    epochs=4,
    batch_size=8,
    schedule="linear",
    precision="fp32",
    keep="last",
)
EVERYTHING = {  # every option of training beside these
    "crop_px": 19, "shift_px": 1, "flip": True, "brightness": 0.2, "contrast": 0.3,
    "weight_decay": 1e-3, "decoder_learning_rate": 2e-3, "decoder_weight_decay": 1e-4,
    "reconstruction_anneal": 0.1, "clip_norm": 0.5, "ema": 0.9, "warmup_epochs": 1.5,
}  # fmt: skip


def one_third(generator):
    """30 training and 30 validation images (1, 21, 21)."""
    labels = torch.arange(60) % 3
    images = torch.randint(0, 60, (60, 1, 21, 21), generator=generator, dtype=torch.uint8)
    for image, label in zip(images, labels, strict=True):
        image[:, :, 7 * label : 7 * label + 7] += 180
    split = [Dataset(images[k::2], labels[k::2], CLASSES, "random", "x") for k in (0, 1)]
    return tuple(split)


def two_thirds(generator, n=24):
    """n images (1, 21, 21), the sum of two parts: another third is bright in each."""
    labels = torch.tensor([[0, 1], [2, 0], [1, 2]]).repeat(n // 3, 1)
    parts = torch.randint(0, 20, (n, 2, 1, 21, 21), generator=generator, dtype=torch.uint8)
    for some, classes in zip(parts, labels, strict=True):
        for part, label in zip(some, classes, strict=True):
            part[:, :, 7 * label : 7 * label + 7] += 100
    return Dataset(parts.sum(1).byte(), labels, CLASSES, "pairs", "x", parts=parts)


def weights(folder):
    """All tensors of the state of a run."""
    return checkpoint.read_tensors(folder / STATE)[0]


def same(one, other):
    """Whether two sets of tensors are bit-equal."""
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def fit_until(stop, recipe, *parts_and_output):
    """Train, interrupted after the epoch `stop`."""

    class StopError(Exception):
        pass

    def on_epoch(epoch, model):
        if epoch.epoch == stop:
            raise StopError

    with pytest.raises(StopError):
        fit(recipe, *parts_and_output, on_epoch=on_epoch)
