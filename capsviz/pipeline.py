"""A whole run: recipe and flags -> training -> one reading of the test set -> checkpoint."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path

import torch
from torch import nn

from capsviz import checkpoint, data, discovery, figures
from capsviz.board import Board
from capsviz.evaluate import evaluate
from capsviz.files import write_text
from capsviz.recipe import Recipe, read_recipe, resolve_precision, to_toml
from capsviz.train import best_epoch, fit, read_history

PRECISION_STEPS = 20  # steps between updates of the progress bar's numbers: each one waits


def prepare(source: str | None, flags: dict) -> tuple[str, Recipe]:
    """Name and recipe from a name in `trained/`, a TOML file or nothing, with flags laid over it.

    Flags that are None leave the recipe as it is; those that no recipe has go to the network.
    """
    recipe, name = Recipe(), None
    if source is not None:
        path = Path(source)
        if path.suffix != ".toml":
            path = discovery.folder(checkpoint.SHIPPED) / f"{source}.toml"
        if not path.is_file():
            known = sorted(p.stem for p in discovery.folder(checkpoint.SHIPPED).glob("*.toml"))
            raise ValueError(discovery.unknown("recipe", source, known) + ", or a .toml file")
        recipe, name = read_recipe(path), path.stem
    flags = {k: v for k, v in flags.items() if v is not None}
    if flags.pop("reconstruction", True) is False:
        flags["reconstruction_weight"] = 0.0
    own = {f.name for f in fields(Recipe)}
    options = {**recipe.options, **{k: v for k, v in flags.items() if k not in own}}
    recipe = replace(recipe, **{k: v for k, v in flags.items() if k in own}, options=options)
    return name or recipe.dataset, recipe


def run(
    name: str,
    recipe: Recipe,
    splits: dict[str, data.Dataset],
    output: Path,
    *,
    device: torch.device,
    resume: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> tuple[Path, dict]:
    """Train, then evaluate the stored weights on the test set once.

    Parameters
    ----------
    splits  "train", "validation" and "test".
    output  folder of the run: state, CSV, TensorBoard events, and at the end NAME.safetensors,
            NAME.json and NAME.toml.
    report  is given one line for each epoch.

    Returns
    -------
    Path of the weights, and their card.
    """
    done = len(read_history(output)) if resume else 0
    output.mkdir(parents=True, exist_ok=True)
    steps = -(-len(splits["train"].first(recipe.limit)) // recipe.batch_size)
    bar = _bar(recipe.epochs * steps, done * steps)
    board = None

    def on_step(epoch, step, steps, loss, accuracy):
        bar.update()
        if step % PRECISION_STEPS == 0 and not bar.disable:
            bar.set_postfix_str(
                f"epoch {epoch}, loss {float(loss):.4f}, accuracy {float(accuracy):.2%}"
            )

    def on_epoch(epoch, model):
        nonlocal board
        board = board or Board(output / "tensorboard", splits["validation"], epoch.epoch)
        board(epoch, model)
        report(
            f"epoch {epoch.epoch}/{recipe.epochs}: loss {epoch.train_loss:.4f}, "
            f"validation accuracy {epoch.validation_accuracy:.2%}, {epoch.seconds:.0f} s"
        )

    try:
        model, history = fit(
            recipe, splits["train"], splits["validation"], output,
            device=device, resume=resume, on_step=on_step, on_epoch=on_epoch,
        )  # fmt: skip
    finally:
        bar.close()
        if board is not None:
            board.close()
    return store(output / f"{name}.safetensors", model, recipe, splits, history, device)


def store(path: Path, model: nn.Module, recipe: Recipe, splits, history, device):
    """Write weights, card and recipe; float16 unless that changes the validation accuracy."""
    test, validation = splits["test"], splits["validation"]
    card = {
        "name": path.stem,
        "dataset": {
            "name": test.name,
            "classes": list(test.classes),
            "image_shape": list(test.image_shape),
            "options": recipe.data_options,
        },
        "recipe": asdict(recipe),
        "training": {
            "images": len(splits["train"].first(recipe.limit)),
            "epochs": len(history),
            "epoch": best_epoch(history) if recipe.keep == "best" else len(history),
            "seconds": round(sum(epoch.seconds for epoch in history)),
            "precision": resolve_precision(recipe.precision, device),
            "hardware": hardware(device),
        },
    }
    exact = evaluate(model, validation)
    for dtype in (torch.float16, None):
        checkpoint.save(path, model, card, dtype=dtype)
        stored = checkpoint.load(path, device=device)
        found = evaluate(stored, validation)
        if found.confusion == exact.confusion:
            break
    card["results"] = {
        "validation": found._asdict(),
        "test": evaluate(stored, test)._asdict(),
    }
    card["provenance"] = figures.provenance(None, str(device))
    checkpoint.save(path, model, card, dtype=dtype)
    write_text(path.with_suffix(".toml"), to_toml(recipe))
    return path, card


def hardware(device: torch.device) -> str:
    """What the run used: the GPU's name, or the machine, its cores and torch's threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {os.cpu_count()} cores, {torch.get_num_threads()} threads"


def _bar(total: int, done: int):
    from tqdm import tqdm

    return tqdm(total=total, initial=done, disable=None, unit="step", smoothing=0.05)
