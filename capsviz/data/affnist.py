"""affNIST: 32 affine versions of every MNIST digit on 40x40 (Tieleman 2013), from its .mat files.

https://www.cs.toronto.edu/~tijmen/affNIST. The files are not downloaded. Put `test.mat`, or the
folder `test_batches` with `1.mat` ... `32.mat`, into the folder affNIST of the data folder. The
names for the other splits begin with `training` and `validation` instead of `test`.
"""

import numpy as np

from capsviz.data import search_path
from capsviz.data._files import find, intact, missing, split_of
from capsviz.pictures.opening import natural

SIDE = 40
IMAGE_SHAPE, CLASSES = (1, SIDE, SIDE), tuple("0123456789")
NAMES = {"train": "training", "validation": "validation", "test": "test"}
FOLDER = "affNIST"


def load(split, root=None):
    """Load images (N, 1, 40, 40) of a split; the test set has 320,000."""
    from scipy.io import loadmat

    name, folders = NAMES[split], [folder / FOLDER for folder in search_path(root)]
    first = find(folders, [f"{name}.mat", f"{name}_batches/1.mat"])
    if first is None:
        files = f"{name}.mat or {name}_batches/1.mat ... 32.mat"
        source = "https://www.cs.toronto.edu/~tijmen/affNIST"
        raise missing(f"affNIST's {split} split", folders, f"put {files} of {source} there")
    paths = [first]
    if first.stem != name:
        paths = sorted(first.parent.glob("*.mat"), key=lambda path: natural(path.name))
    images, labels = [], []
    for path in paths:
        with intact(path):
            content = loadmat(path)["affNISTdata"][0, 0]
            labels.append(content["label_int"].ravel())
            if content["image"].shape != (expected := (SIDE**2, len(labels[-1]))):
                raise ValueError(
                    f"expected images {expected}, one to a column, got {content['image'].shape}"
                )
            images.append(content["image"].T.reshape(-1, SIDE, SIDE))
    pixels, numbers = np.concatenate(images), np.concatenate(labels)
    return split_of(pixels, numbers, "affnist", split, CLASSES, first, IMAGE_SHAPE, cut=False)
