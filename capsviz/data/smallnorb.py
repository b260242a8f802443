"""smallNORB: 48,600 stereo pairs of toys seen from all sides (LeCun, Huang & Bottou 2004).

https://cs.nyu.edu/~ylclab/data/norb-v1.0-small. The files are not downloaded. Put the six files
`smallnorb-5x...-dat.mat`, `-cat.mat` and `-info.mat` of training and testing, gzipped (.gz) or not,
in the folder smallNORB of the data folder. Their format is a binary matrix, not MATLAB's.
"""

import numpy as np

from capsviz.data import search_path
from capsviz.data._files import find, intact, matrix, missing, split_of

FOLDER, SIDE = "smallNORB", 96
PAGE = "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small"
PREFIX = {
    "train": "smallnorb-5x46789x9x18x6x2x96x96-training",
    "test": "smallnorb-5x01235x9x18x6x2x96x96-testing",
}
CLASSES = ("animal", "human", "plane", "truck", "car")
EYES = {"left": slice(0, 1), "right": slice(1, 2), "both": slice(0, 2)}
HELD_OUT = 9  # the toy (instance) of each class for validation
CHUNK = 1_000  # images at a time


def load(split, root=None, *, eye="both", image_size=48):
    """Load 19,440 train, 4,860 validation, 24,300 test images (N, C, image_size, image_size).

    Each class has five toys for training and five others for testing. The validation split holds
    all views of one training toy of each class, number 9 of 4, 6, 7, 8, 9. A random validation
    split would show the training toys from nearly the same side and overestimate test accuracy.

    Parameters
    ----------
    eye         "left", "right" (C = 1), or "both" as two channels (C = 2), as in the paper.
    image_size  pixels, a divisor of 96; squares of pixels are averaged. The paper uses 48.
    """
    if eye not in EYES:
        raise ValueError(f"eye must be one of {', '.join(EYES)}, got {eye!r}")
    if not isinstance(image_size, int) or image_size < 1 or SIDE % image_size:
        raise ValueError(f"image_size must divide {SIDE}, e.g. 48, got {image_size}")
    folders, arrays = search_path(root), []
    for what in ("dat", "cat") if split == "test" else ("dat", "cat", "info"):
        file = f"{PREFIX['test' if split == 'test' else 'train']}-{what}.mat"
        path = find(folders, [f"{p}/{file}{end}" for p in (FOLDER, ".") for end in ("", ".gz")])
        if path is None:
            advice = f"put it, or its .gz, from {PAGE} in {folders[-1] / FOLDER}"
            raise missing(f"smallNORB's {file}", folders, advice)
        with intact(path):
            arrays.append(matrix(path))
    with intact(path.parent):
        pairs, labels, *info = arrays
        chosen = (info[0][:, 0] == HELD_OUT) == (split == "validation") if info else slice(None)
        eyes, labels = pairs[:, EYES[eye]][chosen], labels[chosen]
        chunks = np.array_split(eyes, len(eyes) // CHUNK + 1)
        images = np.concatenate([_shrink(chunk, image_size) for chunk in chunks])
    shape = (2 if eye == "both" else 1, image_size, image_size)
    return split_of(images, labels, "smallnorb", split, CLASSES, path.parent, shape, cut=False)


def _shrink(images: np.ndarray, size: int) -> np.ndarray:
    """Downsample images (N, C, 96, 96) to (N, C, size, size) by rounded means of squares."""
    n, channels, side, _ = images.shape
    k = side // size
    squares = images.reshape(n, channels, size, k, size, k).astype(np.uint32)
    return ((squares.sum((3, 5)) + k * k // 2) // (k * k)).astype(np.uint8)
