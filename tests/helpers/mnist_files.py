"""MNIST-like files of random images, as torchvision lays them."""

from pathlib import Path

import torch

FOLDERS = {
    "MNIST": ("train", "t10k"),
    "FashionMNIST": ("train", "t10k"),
    "KMNIST": ("train", "t10k"),
    "EMNIST": ("emnist-digits-train", "emnist-digits-test"),
}


def write_idx(folder: Path, n_train: int, n_test: int):
    """MNIST-like files of random images under folder/raw."""
    raw = folder / "raw"
    raw.mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    for prefix, n in zip(FOLDERS[folder.name], (n_train, n_test), strict=True):
        pixels = torch.randint(0, 256, (n, 28, 28), generator=generator, dtype=torch.uint8)
        labels = (torch.arange(n) % 10).byte()
        head = (2051).to_bytes(4, "big") + b"".join(k.to_bytes(4, "big") for k in (n, 28, 28))
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(head + pixels.numpy().tobytes())
        head = (2049).to_bytes(4, "big") + n.to_bytes(4, "big")
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(head + labels.numpy().tobytes())
