"""Keep a network that was trained by one's own loop, so that every command opens it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from torch import nn

from capsviz import checkpoint
from capsviz.data import Dataset
from capsviz.nn import models
from capsviz.nn.random_state import seeded
from capsviz.provenance import provenance
from capsviz.wrapping.environment import as_written


def save(
    model: nn.Module, path: str | os.PathLike, dataset: Dataset, *, options: Mapping | None = None
) -> Path:
    """Write a network that you trained: `capsviz.load` and every `--checkpoint` open it again.

    Parameters
    ----------
    model    a `CapsNet`, or another network of `capsviz.nn.models`. Of a module of your own save
             the `state_dict` by torch, and name both: `--network FILE.py:FUNCTION --weights FILE`.
    path     a folder, "runs/mine", for runs/mine/mine.safetensors; or the name of that file. A card
             in JSON is written beside the weights. What is there is written over.
    dataset  that it was trained on; of it only name, classes and the shape of its images are kept.
    options  that the data set was loaded with, {"image_size": 32} or {"pad_px": 2}: commands load
             it so again, and without them not at all where its images would have another shape.

    Returns
    -------
    The path of the weights.

    Raises
    ------
    ValueError  for a network that is not capsviz's, is for other images or classes, or whose
                weights have other names, as with `weight_norm`.
    """
    model = as_written(model)
    kind = type(model)
    config = getattr(model, "config", None)
    if models.name_for(model) is None or config is None:
        raise ValueError(
            f"a {kind.__name__} is no network of capsviz.nn.models: keep torch.save("
            "model.state_dict(), FILE), and name it by --network FILE.py:FUNCTION --weights FILE"
        )
    expected = (tuple(config["image_shape"]), config["classes"])
    if expected != (dataset.image_shape, len(dataset.classes)):
        raise ValueError(
            f"the network is for images {expected[0]} of {expected[1]} classes, but "
            f"{dataset.name} has {dataset.image_shape} of {len(dataset.classes)}"
        )
    with seeded(0):
        fresh = models.of_config(str(models.name_for(model)), config)
    if strange := sorted(fresh.state_dict().keys() ^ model.state_dict().keys()):
        raise ValueError(
            f"its weights are not called as the {kind.__name__}'s are ({strange[0]}): take "
            "parametrizations away first (torch.nn.utils.parametrize.remove_parametrizations)"
        )
    path = Path(path)
    if path.suffix != ".safetensors":
        path = path / f"{path.name}.safetensors"
    card = {
        "name": path.stem,
        "dataset": {
            "name": dataset.name,
            "classes": list(dataset.classes),
            "image_shape": list(dataset.image_shape),
            "things": 1 if dataset.parts is None else dataset.parts.shape[1],
            "options": dict(options or {}),
            "notice": dataset.notice,
        },
        "training": {"images": len(dataset)},
        "provenance": provenance(None, str(next(model.parameters()).device)),
    }
    return checkpoint.save(path, model, card, dtype=None)
