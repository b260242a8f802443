"""A data set in the size and colours that a network was wrapped for, if it comes in them."""

from __future__ import annotations

from capsviz import data


def shaped(
    part: data.Dataset, image_shape: tuple[int, int, int], dataset: str, split: str, data_dir
) -> tuple[data.Dataset, dict]:
    """The split loaded anew for images (C, H, W), and the options that this took.

    As it is, and no options, where it has that shape, or has one size only.
    """
    channels, height, width = image_shape
    options = {"image_size": height, "channels": channels}
    if part.image_shape == image_shape or height != width:
        return part, {}
    try:
        return data.load(dataset, split, data_dir, **options), options
    except (TypeError, ValueError):
        return part, {}
