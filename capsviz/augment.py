"""Images in batches: float and uint8, per-image shifts of whole pixels by one gather."""

import numpy as np
import torch
from torch import Tensor


def to_float(images: Tensor) -> Tensor:
    """uint8 (N, C, H, W) -> float32 in [0, 1]."""
    return images / 255


def to_uint8(images: Tensor) -> np.ndarray:
    """Images in [0, 1], of any shape and device, -> uint8 array, rounded."""
    return (images * 255).round().byte().cpu().numpy()


def shift(images: Tensor, max_px: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Move each image by its own whole number of pixels, filling with zeros.

    Parameters
    ----------
    images     (B, C, H, W), any dtype; taken to be zero outside.
    max_px     both shifts are drawn uniformly from -max_px ... max_px (the paper uses 2).
    generator  of the shifts, on the CPU: the same shifts on every device.

    Returns
    -------
    Same shape and dtype.
    """
    offsets = draw_offsets(len(images), max_px, generator=generator)
    return cut(images, offsets.to(images.device), max_px)


def draw_offsets(n: int, max_px: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Where `cut` takes n images from: integers (2, n), rows and columns, 0 ... 2 * max_px."""
    return torch.randint(0, 2 * max_px + 1, (2, n), generator=generator)


def cut(images: Tensor, offsets: Tensor, max_px: int) -> Tensor:
    """Images (B, C, H, W), padded by max_px, cut at their offsets (2, B) to their old size.

    Where everything is on a GPU, nothing waits for it.
    """
    if max_px == 0:
        return images
    B, _, H, W = images.shape
    padded = torch.nn.functional.pad(images, (max_px,) * 4)
    windows = padded.unfold(2, H, 1).unfold(3, W, 1)  # (B, C, offsets, offsets, H, W), no copy
    return windows[torch.arange(B, device=images.device), :, offsets[0], offsets[1]]
