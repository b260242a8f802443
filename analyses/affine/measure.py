"""Measures of `affine`: affine variants, accuracies on them, and gaps."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from capsviz.data import affnist_like
from capsviz.data.affnist_like import Transforms
from capsviz.statistics import comparison
from capsviz.statistics.estimate import Estimate, less, stack, to_first
from capsviz.transforms import Fill
from capsviz.transforms.augment import to_uint8

SHOWN = 5  # at most so many pictures of an image, with the original
ROOM = 0.2  # largest shift of images that may lose foreground pixels, share of a side


def whole(images: Tensor) -> Tensor:
    """Return images (N, C, H, W) in [0, 1] as uint8, on the CPU."""
    return torch.from_numpy(to_uint8(images.cpu()))


def draw(images: Tensor, variant: int, *, seed: int, fill: Fill) -> Transforms:
    """Draw the parameters of one random variant of each uint8 image (N, C, H, W)."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + variant)
    room = None if fill == "black" else ROOM
    return affnist_like.draw(images, generator=generator, room=room)


def shift_px(drawn: Transforms) -> np.ndarray:
    """Return the larger of the two shifts of each variant: (N,)."""
    return torch.maximum(drawn.shift_x_px.abs(), drawn.shift_y_px.abs()).numpy()


def mean_scale(drawn: Sequence[Transforms]) -> float:
    """Return the mean scale of all variants, in both directions."""
    scales = [scale for one in drawn for scale in (one.scale_x, one.scale_y)]
    return float(torch.stack(scales).mean())


def framed(images: Tensor) -> bool:
    """Return whether most images (N, C, H, W) have an empty frame, at least one pixel wide."""
    bright = images.amax(1) > 0
    inner = bright[:, 1:-1, 1:-1].flatten(1).sum(1)
    return bool((bright.flatten(1).sum(1) == inner).float().mean() > 0.5)


def check(within: np.ndarray, trained_px: float) -> None:
    """Raise ValueError if fewer than 2 images have a variant (V, N) inside, or outside."""
    for side, mask in (("inside", within), ("outside", ~within)):
        if mask.any(0).sum() < 2:
            raise ValueError(
                f"fewer than 2 images have a variant {side} shifts of {trained_px:g} pixels: "
                "change --within, ask for more variants, or take images with an empty border"
            )


def statistics(plain, changed, within, counts) -> dict[str, Estimate]:
    """Return the accuracy and gap of a result, from correct answers to images and variants.

    `plain` is (K, N), `changed` (K, V, N). `within` (V, N) is true for variants inside the training
    shift range.
    """

    def gap(one: Estimate) -> Estimate:
        apart = less(clean, one, paired=True)
        return replace(apart, n=one.n, difference=to_first(apart))

    clean = comparison.compare_means(plain, counts)
    places = [
        comparison.compare_shares((changed & mask).sum(1), mask.sum(0), counts)
        for mask in (within, ~within)
    ]
    return {"accuracy": stack([clean, *places], 1), "gap": stack([gap(one) for one in places], 1)}


def examples(
    images: Tensor, drawn: Sequence[Transforms], within: np.ndarray, fill: Fill
) -> tuple[np.ndarray, np.ndarray]:
    """Return pictures (E, C, H, W) uint8 of an image and its variants, and their shifts (E,).

    It is the first image with variants inside (`within`, (V, N)) and outside the training shift
    range.
    """
    shown = drawn[: SHOWN - 1]
    both = within[: len(shown)].any(0) & ~within[: len(shown)].all(0)
    i = int(both.argmax())
    some = [Transforms(*(numbers[i : i + 1] for numbers in one)) for one in shown]
    own = images[i : i + 1]
    pictures = torch.cat([own, *(affnist_like.apply(own, one, fill) for one in some)])
    return pictures.numpy(), np.array([0.0, *(shift_px(one)[0] for one in some)])
