"""Recipes: everything that fixes a training run, as a TOML file or as flags."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from capsviz.discovery import unknown


@dataclass(frozen=True)
class Recipe:
    """Everything that fixes a training run. `trained/<name>.toml` holds these fields."""

    dataset: str = "mnist"
    dataset_options: dict = field(default_factory=dict)  # what only it has, e.g. {"eye": "left"}
    image_size: int | None = None  # pixels, for `folder`
    image_channels: int | None = None  # 3 for colour, for `folder`
    pad_px: int = 0  # rows and columns of zeros around each image; 6 makes 40x40 of MNIST
    crop_px: int | None = None  # square that the network sees: at random in training, else centred
    model: str = "capsnet"  # a file in capsviz/models
    options: dict = field(
        default_factory=dict
    )  # of that model, e.g. {"preset": "authors", "iterations": 1}
    init_from: str | None = None  # a checkpoint: its tensors of equal name and shape are taken
    epochs: int = 50
    early_stop: int | None = None  # epochs without a better validation epoch; None: never
    batch_size: int = 128
    learning_rate: float = 1e-3  # of Adam
    schedule: str = "exponential"  # or "constant"; "linear" or "cosine", both to zero at the end
    lr_decay: float = 0.96 ** (430 / 2000)  # per epoch, for "exponential"; the authors' 0.96/2,000
    warmup_epochs: float = 0.0  # in which the rate rises to the schedule's, linearly from zero
    weight_decay: float = 0.0  # Adam's own: times the weight, added to its gradient (L2)
    decoder_learning_rate: float | None = None  # of the decoder, if there is one; None: the others'
    decoder_weight_decay: float | None = None  # likewise
    reconstruction_anneal: float = 1.0  # times the reconstruction's weight at the end; geometric
    clip_norm: float | None = None  # longest gradient, over all weights together; None: any
    ema: float | None = None  # decay per step of the averaged weights, which are those kept
    shift_px: int = 2  # random shifts of training images, in each direction
    flip: bool = False  # mirror training images left to right, with a chance of one half
    brightness: float = 0.0  # training images times 1 - this to 1 + this
    contrast: float = 0.0  # their distance from their mean grey times 1 - this to 1 + this
    precision: str = "auto"  # "fp32" (a GPU may convolve in TF32, as PyTorch does by itself),
    # "bf16" (autocast; routing stays fp32), or what is faster
    seed: int = 0
    keep: str = "best"  # weights of the best validation epoch, or of the "last"
    limit: int | None = None  # first training images only, for trials

    @property
    def data_options(self) -> dict:
        """What the data set's `load` is given for a split to look at, its centre cut out."""
        cropped = {} if self.crop_px is None else {"crop_px": self.crop_px}
        return self.training_data_options | cropped

    @property
    def training_data_options(self) -> dict:
        """What it is given for the images to train on: whole, for training cuts them itself."""
        given = {"image_size": self.image_size, "channels": self.image_channels}
        given["pad_px"] = self.pad_px or None
        return {**self.dataset_options, **{k: v for k, v in given.items() if v is not None}}

    def __post_init__(self):
        for f in fields(self):
            value, kinds = getattr(self, f.name), KINDS[f.type]
            if isinstance(value, bool) != (f.type == "bool") or not isinstance(value, kinds):
                raise ValueError(f"{f.name} must be {f.type}, got {value!r}")
        for words, (holds, names) in RANGES.items():
            for name in names:
                value = getattr(self, name)
                if value is not None and not holds(value):
                    raise ValueError(f"{name} must be {words}, got {value}")
        if given := sorted({"name", "image_shape", "classes"} & set(self.options)):
            raise ValueError(f"{given[0]} comes from the data set and is no option, drop it")
        if given := sorted(NO_DATA_OPTIONS & set(self.dataset_options)):
            flag, own = f"--{given[0].replace('_', '-')}", given[0] in ("pad_px", "crop_px")
            way = f"it is a field of the recipe ({flag})" if own else "drop it"
            raise ValueError(f"{given[0]} is no option of a data set: {way}")
        if not 0 <= self.warmup_epochs <= self.epochs:
            raise ValueError(
                f"warmup_epochs must be from 0 to the {self.epochs} epochs of the training, "
                f"got {self.warmup_epochs}"
            )
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(unknown(name, getattr(self, name), list(known)))


NO_DATA_OPTIONS = {"name", "split", "root", "pad_px", "crop_px", "download"}
KINDS = {
    "str": str,
    "str | None": (str, type(None)),
    "bool": bool,
    "int": int,
    "int | None": (int, type(None)),
    "float": (int, float),
    "float | None": (int, float, type(None)),
    "dict": dict,
}
RANGES = {
    "at least 0": (lambda v: v >= 0, ("shift_px", "pad_px")),
    "at least 1": (lambda v: v >= 1, ("epochs", "batch_size", "crop_px", "early_stop")),
    "in (0, 1]": (
        lambda v: 0 < v <= 1,
        ("learning_rate", "lr_decay", "decoder_learning_rate"),
    ),
    "in [0, 1]": (
        lambda v: 0 <= v <= 1,
        ("weight_decay", "decoder_weight_decay", "brightness", "contrast"),
    ),
    "between 0 and 1": (lambda v: 0 < v < 1, ("ema",)),
    "a number above 0": (
        lambda v: v > 0 and math.isfinite(v),
        ("clip_norm", "reconstruction_anneal"),
    ),
}
CHOICES = {
    "schedule": ("exponential", "linear", "cosine", "constant"),
    "precision": ("auto", "fp32", "bf16"),
    "keep": ("best", "last"),
}


def read_recipe(path: Path) -> Recipe:
    """A recipe from a TOML file; ValueError names a field that no recipe has."""
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
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def differing(found: Mapping, wanted: Recipe) -> set[str]:
    """Fields of a recipe in which a stored one differs; a field younger than it has its default.

    Parameters
    ----------
    found  the fields as JSON has them.
    """
    found = {**asdict(Recipe()), **found}
    wanted = json.loads(json.dumps(asdict(wanted)))
    return {name for name, value in wanted.items() if found[name] != value}


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
    lines = [f"{k} = {_toml(v)}" for k, v in values.items()]
    for name, table in tables.items():
        if table or name == "options":
            lines += ["", f"[{name}]", *(f"{k} = {_toml(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _toml(value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def resolve_precision(precision: str, device) -> str:
    """What "auto" means: bf16 where the processor multiplies in it, else fp32."""
    import torch

    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    fast = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return "bf16" if device.type == "cpu" and fast() else "fp32"
