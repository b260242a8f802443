"""What the tensors of a data set must be, and by what they are told from others."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def check(images: Tensor, labels: Tensor, parts: Tensor | None, classes: int) -> None:
    """TypeError or ValueError, in one line, for tensors that are not as of `Dataset`."""
    if not isinstance(images, Tensor) or images.dtype != torch.uint8 or images.dim() != 4:
        kind = f"{images.dtype}" if isinstance(images, Tensor) else type(images).__name__
        shape = tuple(getattr(images, "shape", ()))
        raise TypeError(
            f"images must be a uint8 tensor (N, C, H, W), got {kind} of the shape {shape}"
        )
    if not isinstance(labels, Tensor) or labels.is_floating_point():
        kind = getattr(labels, "dtype", type(labels).__name__)
        raise TypeError(f"labels must be a tensor of whole numbers (N,), got {kind}")
    if len(images) != len(labels):
        raise ValueError(f"{len(images)} images, but {len(labels)} labels")
    whole = None if parts is None else (*labels.shape, *images.shape[1:])
    if whole is None and labels.dim() != 1:
        raise ValueError(f"labels must be (N,), got {tuple(labels.shape)}")
    if parts is not None and (tuple(parts.shape) != whole or labels.dim() != 2):
        raise ValueError(f"parts must be (N, K, C, H, W), {whole}: {tuple(parts.shape)}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        low, high = int(labels.min()), int(labels.max())
        raise ValueError(
            f"labels of {classes} classes must be 0 to {classes - 1}, got {low} to {high}"
        )


def digest(*tensors: Tensor | None) -> str:
    """SHA-256 of the shapes, types and numbers of tensors, as 64 hex digits."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(repr(None if tensor is None else (tensor.dtype, tuple(tensor.shape))).encode())
        if tensor is not None:
            sha.update(tensor.cpu().contiguous().numpy().data)
    return sha.hexdigest()
