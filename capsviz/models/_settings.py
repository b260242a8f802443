"""Settings of networks: a dataclass from what `build` is given, each value checked for its type."""

from typing import get_args, get_type_hints

from capsviz.discovery import unknown


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
        _require_type(option, value, known[option])
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    return kind(image_shape=tuple(image_shape), classes=classes, **options)


def require_positive(settings, *names: str) -> None:
    """ValueError unless each named setting, or each number in it, is at least 1."""
    for name in names:
        value = getattr(settings, name)
        if min(value if isinstance(value, tuple) else (value,)) < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def _require_type(name: str, value, kind) -> None:
    """ValueError unless a value is an int, float, bool, str or sequence of ints, as `kind` is."""
    numbers = get_args(kind)  # of a tuple: (int, ...) or one int for each number
    if numbers and numbers[-1] is Ellipsis:
        words = "a list of one or more whole numbers"
        fits = isinstance(value, list | tuple) and len(value) > 0 and all(map(_is_whole, value))
    elif numbers:
        words = f"a list of {len(numbers)} whole numbers"
        fits = isinstance(value, list | tuple) and len(value) == len(numbers)
        fits = fits and all(map(_is_whole, value))
    elif kind is int:
        words, fits = "a whole number", _is_whole(value)
    elif kind is float:
        words, fits = "a number", _is_whole(value) or isinstance(value, float)
    elif kind is bool:
        words, fits = "true or false", isinstance(value, bool)
    else:
        words, fits = "text", isinstance(value, kind)
    if not fits:
        raise ValueError(f"{name} must be {words}, got {value!r}")


def _is_whole(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
