"""Write numbers, names and claims in the same way in every analysis."""

from collections.abc import Sequence
from math import isfinite

LONGEST = 16  # letters of a name in a figure or a table
TIE = 1e-6  # activations that differ by at most this are a tie
UNTRAINED = "untrained"  # marks networks of random initialisation in the names of controls


def number(value: float, form) -> str:
    """Return a number by Python's format, e.g. ".1%", with a space before the sign: "98.9 %".

    A number that is not finite is "–". `form` can also be a function from number to text.
    """
    if callable(form):
        return form(value)
    return format(value, form).replace("%", " %") if isfinite(value) else "–"


def with_interval(value: float, interval, form: str) -> str:
    """Return a number and its interval (low, high): "98.9 % [98.0 %, 99.4 %]"; "–" for NaN."""
    if value != value:
        return number(value, form)
    low, high = (number(end, form) for end in interval)
    return f"{number(value, form)} [{low}, {high}]"


def in_a_row(names: list[str]) -> str:
    """Join names by commas, the last by "and"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def strongest(classes, activations) -> str:
    """Return the class of the largest activation; "all classes alike" if they are equal."""
    tied = float(max(activations)) - float(min(activations)) <= TIE
    return "all classes alike" if tied else classes[int(activations.argmax())]


def shortened(names) -> list[str]:
    """Shorten names to `LONGEST` letters, still distinct: the beginning, "…" and the end."""
    names = [str(name) for name in names]
    head = (LONGEST - 1) // 2
    short = [n if len(n) <= LONGEST else f"{n[:head]}…{n[len(n) - head :]}" for n in names]
    clashes = [k for k, one in enumerate(short) if short.count(one) > 1 and len(names[k]) > LONGEST]
    for k in clashes:
        short[k] = f"{names[k][: LONGEST - 4]}…{k}"
    return short


def sentence(text: str) -> str:
    """Return a text as a sentence: with a capital first and a full stop last; "" stays."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text[-1:] in ("", ".", "!", "?") else ".")


def untrained_of(sources: Sequence[str]) -> list[int]:
    """Return indices of untrained copies of the first source, like "mnist untrained (paper)"."""
    return [s for s, name in enumerate(sources) if name.startswith(f"{sources[0]} {UNTRAINED}")]


def shown(yes, claim: str) -> str:
    """Return the sentence that a claim is shown, or that it is not."""
    return f"It is {'' if yes else 'not '}shown that {claim}."


def word_for(difference, above: str, below: str, neither: str) -> str:
    """Return the word that the interval of a difference supports; `neither` if it contains 0."""
    return above if difference.low > 0 else below if difference.high < 0 else neither


def part_name(kind: str, k: int, grid: Sequence[int] | None) -> str:
    """Return the name of a part of the capsules: row and column of a position, else its number."""
    if kind == "positions" and grid is not None:
        return f"row {k // grid[2]}, column {k % grid[2]}"
    return f"number {k}"
