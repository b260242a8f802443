"""Record the history of a run, one record per epoch, and the state that training resumes from.

The state file holds the weights, Adam's moments, averaged weights (if any), recipe, precision and
the records of all finished epochs. It can be opened as a checkpoint, too.
"""

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from glob import escape
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import nn

from capsviz import checkpoint, files
from capsviz.checkpoint import STATE
from capsviz.nn import functional, models
from capsviz.tracing import abilities
from capsviz.training.optimisation import Average, parameters
from capsviz.training.recipe import Recipe, differing, resolve_precision


@dataclass(frozen=True)
class Epoch:
    """The record of one epoch; losses and accuracies are means over images."""

    epoch: int  # from 1
    train_loss: float
    train_accuracy: float
    validation_accuracy: float
    validation_margin_loss: float
    validation_sse: float | None
    learning_rate: float  # of the last step
    seconds: float
    commit: str | None = None  # of the code, if it runs from a git checkout
    hardware: str | None = None
    train_margin_loss: float | None = None
    train_reconstruction_loss: float | None = None  # before its weight; None without a decoder


def best_epoch(history: list[Epoch]) -> int:
    """Return the epoch with the highest validation accuracy; ties go to the lowest margin loss."""
    return max(history, key=lambda e: (e.validation_accuracy, -e.validation_margin_loss)).epoch


def stopped_early(recipe: Recipe, history: list[Epoch]) -> bool:
    """Return whether training stopped because the last `early_stop` epochs were no better."""
    if recipe.early_stop is None or not 0 < len(history) < recipe.epochs:
        return False
    return len(history) - best_epoch(history) >= recipe.early_stop


def finished(recipe: Recipe, history: list[Epoch]) -> bool:
    """Return whether a run has nothing left to train."""
    return len(history) >= recipe.epochs or stopped_early(recipe, history)


def epochs(run: Mapping) -> list[Epoch]:
    """Return the finished epochs of a run; ValueError if another version of capsviz wrote them."""
    try:
        return [Epoch(**line) for line in run["history"]]
    except TypeError as error:
        raise ValueError(
            f"the run was begun by another version of capsviz ({error}): finish it with that "
            "version, or choose another --output"
        ) from error


def write_csv(output: Path, history: list[Epoch]) -> None:
    """Write the history as `epochs.csv`, one line per epoch."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Epoch)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(epoch) for epoch in history)
    files.write_text(output / "epochs.csv", text.getvalue())


def read_about(output: Path) -> dict | None:
    """Return recipe, precision and history of the run in a folder; None if there is no run."""
    path = output / STATE
    return checkpoint.run_of_state(path, checkpoint.read_about(path)) if path.exists() else None


def read_history(output: Path) -> list[Epoch]:
    """Return the finished epochs of the run in a folder; none if there is no run."""
    run = read_about(output)
    return [] if run is None else epochs(run)


def best_path(output: Path, history: list[Epoch]) -> Path:
    """Return the path of the best epoch's weights; the file name contains the epoch."""
    return output / f"best-{best_epoch(history)}.safetensors"


def clear(output: Path, name: str | None = None) -> None:
    """Remove temporary files of a run that was killed while writing, and of its weights `name`."""
    files.clear(output, STATE, "best-*.safetensors", "epochs.csv")
    if name is not None:
        files.clear(output, *(f"{escape(name)}.{end}" for end in ("safetensors", "json", "toml")))
        files.clear(output / "epochs", *(f"{escape(name)}-*.{e}" for e in ("safetensors", "json")))


def read(output: Path) -> tuple[dict[str, torch.Tensor], dict] | None:
    """Read the state that `save` wrote: tensors, and a dict about the run; None if no run."""
    path = output / STATE
    if not path.exists():
        return None
    tensors, about = checkpoint.read_tensors(path)
    return tensors, checkpoint.run_of_state(path, about)


def save(
    output: Path,
    recipe: Recipe,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    average: Average | None,
    history: list[Epoch],
    card: Mapping | None = None,
) -> None:
    """Write the state for `restore`, and `epochs.csv`; then remove the weights of worse epochs.

    `card` is the card of the run before its evaluation: with it, the state can be opened as a
    checkpoint.
    """
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, state in optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{number}.{key}": value for key, value in state.items()}
    if average is not None:
        tensors |= {f"ema.{name}": value for name, value in average.tensors.items()}
    network = checkpoint.network(model)
    about = {
        "recipe": asdict(recipe),
        "precision": resolve_precision(recipe.precision, next(model.parameters()).device),
        "history": [asdict(epoch) for epoch in history],
        "network": network,
    }
    strings = {}
    if recipe.keep == "best":
        about["best_sha256"] = checkpoint.sha256(best_path(output, history))
    if card is not None:
        about["images"] = card["dataset"].get("images")
        epoch = best_epoch(history) if recipe.keep == "best" else len(history)
        own = {
            "format": checkpoint.FORMAT,
            **card,
            "name": f"{card['name']}-epoch-{epoch}",  # so that its figures have other names
            "training": {"epoch": epoch, "epochs": len(history), "unfinished": True},
            "model": network,
            "weights": {"file": STATE, "parameters": sum(p.numel() for p in model.parameters())},
        }
        strings["card"] = json.dumps(own)
    checkpoint.write_tensors(output / STATE, tensors, {"run": json.dumps(about), **strings})
    write_csv(output, history)
    for old in set(output.glob("best-*.safetensors")) - {best_path(output, history)}:
        if checkpoint.BEST.fullmatch(old.stem):  # keep a user's file such as best-model
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
    """Restore network, optimiser and average from the last finished epoch; return the history.

    `state` is the result of `read(output)`, and `card` is as for `save`. ValueError if the run has
    another recipe, precision or images, so that training on would not reproduce it.
    """
    tensors, run = state
    record = _require_same(output, recipe, run, model, card)
    kinds: dict[str, dict[str, torch.Tensor]] = {"model": {}, "adam": {}, "ema": {}}
    ordered = parameters(optimiser)
    for key, value in tensors.items():
        kind, _, name = key.partition(".")
        kinds[kind][name] = value
    adam: dict[int, dict[str, torch.Tensor]] = {}
    for name, value in kinds["adam"].items():
        number, _, field = name.partition(".")
        if value.dim():  # restore the memory layout of the parameter, which the file lacks
            value = torch.empty_like(ordered[int(number)]).copy_(value)
        adam.setdefault(int(number), {})[field] = value
    model.load_state_dict(kinds["model"])
    optimiser.load_state_dict({**optimiser.state_dict(), "state": adam})
    if average is not None:
        average.load(kinds["ema"])
    return record


def _require_same(
    output: Path, recipe: Recipe, run: dict, model: nn.Module, card: Mapping | None
) -> list[Epoch]:
    """Return a run's history; ValueError for other images, another precision or another recipe."""
    now, before = None if card is None else card["dataset"].get("images"), run.get("images")
    if now and before and (changed := [split for split in now if before.get(split) != now[split]]):
        raise ValueError(
            f"{output} holds a run on other images ({', '.join(changed)}), so that test images may "
            "have been trained on: choose another folder"
        )
    if kinds := models.changed(run.get("network", checkpoint.network(model))):
        raise ValueError(
            f"{output} holds a run with another {' and '.join(kinds)}: the code of a plug-in has "
            "changed since; choose another folder"
        )
    precision = resolve_precision(recipe.precision, next(model.parameters()).device)
    if (earlier := run["precision"]) != precision:
        raise ValueError(
            f"{output} holds a run in {earlier}, which would go on in {precision}: "
            f"resume with --precision {earlier}, or choose another folder"
        )
    names, record = differing(run["recipe"], recipe) - {"precision"}, epochs(run)
    # other values of early_stop and epochs are fine if training would also have come this far
    if not any(finished(recipe, record[:n]) for n in range(len(record))):
        names -= {"early_stop"} if _depends_on_length(recipe, model) else {"early_stop", "epochs"}
    if names:
        raise ValueError(
            f"{output} holds a run by another recipe (it differs in {', '.join(sorted(names))}): "
            "resume with the same settings, or choose another folder"
        )
    return record


def _depends_on_length(recipe: Recipe, model: nn.Module) -> bool:
    """Return whether training depends on the number of epochs: schedule, annealing or loss."""
    if recipe.schedule not in ("exponential", "constant") or recipe.reconstruction_anneal != 1:
        return True
    objective: Any = model.objective
    if "progress" not in signature(objective).parameters:
        return False
    name = abilities(model).config.get("objective")
    return name not in functional.OBJECTIVES or name in functional.WITH_PROGRESS
