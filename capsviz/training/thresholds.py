"""Which images are unlike the training data: limits from validation images, kept in a card.

Two measures, each given the same chance: the length of the longest capsule (of a network without
capsules, its largest probability), and the distance to that capsule's reconstruction. Together they
flag one validation image in twenty.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from capsviz import data
from capsviz.statistics import detection
from capsviz.statistics.detection import Limits
from capsviz.tracing import images_at_a_time, reconstructs, scores, trace
from capsviz.tracing.outputs import distance as distance_of
from capsviz.transforms.augment import to_float

DISTANCE = "reconstruction_distance"  # in cards of before 0.2: the 95th percentile, of it alone


def thresholds(model: nn.Module, validation: data.Dataset, *, progress=iter) -> dict:
    """The part of a card that says which images are unlike the training data.

    Parameters
    ----------
    validation  its split; all of it is looked at.

    Returns
    -------
    Name -> limit as in `Limits`, the share of validation images beyond them, and their number.
    Empty for images that show several things each.
    """
    if validation.parts is not None:
        return {}
    batches = progress(validation.images.split(images_at_a_time(model)))
    parts = [_measures(model, to_float(batch)) for batch in batches]
    measures = {name: torch.cat([part[name] for part in parts]).numpy() for name in parts[0]}
    limits = detection.joint_limits({**measures, "length": -measures["length"]})
    limits["length"] *= -1
    about = {"share": detection.SHARE, "split": validation.split, "n": len(validation)}
    return {**limits, **about}


def _measures(model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    if not reconstructs(model):
        return {"length": scores(model, images).amax(1)}
    traced = trace(model, images, keep=("lengths", "reconstruction"))
    assert traced.lengths is not None and traced.reconstruction is not None  # they are kept
    distance = distance_of(images.cpu(), traced.reconstruction)
    return {"length": traced.lengths.amax(1), "distance": distance}


def limits(model) -> tuple[Limits | None, str | None]:
    """What an image of a network's training data keeps to.

    From its card; without it there, from the validation images, if they are at hand.

    Returns
    -------
    The limits, or None; and what is not known of them, and why, or None.
    """
    stored: Mapping = model.card.get("thresholds", {})
    if "length" not in stored and "network" in model.card:
        return None, "what a network of one's own was trained on is not known"
    if "length" not in stored:
        try:
            computed = thresholds(model, data.here(model.card["dataset"], "validation"))
        except (FileNotFoundError, ValueError) as error:
            why = f"its card has no threshold, and there are no validation images: {error}"
            if DISTANCE not in stored:
                return None, why
            distance = float(stored[DISTANCE]["value"])
            return Limits(distance=distance), f"by the lengths of capsules: {why}"
        if not computed:
            return None, "its images show several things each"
        stored = computed
    return Limits(*(stored.get(name) for name in Limits._fields)), None
