"""Recipes: everything that fixes a training run, as a TOML file or as flags."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, field, fields, replace
from pathlib import Path
from typing import Annotated, Literal

import tomli_w
from pydantic import Field

from capsviz.discovery import unknown
from capsviz.validation import validated

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Inside = Annotated[float, Field(gt=0, lt=1)]
Above = Annotated[float, Field(gt=0)]

Precision = Literal["auto", "fp32", "bf16"]

PER_EPOCH = None  # of `lr_decay_steps`


@validated
class Recipe:
    """Everything that fixes a training run. `trained/<name>.toml` holds these fields."""

    dataset: str = "mnist"
    dataset_options: dict = field(default_factory=dict)  # what only it has, e.g. {"eye": "left"}
    image_size: int | None = None  # pixels, for `folder`
    image_channels: int | None = None  # 3 for colour, for `folder`
    pad_px: Count = 0  # rows and columns of zeros around each image; 6 makes 40x40 of MNIST
    crop_px: Positive | None = None  # square that the network sees: at random in training
    model: str = "capsnet"  # a file in capsviz/nn/models
    options: dict = field(
        default_factory=dict
    )  # of that model, e.g. {"preset": "authors", "iterations": 1}
    init_from: str | None = None  # a checkpoint: its tensors of equal name and shape are taken
    epochs: Positive = 50
    early_stop: Positive | None = None  # epochs without a better validation epoch; None: never
    batch_size: Positive = 128
    learning_rate: Rate = 1e-3  # of Adam
    schedule: Literal["exponential", "linear", "cosine", "constant"] = "exponential"  # "linear" and
    # "cosine" fall to 1e-6
    lr_decay: Rate = 0.96  # for "exponential": factor per `lr_decay_steps`; these are the authors'
    lr_decay_steps: Positive | None = 2000  # None: an epoch, as in recipes of before 0.2
    warmup_epochs: float = 0.0  # in which the rate rises to the schedule's, linearly from 1e-6
    weight_decay: Share = 0.0  # Adam's own: times the weight, added to its gradient (L2)
    decoder_learning_rate: Rate | None = None  # of the decoder, if any; None: the others'
    decoder_weight_decay: Share | None = None  # likewise
    reconstruction_anneal: Above = 1.0  # times the reconstruction's weight at the end; geometric
    clip_norm: Above | None = None  # longest gradient, over all weights together; None: any
    ema: Inside | None = None  # decay per step of the averaged weights, which are those kept
    shift_px: Count = 2  # random shifts of training images, in each direction
    flip: bool = False  # mirror training images left to right, with a chance of one half
    brightness: Share = 0.0  # training images times 1 - this to 1 + this
    contrast: Share = 0.0  # their distance from their mean grey times 1 - this to 1 + this
    precision: Precision = "auto"  # fp32 (a GPU may convolve in TF32, as
    # PyTorch does by itself), bf16 (autocast; routing stays fp32), or what is faster
    seed: int = 0
    keep: Literal["best", "last"] = "best"  # weights of the best validation epoch, or of the last
    limit: int | None = None  # first training images only, for trials

    @property
    def data_options(self) -> dict:
        """What the data set's `load` is given for a split to look at, its centre cut out."""
        cropped = {} if self.crop_px is None else {"crop_px": self.crop_px}
        return self.training_data_options | cropped

    @property
    def training_data_options(self) -> dict:
        """What it is given for the images to train on: whole, for training cuts them itself."""
        own = {"image_size": self.image_size, "channels": self.image_channels}
        own["pad_px"] = self.pad_px or None
        return {**self.dataset_options, **{k: v for k, v in own.items() if v is not None}}

    def __post_init__(self):
        if own := sorted({"name", "image_shape", "classes"} & set(self.options)):
            raise ValueError(f"{own[0]} comes from the data set and is no option, drop it")
        if own := sorted(NO_DATA_OPTIONS & set(self.dataset_options)):
            flag, field_too = f"--{own[0].replace('_', '-')}", own[0] in ("pad_px", "crop_px")
            way = f"it is a field of the recipe ({flag})" if field_too else "drop it"
            raise ValueError(f"{own[0]} is no option of a data set: {way}")
        if abs(self.seed) > MOST_SEED:
            raise ValueError(f"seed must be from -{MOST_SEED} to {MOST_SEED}, got {self.seed}")
        if not 0 <= self.warmup_epochs <= self.epochs:
            raise ValueError(
                f"warmup_epochs must be from 0 to the {self.epochs} epochs of the training, "
                f"got {self.warmup_epochs}"
            )


MOST_SEED = 2**42  # each epoch has a generator of its own, whose seed is a million times this
NO_DATA_OPTIONS = {"name", "split", "root", "pad_px", "crop_px", "download"}


def read_recipe(path: Path) -> Recipe:
    """A recipe from a TOML file; ValueError names a field that no recipe has.

    One that says `lr_decay` and no `lr_decay_steps` is of before 0.2: it decays per epoch.
    """
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from error
    known = [f.name for f in fields(Recipe)]
    for name in values:
        if name not in known:
            raise ValueError(f"{path}: {unknown('recipe field', name, known)}")
    try:
        return Recipe(**_with_decay(values))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _with_decay(values: Mapping) -> dict:
    """Fields of a recipe; where they are older than `lr_decay_steps`, with what was meant."""
    old = "lr_decay" in values and "lr_decay_steps" not in values
    return {**values, "lr_decay_steps": PER_EPOCH} if old else dict(values)


def as_begun(recipe: Recipe, stored: Mapping) -> Recipe:
    """A recipe with the decay per epoch of a run of before 0.2, unless another one is asked for.

    Parameters
    ----------
    stored  the fields of the run's recipe as JSON has them.
    """
    if "lr_decay" not in stored or "lr_decay_steps" in stored:
        return recipe
    if recipe.lr_decay not in (Recipe.lr_decay, stored["lr_decay"]):
        return recipe
    return replace(recipe, lr_decay=stored["lr_decay"], lr_decay_steps=PER_EPOCH)


def terms(stored: Mapping) -> dict:
    """What a stored recipe says, a field younger than it by its default, without an unused decay.

    Parameters
    ----------
    stored  the fields as JSON has them; the result has them so, too.
    """
    values = _complete(stored)
    unused = ("lr_decay", "lr_decay_steps") if values["schedule"] != "exponential" else ()
    return {name: value for name, value in values.items() if name not in unused}


def _complete(stored: Mapping) -> dict:
    return {**asdict(Recipe()), **_with_decay(stored)}


def differing(stored: Mapping, recipe: Recipe) -> set[str]:
    """Fields of a recipe in which a stored one differs; a field younger than it has its default.

    Fields of it that no recipe here has, as another version's, count too.

    A decay that is not used, in a schedule that is not exponential, does not count, nor does one
    that `as_begun` lets go on.

    Parameters
    ----------
    stored  the fields as JSON has them.
    """
    recipe = as_begun(recipe, stored)
    stored = _complete(stored)
    values = json.loads(json.dumps(asdict(recipe)))
    names = {name for name, value in values.items() if stored[name] != value}
    names |= stored.keys() - values.keys()
    unused = stored["schedule"] == recipe.schedule != "exponential"
    return names - {"lr_decay", "lr_decay_steps"} if unused else names


def read_option(text: str) -> tuple[str, object]:
    """Name and value of "NAME=VALUE", the value as TOML has it, or as text; ValueError for others.

    "kernel=9" is a number, "channels=[128, 256]" a list, "padding=valid" text.
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name.isidentifier() and equals and value):
        raise ValueError(f"'{text}': expected NAME=VALUE, e.g. kernel=9")
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, value


def to_toml(recipe: Recipe) -> str:
    """A recipe as the text of a TOML file; what is None is left out."""
    values = {k: v for k, v in asdict(recipe).items() if v is not None}
    tables = {name: values.pop(name) for name in ("dataset_options", "options")}
    tables = {name: table for name, table in tables.items() if table or name == "options"}
    return tomli_w.dumps(values | tables)


def resolve_precision(precision: str, device) -> str:
    """What "auto" means: bf16 where the processor multiplies in it, else fp32."""
    import torch

    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    fast = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return "bf16" if device.type == "cpu" and fast() else "fp32"
