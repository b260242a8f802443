"""scikit-learn's 1,797 handwritten digits, 8x8, enlarged to 28x28: available without a download.

`digits.txt` beside this file lists the images of each split. They are scikit-learn's
`train_test_split`, stratified, with seed 0, so that results can be compared. Neighbouring images
are presumably by one writer and appear in both training and test images; splits by `block` avoid
that.
"""

import gzip
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from capsviz.data import Dataset

BLOCKS, VALIDATION, RANDOM = 5, 180, -1
BOX, SIDE = 20, 28  # the 8x8 digit fills 20 of 28 pixels, as MNIST's digits do
IMAGE_SHAPE, CLASSES = (1, SIDE, SIDE), tuple("0123456789")


def load(split, root=None, *, block=RANDOM):
    """Load 1,257 train, 180 validation, 360 test images (N, 1, 28, 28), each split stratified.

    With `block` 0 to 4, the test split is that fifth of the file (359 or 360 images) and the
    validation split is the next 180 images, cyclically. -1 uses scikit-learn's random split.
    """
    if not RANDOM <= block < BLOCKS:
        raise ValueError(
            f"block of the data set 'digits' must be 0 to {BLOCKS - 1}, or {RANDOM} for a random "
            f"split, got {block!r}"
        )
    if root is not None and not Path(root).is_dir():
        raise FileNotFoundError(f"there is no folder '{root}'; the digits need none")
    images, labels, random_splits = _enlarged()
    index = random_splits[split] if block == RANDOM else _block_splits(len(images), block)[split]
    return Dataset(images[index], labels[index], CLASSES, "digits", split)


def _block_splits(count: int, block: int) -> dict[str, torch.Tensor]:
    """Return the indices of each split if one block of the file is the test split."""
    start, end = count * block // BLOCKS, count * (block + 1) // BLOCKS
    around = torch.arange(start, start + count) % count
    sizes = [end - start, VALIDATION, count - (end - start) - VALIDATION]
    test, validation, train = around.split(sizes)
    return {"train": train, "validation": validation, "test": test}


@cache
def _enlarged():
    """Return images (1797, 1, 28, 28) uint8, labels (1797,), and the indices of each split."""
    spec = find_spec("sklearn")  # importing it takes 1.5 s
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the digits are scikit-learn's: pip install scikit-learn")
    with gzip.open(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", "rt") as file:
        values = np.loadtxt(file, delimiter=",")  # (1797, 65): 64 pixels from 0 to 16, then label
    images = torch.from_numpy(values[:, :-1].reshape(-1, 1, 8, 8)).float() / 16
    images = torch.nn.functional.interpolate(
        images, (BOX, BOX), mode="bicubic", align_corners=False
    )
    images = torch.nn.functional.pad(images, ((SIDE - BOX) // 2,) * 4)
    images = (images.clamp(0, 1) * 255).round().to(torch.uint8)
    lines = Path(__file__).with_suffix(".txt").read_text(encoding="ascii").splitlines()
    words = [line.split() for line in lines]
    splits = {split: torch.tensor([int(n) for n in numbers]) for split, *numbers in words}
    return images, torch.from_numpy(values[:, -1]).long(), splits
