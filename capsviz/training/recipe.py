"""Define recipes: all settings of a training run, from a TOML file or flags."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, field, fields
from pathlib import Path
from typing import Annotated, Literal

import tomli_w
from pydantic import Field

from capsviz.discovery import unknown
from capsviz.transforms import Fill
from capsviz.validation import Above, Part, Positive, validated

Count = Annotated[int, Field(ge=0)]
Sides = Annotated[list[Positive], Field(min_length=2, max_length=2)]
Rate = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Inside = Annotated[float, Field(gt=0, lt=1)]
Angle = Annotated[float, Field(ge=0, lt=90)]

Precision = Literal["auto", "fp32", "bf16"]

DECAY = ("lr_decay", "lr_decay_steps")  # fields of the exponential schedule only
MISSING = object()


@validated
class Recipe:
    """All settings of a training run; a TOML file holds these fields."""

    dataset: str = "mnist"
    dataset_options: dict = field(default_factory=dict)  # of the data set, e.g. {"eye": "left"}
    image_size: Positive | Sides | None = None  # pixels: side of a square, or (H, W)
    image_channels: int | None = None  # for users' own data: 1 for grey, 3 for colour
    pad_px: Count = 0  # rows and columns of zeros around each image; 6 makes 40x40 of MNIST
    crop_px: Positive | None = None  # square that is cropped: at random in training, else centred
    model: str = "capsnet"  # a file in capsviz/nn/models
    options: dict = field(default_factory=dict)  # of the model, e.g. {"preset": "authors"}
    init_from: str | None = None  # a checkpoint; tensors of equal name and shape are copied from it
    epochs: Positive = 50
    early_stop: Positive | None = None  # stop after so many epochs without a better one
    batch_size: Positive = 128
    learning_rate: Rate = 1e-3  # of Adam
    schedule: Literal["exponential", "linear", "cosine", "constant"] = "exponential"
    lr_decay: Rate = 0.96  # for "exponential": factor per `lr_decay_steps`, as the authors have it
    lr_decay_steps: Positive = 2000
    warmup_epochs: float = 0.0  # the rate rises linearly from 1e-6 to the schedule's
    weight_decay: Share = 0.0  # Adam's L2 penalty, not AdamW's
    decoder_learning_rate: Rate | None = None  # None: `learning_rate`
    decoder_weight_decay: Share | None = None  # None: `weight_decay`
    reconstruction_anneal: Above = 1.0  # final factor of the reconstruction loss; geometric
    clip_norm: Above | None = None  # largest gradient norm, over all weights; None: no clipping
    ema: Inside | None = None  # decay per step of averaged weights, which are then kept
    shift_px: Count = 2  # random shifts of training images, in each direction
    flip: bool = False  # mirror each training image left to right with probability 1/2
    brightness: Share = 0.0  # random factors from 1 - this to 1 + this
    contrast: Share = 0.0  # random factors from 1 - this to 1 + this
    rotation_deg: Angle = 0.0  # random rotations by up to this in both directions
    scale: Part = 0.0  # random sizes from 1 - this to 1 + this
    shear_deg: Angle = 0.0  # random shears by up to this in both directions
    fill: Fill = "black"  # outside a shifted or warped image: black, its edge, or its mean colour
    precision: Precision = "auto"  # fp32, bf16 (autocast; routing stays fp32), or the faster one
    seed: int = 0
    keep: Literal["best", "last"] = "best"  # weights of the best validation epoch, or of the last
    limit: Positive | None = None  # use only so many training images, the first ones, for trials

    @property
    def data_options(self) -> dict:
        """Return options of `data.load` for validation and test images, with a centre crop."""
        cropped = {} if self.crop_px is None else {"crop_px": self.crop_px}
        return self.training_data_options | cropped

    @property
    def training_data_options(self) -> dict:
        """Return options of `data.load` for training images: uncropped, as training crops them."""
        own = {name: getattr(self, name) for name in ("image_size", "image_channels", "pad_px")}
        return self.dataset_options | {name: value for name, value in own.items() if value}

    def __post_init__(self):
        if own := sorted({"name", "image_shape", "classes"} & set(self.options)):
            raise ValueError(f"{own[0]} comes from the data set: drop this option")
        if left_out := [name for name, value in self.options.items() if value is None]:
            raise ValueError(f"{left_out[0]} is None, which a recipe file cannot hold: drop it")
        if own := sorted(NO_DATA_OPTIONS & set(self.dataset_options)):
            way = f"use --option {own[0]}=N" if own[0] in ("pad_px", "crop_px") else "drop it"
            raise ValueError(f"{own[0]} is not an option of a data set: {way}")
        if abs(self.seed) > MOST_SEED:
            raise ValueError(f"seed must be from -{MOST_SEED} to {MOST_SEED}, got {self.seed}")
        if not 0 <= self.warmup_epochs <= self.epochs:
            raise ValueError(
                f"warmup_epochs must be from 0 to the {self.epochs} epochs of training, "
                f"got {self.warmup_epochs}"
            )


MOST_SEED = 2**42  # seeds of an epoch's generator are a million times larger and need 64 bits
NO_DATA_OPTIONS = {"name", "split", "root", "pad_px", "crop_px", "download"}


def read_recipe(path: Path) -> Recipe:
    """Read a recipe from a TOML file; ValueError for unknown fields and wrong values."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from error
    known = [f.name for f in fields(Recipe)]
    for name in values:
        if name not in known:
            raise ValueError(f"{path}: {unknown('recipe field', name, known)}")
    try:
        return Recipe(**values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def terms(stored: Mapping) -> dict:
    """Return a recipe stored as JSON with defaults for missing fields, and without unused decay."""
    values = {**asdict(Recipe()), **stored}
    unused = DECAY if values["schedule"] != "exponential" else ()
    return {name: value for name, value in values.items() if name not in unused}


def differing(stored: Mapping, recipe: Recipe) -> set[str]:
    """Return the names of fields in which a recipe stored as JSON differs from `recipe`.

    Fields that only the stored recipe has count, too. Learning rate decay counts only if both
    schedules are exponential.
    """
    old, new = terms(stored), terms(json.loads(json.dumps(asdict(recipe))))
    names = {name for name in {**old, **new} if old.get(name, MISSING) != new.get(name, MISSING)}
    return names if old["schedule"] == new["schedule"] else names - set(DECAY)


def read_option(text: str) -> tuple[str, object]:
    """Return name and value of "NAME=VALUE"; the value is TOML, or else text.

    "kernel=9" is a number, "channels=[128, 256]" a list, "padding=valid" text. ValueError for
    anything else.
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name.isidentifier() and equals and value):
        raise ValueError(f"'{text}': expected NAME=VALUE, e.g. kernel=9")
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, value


def to_toml(recipe: Recipe) -> str:
    """Return a recipe as the text of a TOML file; fields that are None are left out."""
    values = {k: v for k, v in asdict(recipe).items() if v is not None}
    tables = {name: values.pop(name) for name in ("dataset_options", "options")}
    tables = {name: table for name, table in tables.items() if table or name == "options"}
    return tomli_w.dumps(values | tables)


def resolve_precision(precision: str, device) -> str:
    """Resolve "auto" precision: bf16 if the processor multiplies in bfloat16, else fp32."""
    import torch

    from capsviz.nn.computation import multiplies_bfloat16

    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if device.type == "cpu" and multiplies_bfloat16() else "fp32"
