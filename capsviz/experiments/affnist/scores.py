"""Scores of the affNIST protocol: on shifted MNIST, affnist_like, and affNIST if available."""

import base64
import functools
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from capsviz import data, discovery
from capsviz.data import affnist_like
from capsviz.nn.functional import predict
from capsviz.statistics.intervals import wilson
from capsviz.tracing import scores
from capsviz.transforms.augment import shift, to_float

SHIFT_PX = affnist_like.PAD_PX
HELD_OUT_SEED = 1  # of the shifts of validation and test images
ORIGINALS = 10_000  # test images of MNIST
VARIANTS = 32  # of each in affnist_like
CHUNK = 2000  # images that are float at a time


@functools.cache
def held_out(split: str, root=None) -> data.Dataset:
    """Return validation or test images of MNIST on 40x40, each shifted once as in training."""
    part = data.load("mnist", split, root, pad_px=affnist_like.PAD_PX)
    generator = torch.Generator().manual_seed(HELD_OUT_SEED)
    return replace(part, images=shift(part.images, SHIFT_PX, generator=generator))


def right(model: nn.Module, dataset: data.Dataset) -> np.ndarray:
    """Return which images are classified correctly: bool (N,)."""
    parts = zip(dataset.images.split(CHUNK), dataset.labels.split(CHUNK), strict=True)
    hits = [predict(scores(model, to_float(images))) == labels for images, labels in parts]
    return torch.cat(hits).numpy()


def score(model: nn.Module, limit: int | None, root=None) -> dict:
    """Return held-out, test and affine accuracy of a network, as a result holds them."""
    result: dict[str, Any] = {"parameters": sum(p.numel() for p in model.parameters())}
    for name, split in (("held_out", "validation"), ("test", "test")):
        result[name] = _accuracy(right(model, held_out(split, root)))
    hits = right(model, like(limit, root))
    result["affnist_like"] = {**_accuracy(hits), "right": pack(hits), "spec": affnist_like.SPEC}
    published = real(limit, root)
    result["affnist"] = None if published is None else _accuracy(right(model, published))
    return result


@functools.cache
def real(limit: int | None, root=None) -> data.Dataset | None:
    """Return the first test images of affNIST, or None without its files."""
    try:
        whole = data.load("affnist", "test", root)
    except FileNotFoundError:
        return None
    return whole.first(None if limit is None else min(limit, len(whole)))


@functools.cache
def like(limit: int | None, root=None) -> data.Dataset:
    """Return the first images of affnist_like's test split: one of each original, then another."""
    n = len(data.load("mnist", "test", root))
    whole = VARIANTS * n if limit is None else limit
    return data.load("affnist_like", "test", root, variants=max(1, -(-whole // n))).first(whole)


def _accuracy(hits: np.ndarray) -> dict:
    k, n = int(hits.sum()), len(hits)
    return {"n": n, "accuracy": k / n, "accuracy_ci95": wilson(k, n)}


def pack(hits: np.ndarray) -> str:
    """Return bool (N,) as base64, eight images a byte."""
    return base64.b64encode(np.packbits(hits).tobytes()).decode()


def unpack(text: str, n: int) -> np.ndarray:
    """Return the bool (n,) that `pack` encoded."""
    return np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8))[:n].astype(bool)


def draw_transforms(n: int, root=None) -> dict[str, np.ndarray]:
    """Return fields of `affnist_like.Transforms` for the first n test images, each (n,) float32.

    How far an image may be shifted depends on its foreground, so MNIST is needed.
    """
    plain = data.load("mnist", "test", root, download=False)
    variants = [affnist_like.transforms(plain, v) for v in range(-(-n // len(plain)))]
    columns = zip(affnist_like.Transforms._fields, zip(*variants, strict=True), strict=True)
    return {name: np.concatenate(parts)[:n].astype(np.float32) for name, parts in columns}


def transforms(n: int, root=None) -> dict[str, np.ndarray]:
    """Return the first n transforms, as shipped or drawn; FileNotFoundError without MNIST."""
    with np.load(discovery.folder("capsviz.trained") / "affnist" / "transforms.npz") as stored:
        columns = {name: stored[name] for name in affnist_like.Transforms._fields}
    if n > len(columns["shear"]):
        return draw_transforms(n, root)
    return {name: values[:n] for name, values in columns.items()}
