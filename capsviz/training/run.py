"""A whole run: recipe and flags -> training -> one reading of the test set -> checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, fields, replace
from pathlib import Path

import torch
from torch import nn

from capsviz import checkpoint, data, discovery
from capsviz.files import locked
from capsviz.training.cards import describe, store, stored
from capsviz.training.distributed import Team
from capsviz.training.history import read_about
from capsviz.training.recipe import Recipe, as_begun, read_recipe
from capsviz.training.record import Epoch, epochs, finished
from capsviz.training.tensorboard import Writer
from capsviz.training.train import fit

SHOW_STEPS = 20  # steps between updates of the progress bar's numbers: each one waits


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
        if path.suffix == ".toml" and not path.is_file():
            raise ValueError(f"there is no file '{path}'")
        if path.suffix != ".toml":
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
    output: str | Path,
    *,
    device: str | torch.device,
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
    ValueError       for a `save_every` below 1, a name that other files of a run have, splits of
                     unlike sizes or classes, and as `train.fit` raises it.
    """
    _require_alike(recipe, splits)
    if save_every is not None and save_every < 1:
        raise ValueError(f"--save-every must be at least 1 epoch, got {save_every}")
    output, device = Path(output), torch.device(device)
    path, team = output / f"{name}.safetensors", team or Team()
    checkpoint.require_name(path)
    with locked(output) if team.leads else nullcontext():
        begun = team.agree(read_about(output) if resume and team.leads else None)
        past = [] if begun is None else epochs(begun)
        recipe = recipe if begun is None else as_begun(recipe, begun["recipe"])
        ended = team.leads and finished(recipe, past)
        card = stored(path, recipe, splits) if ended else None
        if (card := team.agree(card)) is not None:
            if save_every is not None and team.leads:
                report("this run has ended: the weights of its past epochs are not kept any more")
            return path, card

        def keep(epoch: Epoch, model: nn.Module) -> None:
            if save_every is not None and epoch.epoch % save_every == 0:
                kept = output / "epochs" / f"{name}-{epoch.epoch}.safetensors"
                card = describe(kept, recipe, splits, device, asdict(epoch))
                checkpoint.save(kept, model, card, dtype=None)

        about = describe(path, recipe, splits, device, {})
        model, history = _fit(
            recipe, splits, output, past, device, resume, team, report, keep, about
        )
        if team.leads:
            card = store(path, model, recipe, splits, history, device, processes=team.size)
        return path, team.agree(card)


def _require_alike(recipe: Recipe, splits: dict[str, data.Dataset]) -> None:
    """ValueError for images or classes that the network could not be evaluated on in the end."""
    shape = splits["train"].first(1).crop(recipe.crop_px).image_shape
    classes = list(splits["train"].classes)
    for name, split in splits.items():
        if name != "train" and split.image_shape != shape:
            raise ValueError(
                f"images of {split.name}'s {name} split are {tuple(split.image_shape)}, those to "
                f"train on {tuple(shape)}: expected equal (C, H, W)"
            )
        if list(split.classes) != classes:
            raise ValueError(f"the {name} split of {split.name} has other classes than train")


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


def _bar(total: int, start: int, *, visible: bool):
    from tqdm import tqdm

    hidden = None if visible else True  # None: unless it is a terminal
    return tqdm(total=total, initial=start, disable=hidden, unit="step", smoothing=0.05)
