"""A whole run: recipe and flags -> training -> one reading of the test set -> checkpoint."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict, fields, replace
from pathlib import Path

import torch
from torch import nn

from capsviz import checkpoint, data, discovery
from capsviz.files import locked, write_text
from capsviz.provenance import hardware, provenance
from capsviz.tracing.finite import NotFiniteError
from capsviz.training.distributed import Team
from capsviz.training.evaluate import evaluate
from capsviz.training.history import Epoch, best_epoch, finished, read_about, stopped_early
from capsviz.training.recipe import (
    Recipe,
    as_begun,
    differing,
    read_recipe,
    resolve_precision,
    to_toml,
)
from capsviz.training.tensorboard import Writer
from capsviz.training.thresholds import thresholds
from capsviz.training.train import fit

SHOW_STEPS = 20  # steps between updates of the progress bar's numbers: each one waits
HALF_MAY_COST = 0.0005  # of validation accuracy, which is worth half the size of the weights


def prepare(source: str | None, flags: dict) -> tuple[str, Recipe]:
    """Name and recipe from a name in `trained/`, a TOML file or nothing, with flags laid over it.

    Flags that are None leave the recipe as it is; those that no recipe has go to the network. The
    tables "options" and "dataset_options" are laid over the recipe's, name by name. Another model
    than the recipe's is given none of the recipe's options.

    Raises
    ------
    ValueError  for an unknown recipe, a damaged file, or values that `Recipe` refuses.
    """
    recipe, name = Recipe(), None
    if source is not None:
        known = {p.stem: p for p in sorted(discovery.folder(checkpoint.SHIPPED).glob("*.toml"))}
        path = known.get(source) or known.get(source.replace("-", "_")) or Path(source)
        if path.suffix != ".toml" or not path.is_file():
            raise ValueError(discovery.unknown("recipe", source, list(known)) + ", or a .toml file")
        recipe, name = read_recipe(path), path.stem
    flags = {k: v for k, v in flags.items() if v is not None}
    if flags.get("model", recipe.model) != recipe.model:
        recipe = replace(recipe, options={})
    decoder = flags.pop("reconstruction", None)
    if decoder is False:
        weight = {**flags, **flags.get("options", {})}.get("reconstruction_weight")
        if weight:
            raise ValueError(
                f"no reconstruction, and a reconstruction_weight of {weight}: expected one of them"
            )
        flags["reconstruction_weight"] = 0.0
    elif decoder and recipe.options.get("reconstruction_weight") == 0:
        recipe = replace(recipe, options={**recipe.options})
        del recipe.options["reconstruction_weight"]
    own = {f.name for f in fields(Recipe)}
    about_data = {**recipe.dataset_options, **flags.pop("dataset_options", {})}
    named = flags.pop("options", {})
    options = {**recipe.options, **{k: v for k, v in flags.items() if k not in own}, **named}
    fixed = {k: v for k, v in flags.items() if k in own}
    recipe = replace(recipe, **fixed, options=options, dataset_options=about_data)
    return name or recipe.dataset, recipe


def load(recipe: Recipe, split: str, root=None) -> data.Dataset:
    """A split as a run takes it: "train" whole, for training cuts its own windows out of it.

    `root` is as in `data.load`, and so is what is raised.
    """
    options = recipe.training_data_options if split == "train" else recipe.data_options
    return data.load(recipe.dataset, split, root, **options)


def run(
    name: str,
    recipe: Recipe,
    splits: dict[str, data.Dataset],
    output: Path,
    *,
    device: torch.device,
    resume: bool = False,
    save_every: int | None = None,
    team: Team | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> tuple[Path, dict]:
    """Train, then evaluate the stored weights on the test set once.

    Parameters
    ----------
    splits      "train", "validation" and "test", as `load` gives them.
    output      folder of the run: state, CSV, TensorBoard events, and at the end NAME.safetensors,
                NAME.json and NAME.toml.
    save_every  number of epochs: the weights of each such one are kept as well, in float32 and with
                a card, as `epochs/NAME-EPOCH.safetensors`; None: of none.
    team        as `train.fit` takes it; the first process evaluates and writes.
    report      is given one line for each epoch, and those of `train.fit`.

    Returns
    -------
    Path of the weights, and their card.

    Raises
    ------
    BlockingIOError  if another process trains in this folder.
    ValueError       for a `save_every` below 1, and as `train.fit` raises it.
    """
    if save_every is not None and save_every < 1:
        raise ValueError(f"--save-every must be at least 1 epoch, got {save_every}")
    path, team = output / f"{name}.safetensors", team or Team()
    with locked(output) if team.leads else nullcontext():
        begun = team.agree(read_about(output) if resume and team.leads else None)
        past = [] if begun is None else [Epoch(**line) for line in begun["history"]]
        recipe = recipe if begun is None else as_begun(recipe, begun["recipe"])
        card = _stored(path, recipe) if team.leads and finished(recipe, past) else None
        if (card := team.agree(card)) is not None:
            return path, card

        def keep(epoch: Epoch, model: nn.Module) -> None:
            if save_every is not None and epoch.epoch % save_every == 0:
                kept = output / "epochs" / f"{name}-{epoch.epoch}.safetensors"
                card = _card(kept, recipe, splits, device, asdict(epoch))
                checkpoint.save(kept, model, card, dtype=None)

        about = _card(path, recipe, splits, device, {})
        model, history = _fit(
            recipe, splits, output, past, device, resume, team, report, keep, about
        )
        if team.leads:
            card = store(path, model, recipe, splits, history, device, processes=team.size)
        return path, team.agree(card)


def _fit(recipe, splits, output, past, device, resume, team, report, keep, card):
    """`train.fit` with a bar, TensorBoard and a line for each epoch."""
    steps = -(-len(splits["train"].first(recipe.limit)) // recipe.batch_size)
    bar = _bar(recipe.epochs * steps, len(past) * steps, visible=team.leads)
    writer = None

    def on_step(epoch, step, steps, loss, accuracy):
        bar.update()
        if step % SHOW_STEPS == 0 and not bar.disable:
            bar.set_postfix_str(
                f"epoch {epoch}, loss {float(loss):.4f}, accuracy {float(accuracy):.2%}"
            )

    def on_epoch(epoch, model):
        nonlocal writer
        writer = writer or Writer(output / "tensorboard", splits["validation"], past)
        writer(epoch, model)
        report(
            f"epoch {epoch.epoch}/{recipe.epochs}: loss {epoch.train_loss:.4f}, "
            f"validation accuracy {epoch.validation_accuracy:.2%}, {epoch.seconds:.0f} s"
        )

    try:
        return fit(
            recipe, splits["train"], splits["validation"], output,
            device=device, resume=resume, team=team, card=card, keep=keep,
            report=report if team.leads else lambda line: None, on_step=on_step, on_epoch=on_epoch,
        )  # fmt: skip
    finally:
        bar.close()
        if writer is not None:
            writer.close()


def _stored(path: Path, recipe: Recipe) -> dict | None:
    """The card of a run that ended: its test set is not read a second time."""
    try:
        card = checkpoint.read_card(path)
        whole = card["weights"].get("sha256") == checkpoint.sha256(path)
    except (FileNotFoundError, ValueError):  # it was killed before all was written
        return None
    whole = whole and "results" in card and path.with_suffix(".toml").is_file()
    return card if whole and not differing(card.get("recipe", {}), recipe) else None


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
    card = _card(path, recipe, splits, device, training) | {
        "results": {"validation": validated._asdict(), "test": evaluate(model, test)._asdict()},
        "thresholds": thresholds(model, validation),
    }
    checkpoint.save(path, model, card, dtype=dtype)
    write_text(path.with_suffix(".toml"), to_toml(recipe))
    return checkpoint.read_card(path)


def _card(path: Path, recipe: Recipe, splits, device, training: dict) -> dict:
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
            "notice": test.notice,
        },
        "recipe": asdict(recipe),
        "training": training,
        "provenance": provenance(None, str(device)),
    }


def _bar(total: int, start: int, *, visible: bool):
    from tqdm import tqdm

    hidden = None if visible else True  # None: unless it is a terminal
    return tqdm(total=total, initial=start, disable=hidden, unit="step", smoothing=0.05)
