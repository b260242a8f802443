"""Training images that an analysis fits on: never those that it measures."""

from __future__ import annotations

import torch

from capsviz.transforms.augment import to_float


def training_images(inputs, count: int) -> dict:
    """Up to `count` training images of each class, always the same ones, drawn at random.

    Parameters
    ----------
    inputs  `cli.inputs.Inputs`, whose data set's training split is read.

    Returns
    -------
    fit_images (M, C, H, W) in [0, 1] and fit_labels (M,); nothing where there is no training split,
    or where it is what the analysis measures.
    """
    try:
        part = inputs.load("train").single()
    except (FileNotFoundError, ValueError):
        return {}
    if inputs.dataset.split == "train":
        return {}
    draw = torch.randperm(len(part), generator=torch.Generator().manual_seed(0))
    ordered = part.labels[draw]
    chosen = [draw[ordered == k][:count] for k in range(len(part.classes))]
    part = part.take(torch.cat(chosen))
    return {"fit_images": to_float(part.images), "fit_labels": part.labels}
