"""Fashion-MNIST: 70,000 pieces of clothing, 28x28 (Xiao, Rasul & Vollgraf 2017)."""

from capsviz.data._files import load_idx

IMAGE_SHAPE = (1, 28, 28)
CLASSES = (
    "T-shirt", "trouser", "pullover", "dress", "coat",
    "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip


def load(split, root=None, *, download=True):
    """Load 55,000 train, 5,000 validation, 10,000 test images (N, 1, 28, 28)."""
    return load_idx("FashionMNIST", "fashion_mnist", split, root, CLASSES, download)
