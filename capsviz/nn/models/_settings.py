"""Settings of networks: a dataclass from what `build` is given, each value checked for its type."""

import math
from typing import get_type_hints

from capsviz.discovery import unknown
from capsviz.nn import decoders, objectives
from capsviz.nn.models._bases import METRICS
from capsviz.validation import check


def settings_from(kind: type, name: str, image_shape, classes: int, options: dict):
    """The dataclass `kind` of a network from what `build` is given.

    Raises
    ------
    ValueError  for an unknown option, or one whose value is not of the type of its field.
    """
    known = get_type_hints(kind)
    del known["image_shape"], known["classes"]
    if strange := sorted(set(options) - set(known)):
        raise ValueError(unknown(f"{name} option", strange[0], sorted(known)))
    for option, value in options.items():
        check(option, value, known[option])
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    return kind(image_shape=tuple(image_shape), classes=classes, **options)


def require_positive(settings, *names: str) -> None:
    """Raise ValueError unless each named setting, or each number in it, is at least 1."""
    for name in names:
        value = getattr(settings, name)
        if min(value if isinstance(value, tuple) else (value,), default=0) < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def require_shared(settings) -> None:
    """Raise ValueError for classes, weights, margins, temperatures or names out of range.

    What all networks of capsules share; a setting that a network lacks, or that is None, is fine.
    """
    if settings.classes < 2:
        raise ValueError(f"a classifier needs at least 2 classes, got {settings.classes}")
    for name in ("reconstruction_weight", "absent_weight", "vote_std"):
        value = getattr(settings, name, None)
        if value is not None and not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a number from 0, got {value}")
    for name in ("final_temperature", "floor"):
        value = getattr(settings, name, None)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} must be a number above 0, got {value}")
    if not 0 <= settings.margin_absent < settings.margin_present <= 1:
        raise ValueError(
            "expected 0 <= margin_absent < margin_present <= 1, "
            f"got {settings.margin_absent} and {settings.margin_present}"
        )
    require_known(
        settings,
        decoder=decoders.available(),
        objective=["auto", *objectives.NAMES],
        reconstruction_metric=sorted(METRICS),
    )


def require_known(settings, **known: list[str]) -> None:
    """Raise ValueError unless each named setting is one of the names that are known of it."""
    for name, names in known.items():
        if getattr(settings, name) not in names:
            raise ValueError(unknown(name, getattr(settings, name), names))
