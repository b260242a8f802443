"""Check types and ranges of values with pydantic; errors are one line."""

import functools
import operator
import re
from contextlib import suppress
from dataclasses import field
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from capsviz.discovery import unknown

WORDS = {
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "a valid tuple": "a list",
}
Positive = Annotated[int, Field(ge=1)]
Sizes = Annotated[tuple[Positive, ...], Field(min_length=1)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Above = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Part = Annotated[float, Field(ge=0, lt=1)]
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


Kind = TypeVar("Kind")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def validated(kind: type[Kind]) -> type[Kind]:
    """Return a class as a frozen dataclass whose fields are checked; ValueErrors are one line.

    Integers are converted to floats; nothing else is converted.
    """
    checked: Any = dataclass(kind, frozen=True, config=STRICT)
    build = checked.__init__

    @functools.wraps(build)
    def init(self, *args, **values):
        try:
            build(self, *args, **values)
        except ValidationError as error:
            raise ValueError(one_line(error)) from None

    checked.__init__ = init
    return checked


def check(name: str, value, kind) -> None:
    """Raise ValueError unless `value` fits the type `kind`."""
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        raise ValueError(one_line(error, name)) from None


def one_line(error: ValidationError, name: str = "") -> str:
    """Return the first error as a line with the expected and the received value."""
    first = error.errors(include_url=False)[0]
    for part in first["loc"]:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    value, text = first["input"], first["msg"]
    if first["type"] == "value_error":  # raised by the class itself
        return str(first["ctx"]["error"])
    if first["type"] == "literal_error" and isinstance(value, str):
        return unknown(name, value, re.findall("'([^']*)'", first["ctx"]["expected"]))
    if first["type"] in ("missing", "too_long", "too_short"):  # a tuple of the wrong length
        return f"{name}: {text}"
    text = text.removeprefix("Input should be ")
    for pydantic, ours in WORDS.items():
        text = text.replace(pydantic, ours)
    return f"{name} must be {text}, got {value!r}"


def whole_number(name: str, value: Any) -> int:
    """Return a whole number of any type, NumPy's included; ValueError for others and for bools."""
    with suppress(TypeError):
        if not isinstance(value, bool):
            return operator.index(value)
    raise ValueError(f"{name} must be a whole number, got {value!r}")
