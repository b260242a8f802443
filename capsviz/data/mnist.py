"""MNIST: 70,000 handwritten digits, 28x28 (LeCun, Cortes & Burges)."""

from capsviz.data._files import load_idx

IMAGE_SHAPE, CLASSES = (1, 28, 28), tuple("0123456789")


def load(split, root=None, *, download=True):
    """Load 55,000 train, 5,000 validation, 10,000 test images (N, 1, 28, 28)."""
    return load_idx("MNIST", "mnist", split, root, CLASSES, download)
