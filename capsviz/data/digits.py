"""scikit-learn's 1,797 handwritten digits, 8x8, enlarged to 28x28: always there, no download."""

from __future__ import annotations

from pathlib import Path

import torch

from capsviz.data import Dataset

BOX, SIDE = 20, 28  # the 8x8 digit fills 20 of 28 pixels, as MNIST's digits do
IMAGE_SHAPE, CLASSES = (1, SIDE, SIDE), tuple("0123456789")
TEST, VALIDATION = 360, 180
SEED = 0  # of the stratified splits: fixed, so that results can be compared


def load(split, root=None, *, download=True):
    """1,257 train, 180 validation, 360 test images (N, 1, 28, 28), each split stratified.

    They are in no folder; FileNotFoundError for a `root` that is not there, which a slip would be.
    """
    if root is not None and not Path(root).is_dir():
        raise FileNotFoundError(f"there is no folder '{root}'; the digits need none")
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
    index = torch.tensor({"train": train, "validation": validation, "test": test}[split])
    labels = torch.from_numpy(labels).long()
    return Dataset(images[index], labels[index], CLASSES, "digits", split)
