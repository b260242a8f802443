"""EMNIST Digits: 280,000 handwritten digits, 28x28 (Cohen, Afshar, Tapson & van Schaik 2017)."""

from dataclasses import replace

from capsviz.data._files import load_idx

IMAGE_SHAPE, CLASSES = (1, 28, 28), tuple("0123456789")


def load(split, root=None, *, download=True):
    """Load 235,000 train, 5,000 validation, 40,000 test images (N, 1, 28, 28), upright.

    EMNIST's files hold every image transposed (column by column).
    """
    stored = load_idx("EMNIST", "emnist_digits", split, root, CLASSES, download, subset="digits")
    return replace(stored, images=stored.images.transpose(2, 3).contiguous())
