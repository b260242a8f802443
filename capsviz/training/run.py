"""Run a recipe from start to end: training, one evaluation on the test set, checkpoint."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, fields, replace
from inspect import signature
from pathlib import Path

import torch
from torch import nn

from capsviz import checkpoint, data, discovery
from capsviz.files import locked
from capsviz.nn import models
from capsviz.pictures import OWN
from capsviz.training.cards import describe, store, stored
from capsviz.training.distributed import Team
from capsviz.training.history import Epoch, finished, read_history
from capsviz.training.recipe import Recipe, read_recipe
from capsviz.training.tensorboard import Writer
from capsviz.training.train import card_of_start, fit

SHOW_STEPS = 20  # steps between updates of the progress bar; an update waits for the GPU


def prepare(source: str | None, flags: dict) -> tuple[str, Recipe]:
    """Return the name and recipe of a run: a recipe changed by flags.

    `source` is the name of a shipped recipe or of a shipped series of runs, or a TOML file; None:
    the defaults. Flags that are None change nothing. Flags that are no fields of a recipe become
    options of the network. `flags["options"]` holds further flags, and `flags["dataset_options"]`
    is merged with the recipe's. If the flags change the model, the recipe's options are dropped. If
    they change the data set, its name is added to the run's.

    ValueError for an unknown recipe, a damaged file, values that `Recipe` rejects, and options that
    contradict each other or have no effect.
    """
    recipe, name = Recipe(), None
    if source is not None:
        known = {p.stem: p for p in sorted(discovery.folder(checkpoint.SHIPPED).glob("*.toml"))}
        path = known.get(source) or known.get(source.replace("-", "_")) or Path(source)
        series = discovery.folder(checkpoint.SHIPPED) / "seeds" / source / "runs.json"
        if path.suffix == ".toml" and not path.is_file():
            raise ValueError(f"there is no file '{path}'")
        if path.suffix == ".toml":
            recipe, name = read_recipe(path), path.stem
        elif series.is_file():
            terms = json.loads(series.read_text(encoding="utf-8"))["terms"]
            recipe, name = Recipe(**terms), source
        else:
            raise ValueError(discovery.unknown("recipe", source, list(known)) + ", or a .toml file")
    typed = {k: v for k, v in flags.items() if v is not None}
    decoder, named = typed.pop("reconstruction", None), typed.pop("options", {})
    dataset_options = recipe.dataset_options | typed.pop("dataset_options", {})
    for k in (k for k in named.keys() & typed.keys() if named[k] != typed[k]):
        raise ValueError(f"{k} is given twice, as {typed[k]} and as {named[k]}: drop one of them")
    flags = typed | named
    if flags.get("model", recipe.model) != recipe.model:
        recipe = replace(recipe, options={})
    own = {f.name for f in fields(Recipe)} - {"options", "dataset_options"}
    fixed = {k: v for k, v in flags.items() if k in own}
    dataset, options = recipe.dataset, recipe.options | {k: flags[k] for k in flags.keys() - own}
    if decoder is False:
        options["reconstruction_weight"] = 0.0
    elif decoder and "reconstruction_weight" not in flags:
        options.pop("reconstruction_weight", None)  # back to the network's default
    recipe = replace(recipe, **fixed, dataset_options=dataset_options, options=options)
    network = discovery.load(models.PACKAGE, recipe.model, what="model")
    takes = [*discovery.parameters(getattr(network, "Config", None))[2:], *own]
    if len(takes) > len(own) and (strange := sorted(named.keys() - set(takes))):
        what = f"{recipe.model} option or recipe field"
        raise ValueError(discovery.unknown(what, strange[0], sorted(takes)))
    if not (weight := _weight(recipe)):
        asked = {k: v for k, v in flags.items() if v}
        idle = [k for k in asked if k.startswith(("decoder", "reconstruction_"))]
        if weight is None and (decoder or idle):
            raise ValueError(f"the network '{recipe.model}' has no decoder")
        for k in idle:
            no = "--no-reconstruction" if decoder is False else "no reconstruction weight"
            raise ValueError(f"{no} and a {k} of {asked[k]}: choose one of them")
        if decoder:
            raise ValueError(
                "--reconstruction needs a weight: add --option reconstruction_weight=W"
            )
    idle = [k for k in ("lr_decay", "lr_decay_steps") if k in fixed]
    if idle and recipe.schedule != "exponential":
        raise ValueError(f"{idle[0]} has no effect with the schedule '{recipe.schedule}'")
    if name is not None and recipe.dataset != dataset:
        name = f"{name}-{recipe.dataset}"
    return name or recipe.dataset, recipe


def _weight(recipe: Recipe) -> float | None:
    """Return the weight of the reconstruction loss; None if the network has no decoder.

    A plug-in whose `build` takes any options may have a decoder: its weight is taken as 1.
    """
    build = discovery.load(models.PACKAGE, recipe.model, what="model").build
    known = signature(build).parameters
    if "reconstruction_weight" in known:
        return recipe.options.get("reconstruction_weight", known["reconstruction_weight"].default)
    ours = discovery.entries(models.PACKAGE)[recipe.model].ours
    return 1.0 if not ours and any(p.kind is p.VAR_KEYWORD for p in known.values()) else None


def suited(
    recipe: Recipe, train: data.Dataset, earlier: Mapping | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Recipe:  # fmt: skip
    """Return the recipe, with standardised images if they are a user's own and bright.

    If the mean of the pixels is above their standard deviation, as on a bright or grey background,
    capsules saturate and the network stays at chance. If the recipe sets `standardised`, it is
    returned unchanged. If training resumes an `earlier` run (its recipe) or starts from another
    network, the same choice is made as there. `report` is called with a line if images are
    standardised.
    """
    shipped = discovery.entries("capsviz.data")[train.loader].ours and train.loader not in OWN
    known = discovery.parameters(discovery.load(models.PACKAGE, recipe.model, what="model").build)
    start, past = recipe.init_from, earlier and earlier["options"]
    if "standardised" in recipe.options or "standardised" not in known or train.inputs:
        return recipe
    why = "as the run to go on with does"
    if past is None and start is not None:
        past, why = card_of_start(start).get("model", {}).get("config", {}), f"as '{start}' does"
    elif shipped and start is None:
        return recipe
    elif past is None:
        deviation, mean = torch.std_mean(train.sample(min(1000, len(train))).images / 255)
        why = (
            f"as pixels of {train.name} have mean {mean:.2f} and standard deviation {deviation:.2f}"
        )
    if not (mean > deviation if past is None else past.get("standardised")):
        return recipe
    report(
        f"the network brings each image to mean 0 and standard deviation 1, {why} (to keep pixels "
        "as they are: --option standardised=false)"
    )
    return replace(recipe, options={**recipe.options, "standardised": True})


def load(recipe: Recipe, split: str, root=None) -> data.Dataset:
    """Load a split by `data.load`; "train" is not cropped, because training crops at random."""
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
    log: Callable[[int, str, dict[str, float]], None] | None = None,
) -> tuple[Path, dict]:
    """Train, then evaluate the stored weights once on the test set; return path and card.

    Parameters
    ----------
    splits      "train", "validation" and "test", from `load`.
    output      folder of the run: state, CSV, TensorBoard events, and at the end NAME.safetensors,
                NAME.json and NAME.toml.
    save_every  also keep the weights of every `save_every`-th epoch, in float32 and with a card, as
                `epochs/NAME-EPOCH.safetensors`; None: of no epoch.
    team        as for `train.fit`; the first process evaluates and writes.
    report      called with a line for each epoch, and the lines of `train.fit`.
    log         your own logger: called by the first process after each epoch with (steps so far,
                "train" or "validation", {"accuracy": 0.98, ...}).

    Raises
    ------
    BlockingIOError  if another process trains in this folder.
    ValueError       if `save_every` is below 1; if the name is that of other files of a run; if
                     `output` has weights of this name without their state, or another network; if
                     splits differ in image shape or classes; and as from `train.fit`.
    """
    _require_same_format(recipe, splits)
    if save_every is not None and save_every < 1:
        raise ValueError(f"--save-every must be at least 1 epoch, got {save_every}")
    output, device = Path(output), torch.device(device)
    path, team = output / f"{name}.safetensors", team or Team()
    checkpoint.require_name(path)
    with locked(output) if team.leads else nullcontext():
        existing = [file for file in (path, path.with_suffix(".json")) if file.exists()]
        if team.leads and existing and not (output / checkpoint.STATE).exists():
            raise ValueError(
                f"{existing[0]} would be overwritten: choose another --output, or move it away "
                f"(--resume needs {checkpoint.STATE}, which is not there)"
            )
        others = {one.with_suffix(".safetensors") for one in output.glob("*.json")} - {path}
        for other in sorted(others if team.leads else ()):
            if other.exists() and not other.stem.endswith(checkpoint.PRIMARY):
                raise ValueError(
                    f"{other} is another network than {name}: choose another --output; to go on "
                    "with that run, repeat its command with --resume"
                )
        past = team.agree(read_history(output) if resume and team.leads else [])
        ended = team.leads and finished(recipe, past)
        card = stored(path, recipe, splits) if ended else None
        if (card := team.agree(card)) is not None:
            if save_every is not None and team.leads:
                report("this run has ended: --save-every cannot keep weights of past epochs")
            return path, card

        def keep(epoch: Epoch, model: nn.Module) -> None:
            if save_every is not None and epoch.epoch % save_every == 0:
                kept = output / "epochs" / f"{name}-{epoch.epoch}.safetensors"
                card = describe(kept, recipe, splits, device, asdict(epoch))
                checkpoint.save(kept, model, card, dtype=None)

        with _callbacks(recipe, splits, output, len(past), team, report, log) as callbacks:
            model, history = fit(
                recipe, splits["train"], splits["validation"], output,
                device=device, resume=resume, team=team, keep=keep,
                card=describe(path, recipe, splits, device, {}), **callbacks,
            )  # fmt: skip
        if team.leads:
            card = store(path, model, recipe, splits, history, device, processes=team.size)
        return path, team.agree(card)


def _require_same_format(recipe: Recipe, splits: dict[str, data.Dataset]) -> None:
    """Raise ValueError unless all splits have the same classes and image shape."""
    shape = splits["train"].first(1).crop(recipe.crop_px).image_shape
    classes = list(splits["train"].classes)
    for name, split in splits.items():
        if name != "train" and split.image_shape != shape:
            raise ValueError(
                f"images of {split.name}'s {name} split are {tuple(split.image_shape)}, but "
                f"training images {tuple(shape)}: expected the same (C, H, W)"
            )
        if list(split.classes) != classes:
            raise ValueError(f"the {name} split of {split.name} has other classes than train")


def _about_data(splits: dict[str, data.Dataset], limit: int | None) -> list[str]:
    """Return lines about the data: classes, images of each split, and `data.check`."""
    train = splits["train"]
    line = (
        f"{train.name}: {len(train.classes)} classes ({discovery.some(train.classes)}); "
        f"{len(train.first(limit)):,} training, {len(splits['validation']):,} validation and "
        f"{len(splits['test']):,} test images"
    )
    return [line, *data.check({**splits, "train": train.first(limit)})]


@contextmanager
def _callbacks(recipe, splits, output, past: int, team, report, log) -> Iterator[dict]:
    """Yield callbacks for `train.fit`: a progress bar, TensorBoard and a line for each epoch."""
    from tqdm import tqdm

    steps = -(-len(splits["train"].first(recipe.limit)) // recipe.batch_size)
    hidden = None if team.leads else True  # None: hide the bar if there is no terminal
    bar = tqdm(
        total=recipe.epochs * steps, initial=past * steps, disable=hidden, unit="step",
        smoothing=0.05,
    )  # fmt: skip
    writer = Writer(output / "tensorboard", splits["validation"], past)
    about = _about_data(splits, recipe.limit) if team.leads else []

    def on_step(epoch, step, steps, loss, accuracy):
        while about:  # in the first step, after `fit` has made its checks
            report(about.pop(0))
        bar.update()
        if step % SHOW_STEPS == 0 and not bar.disable:
            bar.set_postfix_str(
                f"epoch {epoch}, loss {float(loss):.4f}, accuracy {float(accuracy):.2%}"
            )

    def on_epoch(epoch, model):
        writer(epoch, model)
        for split in ("train", "validation") if log is not None else ():
            named = {k.partition("_")[::2]: v for k, v in asdict(epoch).items() if v is not None}
            metrics = {name: v for (kind, name), v in named.items() if kind == split}
            log(epoch.epoch * steps, split, metrics)
        report(
            f"epoch {epoch.epoch}/{recipe.epochs}: loss {epoch.train_loss:.4f}, "
            f"validation accuracy {epoch.validation_accuracy:.2%}, {epoch.seconds:.0f} s"
        )

    lines = report if team.leads else lambda line: None
    try:
        yield {"report": lines, "on_step": on_step, "on_epoch": on_epoch}
    finally:
        bar.close()
        writer.close()
