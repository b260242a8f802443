"""Kuzushiji-MNIST: 70,000 cursive Japanese characters, 28x28 (Clanuwat et al. 2018)."""

from capsviz.data._files import load_idx

IMAGE_SHAPE = (1, 28, 28)
CLASSES = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")


def load(split, root=None, *, download=True):
    """Load 55,000 train, 5,000 validation, 10,000 test images (N, 1, 28, 28)."""
    return load_idx("KMNIST", "kmnist", split, root, CLASSES, download)
