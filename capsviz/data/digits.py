"""scikit-learn's 1,797 handwritten digits, 8x8, enlarged to 28x28: always there, no download."""

from __future__ import annotations

from functools import cache

import torch

from capsviz.data import Dataset

BOX, SIDE = 20, 28  # the 8x8 digit fills 20 of 28 pixels, as MNIST's digits do
IMAGE_SHAPE, CLASSES = (1, SIDE, SIDE), tuple("0123456789")
TEST, VALIDATION = 360, 180
SEED = 0  # of the stratified splits: fixed, so that results can be compared


def load(split, root=None, *, download=True):
    """1,257 train, 180 validation, 360 test images (N, 1, 28, 28), each split stratified."""
    images, labels, places = _enlarged()
    index = places[split]
    return Dataset(images[index], labels[index], CLASSES, "digits", split)


@cache
def _enlarged():
    """All images (1797, 1, 28, 28) uint8, their labels (1797,), and the places of each split."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    source = load_digits()
    images = torch.from_numpy(source.images).float()[:, None] / 16
    images = torch.nn.functional.interpolate(
        images, (BOX, BOX), mode="bicubic", align_corners=False
    )
    images = torch.nn.functional.pad(images, ((SIDE - BOX) // 2,) * 4)
    images = (images.clamp(0, 1) * 255).round().to(torch.uint8)
    labels = source.target
    rest, test = train_test_split(
        range(len(labels)), test_size=TEST, stratify=labels, random_state=SEED
    )
    train, validation = train_test_split(
        rest, test_size=VALIDATION, stratify=labels[rest], random_state=SEED
    )
    splits = {"train": train, "validation": validation, "test": test}
    places = {split: torch.tensor(index) for split, index in splits.items()}
    return images, torch.from_numpy(labels).long(), places
