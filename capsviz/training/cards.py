"""Write the files of a trained network: weights, card, and the recipe of a run."""

import copy
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from math import nan
from pathlib import Path

import torch
from torch import nn

from capsviz import checkpoint
from capsviz.data import Dataset
from capsviz.files import write_text
from capsviz.nn import models
from capsviz.nn.computation import seeded
from capsviz.provenance import hardware, provenance
from capsviz.statistics.words import with_interval
from capsviz.tracing import abilities
from capsviz.tracing.record import NotFiniteError
from capsviz.training.evaluate import evaluate
from capsviz.training.history import best_epoch, stopped_early
from capsviz.training.recipe import Recipe, differing, resolve_precision, to_toml
from capsviz.training.thresholds import thresholds
from capsviz.wrapping.environment import as_written

MAX_HALF_LOSS = 0.0005  # of validation accuracy, for storing weights in float16


def save(
    model: nn.Module, path: str | os.PathLike, dataset: Dataset, *, options: Mapping | None = None
) -> Path:
    """Save a network that you trained, for `capsviz.load` and `--checkpoint`.

    Parameters
    ----------
    model    a `CapsNet`, or another network of `capsviz.nn.models`. For a module of your own, save
             the `state_dict` by torch and use `--network FILE.py:FUNCTION --weights FILE`.
    path     a folder, "runs/mine", for runs/mine/mine.safetensors; or the name of that file. A JSON
             card is written beside the weights. Existing files are overwritten.
    dataset  the network's training data; name, classes and image shape are saved.
    options  options with which commands load the data set, e.g. {"image_size": 32} or
             {"pad_px": 2}; None: those given to `capsviz.data.load`.

    Returns
    -------
    The path of the weights.

    Raises
    ------
    ValueError  if the network is not capsviz's, does not fit the images or classes, or has weights
                with other names, e.g. because of `weight_norm`.
    """
    model = as_written(model)
    kind, name, config = type(model).__name__, models.name_for(model), abilities(model).config
    if name is None or not config:
        raise ValueError(
            f"a {kind} is not a network of capsviz.nn.models: save its weights by "
            "torch.save(model.state_dict(), FILE), and open them by --network FILE.py:FUNCTION "
            "--weights FILE"
        )
    if not isinstance(dataset, Dataset):
        raise TypeError(
            "expected the data set of the training, as capsviz.data.load(name, 'train') gives it, "
            f"got {type(dataset).__name__}"
        )
    expected = (tuple(config["image_shape"]), config["classes"])
    if expected != (dataset.image_shape, len(dataset.classes)):
        raise ValueError(
            f"the network is for images {expected[0]} of {expected[1]} classes, but "
            f"{dataset.name} has {dataset.image_shape} of {len(dataset.classes)}"
        )
    with seeded(0):
        fresh = models.of_config(name, config)
    if strange := sorted(fresh.state_dict().keys() ^ model.state_dict().keys()):
        raise ValueError(
            f"the names of its weights are not a {kind}'s ({strange[0]}): make them "
            "permanent first (torch.nn.utils.parametrize.remove_parametrizations, prune.remove, "
            "remove_weight_norm)"
        )
    path = Path(path)
    if path.suffix != ".safetensors":
        path = path / f"{path.name}.safetensors"
    card = {
        "name": path.stem,
        "dataset": _about_data(dataset, dict(dataset.options if options is None else options)),
        "training": {"images": len(dataset)},
        "provenance": provenance(None, str(next(model.parameters()).device)),
    }
    return checkpoint.save(path, model, card, dtype=None)


def stored(path: Path, recipe: Recipe, splits) -> dict | None:
    """Return the card of a finished run of this recipe on these splits, else None."""
    try:
        card = checkpoint.read_card(path)
        complete = card["weights"].get("sha256") == checkpoint.sha256(path)
    except (FileNotFoundError, ValueError):  # the run was killed while it wrote them
        return None
    complete = complete and "results" in card and path.with_suffix(".toml").is_file()
    complete = complete and not models.changed(card["model"])
    same = card["dataset"].get("images") == {k: part.digest for k, part in splits.items()}
    return card if complete and same and not differing(card.get("recipe", {}), recipe) else None


def store(
    path: Path, model: nn.Module, recipe: Recipe, splits, history, device, *, processes: int = 1
) -> dict:
    """Write weights, card and recipe, and return the card.

    Weights are stored in float16 unless that costs more than `MAX_HALF_LOSS`. The results in the
    card are those of the stored weights.
    """
    test, validation = splits["test"], splits["validation"]
    validated, dtype = evaluate(model, validation), None
    half = copy.deepcopy(model).half().float()
    with suppress(NotFiniteError):  # some weights are too large for float16
        rounded = evaluate(half, validation)
        if rounded.accuracy >= validated.accuracy - MAX_HALF_LOSS:
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
    """Return the card of a run without results and thresholds."""
    return {
        "name": path.stem,
        "dataset": {
            **_about_data(splits["test"], recipe.data_options),
            "whole": list(splits["train"].image_shape),  # before the centre is cropped
            "images": {name: part.digest for name, part in splits.items()},
        },
        "recipe": asdict(recipe),
        "training": training,
        "provenance": provenance(None, str(device)),
    }


def rows(card: Mapping) -> list[tuple[str, str]]:
    """Return the (name, value) rows of the table about a network; unknown values are left out."""
    model, training = card.get("model", {}), card.get("training", {})
    settings, test = model.get("config", {}), card.get("results", {}).get("test", {})
    routing = accuracy = None
    if "routing" in settings:
        iterations = settings.get("iterations", 1)
        routing = f"{settings['routing']}, {iterations} iteration{'s' * (iterations != 1)}"
    if "accuracy" in test:
        text = with_interval(test["accuracy"], test.get("accuracy_ci95", (nan, nan)), ".2%")
        accuracy = f"{text}, n = {test['n']:,}"
    rows = {
        "network": model.get("name"),
        "routing": routing,
        "parameters": f"{p:,}" if (p := card.get("weights", {}).get("parameters")) else None,
        "images": " × ".join(map(str, settings.get("image_shape", ()))),
        "trained on": card.get("dataset", {}).get("name"),
        "training images": f"{k:,}" if (k := training.get("images")) else None,
        "epochs": training.get("epochs"),
        "weights of epoch": training.get("epoch"),
        "hardware": training.get("hardware"),
        "precision": training.get("precision"),
        "seed": card.get("recipe", {}).get("seed"),
        "accuracy on the whole test set": accuracy,
    }
    if training.get("unfinished"):
        rows["note"] = "the run had not ended when these weights were taken"
    return [(name, str(value)) for name, value in rows.items() if value not in (None, "")]


def _about_data(dataset: Dataset, options: dict) -> dict:
    return {
        "name": dataset.loader,
        "classes": list(dataset.classes),
        "image_shape": list(dataset.image_shape),
        "things": 1 if dataset.parts is None else dataset.parts.shape[1],  # in each image
        "options": options,
        "notice": dataset.notice,
    }
