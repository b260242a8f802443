"""Recipes: everything that fixes a training run, as a TOML file or as flags."""

from __future__ import annotations

import math
import tomllib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from capsviz.discovery import unknown

FLOOR = 1e-6  # of the learning rate, as in the authors' code


@dataclass(frozen=True)
class Recipe:
    """Everything that fixes a training run. `trained/<name>.toml` holds these fields."""

    dataset: str = "mnist"
    image_size: int | None = None  # pixels, for `folder`
    image_channels: int | None = None  # 3 for colour, for `folder`
    pad_px: int = 0  # rows and columns of zeros around each image; 6 makes 40x40 of MNIST
    model: str = "capsnet"  # a file in capsviz/models
    options: dict = field(
        default_factory=dict
    )  # of that model, e.g. {"preset": "authors", "iterations": 1}
    epochs: int = 50
    batch_size: int = 128
    learning_rate: float = 1e-3  # of Adam
    schedule: str = "exponential"  # or "linear" or "cosine", both to zero at the end
    lr_decay: float = 0.96 ** (430 / 2000)  # per epoch, for "exponential"; the authors' 0.96/2,000
    shift_px: int = 2  # random shifts of training images, in each direction
    precision: str = "auto"  # "fp32", "bf16" (autocast; routing stays fp32), or what is faster
    seed: int = 0
    keep: str = "best"  # weights of the best validation epoch, or of the "last"
    limit: int | None = None  # first training images only, for trials

    @property
    def data_options(self) -> dict:
        """What the data set's `load` is given."""
        given = {"image_size": self.image_size, "channels": self.image_channels}
        given["pad_px"] = self.pad_px or None
        return {k: v for k, v in given.items() if v is not None}

    def __post_init__(self):
        for f in fields(self):
            value, kinds = getattr(self, f.name), KINDS[f.type]
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise ValueError(f"{f.name} must be {f.type}, got {value!r}")
        for name, least in (("epochs", 1), ("batch_size", 1), ("shift_px", 0), ("pad_px", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("learning_rate", "lr_decay"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in (0, 1], got {getattr(self, name)}")
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(unknown(name, getattr(self, name), list(known)))


KINDS = {
    "str": str,
    "int": int,
    "float": (int, float),
    "int | None": (int, type(None)),
    "dict": dict,
}
CHOICES = {
    "schedule": ("exponential", "linear", "cosine"),
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
    options = values.pop("options")
    lines = [f"{k} = {_toml(v)}" for k, v in values.items()]
    lines += ["", "[options]", *(f"{k} = {_toml(v)}" for k, v in options.items())]
    return "\n".join(lines) + "\n"


def _toml(value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def resolve_precision(precision: str, device) -> str:
    """What "auto" means: bf16 where the processor multiplies in it, else fp32."""
    import torch

    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    fast = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return "bf16" if device.type == "cpu" and fast() else "fp32"


def learning_rate(recipe: Recipe, progress: float) -> float:
    """The rate after `progress` epochs (a fraction counts)."""
    if recipe.schedule == "linear":
        factor = 1 - progress / recipe.epochs
    elif recipe.schedule == "cosine":
        factor = (1 + math.cos(math.pi * progress / recipe.epochs)) / 2
    else:
        factor = recipe.lr_decay**progress
    return max(recipe.learning_rate * factor, min(FLOOR, recipe.learning_rate))
