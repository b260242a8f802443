"""Check batches of images for networks, transforms and attacks."""

import torch
from torch import Tensor, nn


def like_of(network: nn.Module) -> Tensor:
    """Return a tensor of the type and device that a network's images or inputs must have."""
    own = next(network.parameters(), torch.zeros(()))
    return own.double() if getattr(network, "takes_double", False) else own


def require_shape(images: Tensor, shape: tuple[int, ...]) -> None:
    """Raise ValueError for images, or other inputs, that are not (B, *shape)."""
    if tuple(images.shape[1:]) != tuple(shape):
        what, expected = "images" if len(shape) == 3 else "inputs", ", ".join(map(str, shape))
        raise ValueError(f"expected {what} (B, {expected}), got {tuple(images.shape)}")


def check_images(images: Tensor) -> None:
    """Raise ValueError or TypeError unless images are float (N, C, H, W) in [0, 1], N >= 1."""
    if not isinstance(images, Tensor):
        raise TypeError(
            f"expected images as a torch.Tensor, got {type(images).__name__}"
            f"{': torch.from_numpy(images) makes one' * (type(images).__module__ == 'numpy')}"
        )
    if images.dim() != 4 or len(images) == 0 or not images.is_floating_point():
        raise ValueError(
            "expected float images (N, C, H, W), at least one, got "
            f"{images.dtype} of {tuple(images.shape)}"
            f"{': divide them by 255' * (images.dtype == torch.uint8)}"
            f"{': for one image pass images[None]' * (images.dim() == 3)}"
        )
    low, high = (float(end) for end in images.detach().aminmax())
    if not (low >= 0 and high <= 1):  # also false for NaN
        digits = 3 if round(high, 2) != 1 else 9  # so that 1.000001 is not printed as 1
        ends = f"{low:.3g} to {high:.{digits}g}"
        how = ": divide them by 255" * (low >= 0 and high > 2)
        raise ValueError(f"expected images in [0, 1], got values from {ends}{how}")
