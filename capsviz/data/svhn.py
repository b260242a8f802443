"""SVHN: 99,289 house numbers, cropped to the middle digit, 3x32x32 (Netzer et al. 2011)."""

from capsviz.data import search_path
from capsviz.data._files import read, split_of

IMAGE_SHAPE, CLASSES = (3, 32, 32), tuple("0123456789")
FOLDER = "SVHN"  # for downloads; the data folder itself, as torchvision has it, is read too


def load(split, root=None, *, download=True):
    """Load 68,257 train, 5,000 validation, 26,032 test images (N, 3, 32, 32).

    They are read from train_32x32.mat and test_32x32.mat. The 531,131 "extra" images are not used,
    as in Sabour et al. (2017).
    """
    from torchvision.datasets import SVHN

    part = "test" if split == "test" else "train"
    _, file, _ = SVHN.split_list[part]
    folders = [folder / place for folder in search_path(root) for place in ("", FOLDER)]
    source = read(SVHN, folders, [file], download, split=part)
    return split_of(source.data, source.labels, "svhn", split, CLASSES, source.root, IMAGE_SHAPE)
