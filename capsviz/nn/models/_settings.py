"""Settings of networks: a dataclass from what `build` is given, each value checked for its type."""

from typing import get_type_hints

from capsviz.discovery import unknown
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
    """ValueError unless each named setting, or each number in it, is at least 1."""
    for name in names:
        value = getattr(settings, name)
        if min(value if isinstance(value, tuple) else (value,), default=0) < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
