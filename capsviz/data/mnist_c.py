"""MNIST-C: MNIST under 15 corruptions (Mu & Gilmer 2019, arXiv:1906.02337), from its .npy files.

https://github.com/google-research/mnist-c. The files are not downloaded: unpack mnist_c.zip in the
data folder. It then holds `mnist_c/fog/test_images.npy`, `mnist_c/fog/test_labels.npy`, and the
same for every corruption. `identity` is MNIST itself.
"""

import numpy as np

from capsviz.data import mnist, search_path
from capsviz.data._files import intact, missing, split_of
from capsviz.discovery import require_known

FOLDER = "mnist_c"


def load(split, root=None, *, corruption="identity"):
    """Load images (N, 1, 28, 28) of one corruption, in MNIST's order; the test set has 10,000."""
    folders = [folder / FOLDER for folder in search_path(root)]
    places = {p.name: p for f in reversed(folders) if f.is_dir() for p in f.iterdir() if p.is_dir()}
    if not places:
        where = "https://github.com/google-research/mnist-c"
        raise missing("MNIST-C", folders, f"unpack mnist_c.zip of {where} there")
    require_known("corruption in MNIST-C", corruption, sorted(places))
    part, arrays = "test" if split == "test" else "train", []
    for what in ("images", "labels"):
        with intact(path := places[corruption] / f"{part}_{what}.npy"):
            arrays.append(np.load(path, allow_pickle=False))
    return split_of(*arrays, FOLDER, split, mnist.CLASSES, path.parent, mnist.IMAGE_SHAPE)
