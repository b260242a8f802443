"""What a run leaves at its end: weights, their card and their recipe; and whether all is there."""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from capsviz import checkpoint
from capsviz.files import write_text
from capsviz.provenance import hardware, provenance
from capsviz.tracing.finite import NotFiniteError
from capsviz.training.evaluate import evaluate
from capsviz.training.recipe import Recipe, differing, resolve_precision, to_toml
from capsviz.training.record import best_epoch, stopped_early
from capsviz.training.thresholds import thresholds

HALF_MAY_COST = 0.0005  # of validation accuracy, which is worth half the size of the weights


def stored(path: Path, recipe: Recipe, splits) -> dict | None:
    """The card of a run that ended: its test set is not read a second time."""
    try:
        card = checkpoint.read_card(path)
        whole = card["weights"].get("sha256") == checkpoint.sha256(path)
    except (FileNotFoundError, ValueError):  # it was killed before all was written
        return None
    images = card["dataset"].get("images")
    if images is not None and images != _images(splits):
        return None
    whole = whole and "results" in card and path.with_suffix(".toml").is_file()
    return card if whole and not differing(card.get("recipe", {}), recipe) else None


def _images(splits) -> dict[str, str]:
    """What tells the images of each split from others."""
    return {split: part.digest for split, part in splits.items()}


def store(
    path: Path, model: nn.Module, recipe: Recipe, splits, history, device, *, processes: int = 1
) -> dict:
    """Write weights, card and recipe; float16 unless that costs much validation accuracy.

    The card's results are those of the weights as they are stored.
    """
    test, validation = splits["test"], splits["validation"]
    validated, dtype = evaluate(model, validation), None
    half = copy.deepcopy(model).half().float()
    with suppress(NotFiniteError):  # of a number too large for float16
        rounded = evaluate(half, validation)
        if rounded.accuracy >= validated.accuracy - HALF_MAY_COST:
            model, validated, dtype = half, rounded, torch.float16
    training = {
        "images": len(splits["train"].first(recipe.limit)),
        "epochs": len(history),
        "epoch": best_epoch(history) if recipe.keep == "best" else len(history),
        "stopped_early": stopped_early(recipe, history),
        "seconds": round(sum(epoch.seconds for epoch in history)),
        "commits": list(dict.fromkeys(epoch.commit for epoch in history)),
        "precision": resolve_precision(recipe.precision, device),
        "processes": processes,
        "hardware": "; ".join(dict.fromkeys(e.hardware or hardware(device) for e in history)),
    }
    card = describe(path, recipe, splits, device, training) | {
        "results": {"validation": validated._asdict(), "test": evaluate(model, test)._asdict()},
        "thresholds": thresholds(model, validation),
    }
    checkpoint.save(path, model, card, dtype=dtype)
    write_text(path.with_suffix(".toml"), to_toml(recipe))
    return checkpoint.read_card(path)


def describe(path: Path, recipe: Recipe, splits, device, training: dict) -> dict:
    """What can be said of weights before they are evaluated."""
    test = splits["test"]
    return {
        "name": path.stem,
        "dataset": {
            "name": recipe.dataset,
            "classes": list(test.classes),
            "image_shape": list(test.image_shape),
            "whole": list(splits["train"].image_shape),  # before a centre is cut out of it
            "things": 1 if test.parts is None else test.parts.shape[1],  # to be told in each image
            "options": recipe.data_options,
            "images": _images(splits),
            "notice": test.notice,
        },
        "recipe": asdict(recipe),
        "training": training,
        "provenance": provenance(None, str(device)),
    }
