"""The state of a run on disk: its record, and the weights and moments that it resumes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from glob import escape
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import nn

from capsviz import checkpoint, files
from capsviz.checkpoint import tensors as stored
from capsviz.checkpoint import unfinished
from capsviz.checkpoint.unfinished import STATE
from capsviz.nn import objectives
from capsviz.tracing import abilities
from capsviz.training.optimisation import Average, parameters
from capsviz.training.recipe import Recipe, differing, resolve_precision
from capsviz.training.record import Epoch, best_epoch, epochs, to_csv


def read_about(output: Path) -> dict | None:
    """Recipe, precision and history of the run in a folder; None if there is none."""
    path = output / STATE
    return unfinished.run(path, stored.read_about(path)) if path.exists() else None


def read_history(output: Path) -> list[Epoch]:
    """The finished epochs of the run in a folder; none if there is no run."""
    run = read_about(output)
    return [] if run is None else epochs(run)


def best_path(output: Path, history: list[Epoch]) -> Path:
    """Weights of the best epoch so far; each epoch's have their own name, so none stands for it."""
    return output / f"best-{best_epoch(history)}.safetensors"


def clear(output: Path, name: str | None = None) -> None:
    """Remove what a run, and its weights by a name, have left that was killed while it wrote."""
    files.clear(output, STATE, "best-*.safetensors", "epochs.csv")
    if name is not None:
        files.clear(output, *(f"{escape(name)}.{end}" for end in ("safetensors", "json", "toml")))
        files.clear(output / "epochs", *(f"{escape(name)}-*.{e}" for e in ("safetensors", "json")))


def keep_best(output: Path, model: nn.Module, history: list[Epoch]) -> None:
    """Write a network's weights if the last epoch is the best so far; to be followed by `save`."""
    if best_epoch(history) == len(history):
        stored.write_tensors(best_path(output, history), model.state_dict())


def read(output: Path) -> tuple[dict[str, torch.Tensor], dict] | None:
    """What `save` left in a folder: tensors, and recipe and history; None if there is no run."""
    path = output / STATE
    if not path.exists():
        return None
    tensors, about = stored.read_tensors(path)
    return tensors, unfinished.run(path, about)


def save(
    output: Path,
    recipe: Recipe,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    average: Average | None,
    history: list[Epoch],
    card: Mapping | None = None,
) -> None:
    """Write all that `restore` needs, and `epochs.csv`; then remove weights of worse epochs.

    With the run's `card` as it is before the end, the state can be opened as a checkpoint.
    """
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, state in optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{number}.{key}": value for key, value in state.items()}
    if average is not None:
        tensors |= {f"ema.{name}": value for name, value in average.tensors.items()}
    about = {
        "recipe": asdict(recipe),
        "precision": _precision(recipe, model),
        "history": [asdict(epoch) for epoch in history],
    }
    if card is not None:
        about["images"] = card["dataset"].get("images")
    strings = {"run": json.dumps(about)}
    if card is not None:
        strings["card"] = unfinished.describe(
            card,
            checkpoint.network(model),
            sum(p.numel() for p in model.parameters()),
            epoch=best_epoch(history) if recipe.keep == "best" else len(history),
            epochs=len(history),
        )
    stored.write_tensors(output / STATE, tensors, strings)
    write_csv(output, history)
    for old in set(output.glob("best-*.safetensors")) - {best_path(output, history)}:
        old.unlink()


def restore(
    state: tuple[dict[str, torch.Tensor], dict],
    output: Path,
    recipe: Recipe,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    average: Average | None,
    card: Mapping | None = None,
) -> list[Epoch]:
    """Bring a network, its optimiser and its average to the last finished epoch; the record.

    Parameters
    ----------
    state   what `read` found in the folder `output`.
    card    as `save` takes it.

    Raises
    ------
    ValueError  if the run is by a recipe that would have trained otherwise, in a precision that
                "auto" does not mean here, or of other images than the card tells of.
    """
    tensors, run = state
    _same_images(output, run.get("images"), card)
    _agree(output, recipe, run, _precision(recipe, model), endless=not _has_end(recipe, model))
    kinds: dict[str, dict[str, torch.Tensor]] = {"model": {}, "adam": {}, "ema": {}}
    ordered = parameters(optimiser)
    for key, value in tensors.items():
        kind, _, name = key.partition(".")
        kinds[kind][name] = value
    adam: dict[int, dict[str, torch.Tensor]] = {}
    for name, value in kinds["adam"].items():
        number, _, field = name.partition(".")
        if value.dim():  # laid out in memory as its parameter, which the file does not tell
            value = torch.empty_like(ordered[int(number)]).copy_(value)
        adam.setdefault(int(number), {})[field] = value
    model.load_state_dict(kinds["model"])
    optimiser.load_state_dict({**optimiser.state_dict(), "state": adam})
    if average is not None:
        average.load(kinds["ema"])
    return epochs(run)


def write_csv(output: Path, history: list[Epoch]) -> None:
    """Write `epochs.csv`: a kill may come between the state and its last line."""
    files.write_text(output / "epochs.csv", to_csv(history))


def _precision(recipe: Recipe, model: nn.Module) -> str:
    return resolve_precision(recipe.precision, next(model.parameters()).device)


def _same_images(output: Path, earlier: Mapping | None, card: Mapping | None) -> None:
    """ValueError where digests of both are there and differ; a state may be older than they are."""
    now = None if card is None else card["dataset"].get("images")
    if not earlier or not now:
        return
    if changed := [split for split in now if earlier.get(split) != now[split]]:
        raise ValueError(
            f"{output} holds a run on other images than these (of {', '.join(changed)}): "
            "what it has been trained on might be what it is tested on; choose another --output"
        )


def _has_end(recipe: Recipe, model: nn.Module) -> bool:
    """Whether an epoch depends on how many there are: by its rate, its decoder or its loss."""
    if recipe.schedule not in ("exponential", "constant") or recipe.reconstruction_anneal != 1:
        return True
    objective: Any = model.objective
    if "progress" not in signature(objective).parameters:
        return False
    name = abilities(model).config.get("objective")
    return name not in objectives.NAMES or name in objectives.WITH_PROGRESS


def _agree(output: Path, recipe: Recipe, run: dict, precision: str, *, endless: bool) -> None:
    earlier = run.get("precision", precision)  # of a state older than this field
    if earlier != precision:
        raise ValueError(
            f"{output} holds a run in {earlier}, which would go on in {precision}: "
            f"resume with --precision {earlier}, or choose another --output"
        )
    names = differing(run["recipe"], recipe)
    names -= {"precision"} & set(run)  # what it came to was compared
    names -= {"early_stop"}  # no epoch depends on how many follow
    if endless and recipe.epochs >= len(run["history"]):
        names -= {"epochs"}  # nor here on how many there may be: a run can be lengthened
    if names:
        raise ValueError(
            f"{output} holds a run by another recipe (it differs in {', '.join(sorted(names))}): "
            "resume with the same settings, or choose another --output"
        )
