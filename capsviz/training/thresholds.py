"""Find limits from validation images outside which an image is unlike the training data.

There are two measures with equal weight: the length of the longest capsule (or the largest
probability, without capsules), and the distance to its reconstruction. Together they flag one
validation image in twenty.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from capsviz import data
from capsviz.statistics import detection
from capsviz.statistics.detection import Limits
from capsviz.tracing import abilities, images_at_a_time, scores, trace
from capsviz.tracing.outputs import distance as distance_of
from capsviz.transforms.augment import to_float


def thresholds(model: nn.Module, validation: data.Dataset) -> dict:
    """Return the limits of a network, from a whole validation split, in the format of its card.

    They are empty for images that show several objects each.
    """
    if validation.parts is not None:
        return {}
    batches = validation.images.split(images_at_a_time(model))
    parts = [_measures(model, to_float(batch)) for batch in batches]
    measures = {name: torch.cat([part[name] for part in parts]).numpy() for name in parts[0]}
    limits = detection.joint_limits({**measures, "length": -measures["length"]})
    limits["length"] *= -1
    about = {"share": detection.SHARE, "split": validation.split, "n": len(validation)}
    return {**limits, **about}


def _measures(model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    if not abilities(model).decodes:
        return {"length": scores(model, images).amax(1)}
    traced = trace(model, images, keep=("lengths", "reconstruction"))
    distance = distance_of(images.cpu(), traced.require("reconstruction"))
    return {"length": traced.require("lengths").amax(1), "distance": distance}


def limits(model) -> tuple[Limits | None, str | None]:
    """Return a network's limits from its card or else its validation images, or (None, reason)."""
    stored: Mapping = model.card.get("thresholds", {})
    if "length" not in stored and "network" in model.card:
        return None, "the training data of a custom network are not known"
    if "length" not in stored:
        try:
            stored = thresholds(model, data.here(model.card["dataset"], "validation"))
        except (FileNotFoundError, ValueError) as error:
            return None, f"its card has no limits, and there are no validation images: {error}"
        if not stored:
            return None, "its images show several objects each"
    return Limits(*(stored.get(name) for name in Limits._fields)), None
