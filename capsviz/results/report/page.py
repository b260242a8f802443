"""The page: one HTML file that holds its pictures and its style, and fetches nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from capsviz.results.report import pictures
from capsviz.results.report.contents import Contents, Figure
from capsviz.statistics import numbers

FOLDER = Path(__file__).parent
LIMIT_BYTES = 8_000_000
# Dots per inch of what is no SVG, and the largest SVG in bytes, until the page is small enough.
SIZES = ((160, 250_000), (130, 120_000), (110, 50_000), (80, 20_000))


def render(contents: Contents) -> str:
    """The page as text, below `LIMIT_BYTES` by coarser pictures if need be.

    Raises
    ------
    ValueError  if it is too large all the same.
    """
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"percent": _percent, "paragraphs": _paragraphs, "plain": _plain}
    environment.filters["folded"] = _folded
    template = environment.from_string((FOLDER / "page.html").read_text(encoding="utf-8"))
    style = (FOLDER / "page.css").read_text(encoding="utf-8")
    pictures = _figures(contents)
    for size in SIZES:
        page = template.render(
            c=contents,
            style=style,
            drawn={id(one): _drawn(one, *size) for one in pictures},
            rows={id(one): numbers.rows(one.result) if one.findings else [] for one in pictures},
            longer={id(one): numbers.left_out(one.result) for one in pictures},
            key=id,
            card_rows=card_rows,
        )
        if len(page.encode()) < LIMIT_BYTES:
            return page
    raise ValueError(
        f"the page would take {len(page.encode()) / 1e6:.1f} MB, more than "
        f"{LIMIT_BYTES / 1e6:.0f}: choose fewer analyses by --only"
    )


def card_rows(card: Mapping) -> list[tuple[str, str]]:
    """What a card says, as a reader wants it; a network without much of a card has few rows."""
    model, training = card.get("model", {}), card.get("training", {})
    test = card.get("results", {}).get("test", {})
    settings = model.get("config", {})
    rows = [
        ("network", model.get("name")),
        ("routing", _routing(settings)),
        ("parameters", f"{p:,}" if (p := card.get("weights", {}).get("parameters")) else None),
        ("trained on", card.get("dataset", {}).get("name")),
        ("training images", f"{k:,}" if (k := training.get("images")) else None),
        ("epochs", training.get("epochs")),
        ("weights of epoch", training.get("epoch")),
        ("hardware", training.get("hardware")),
        ("precision", training.get("precision")),
        ("seed", card.get("recipe", {}).get("seed")),
        ("whole test set", _tested(test)),
    ]
    if training.get("unfinished"):
        rows.append(("note", "the run had not ended when these weights were taken"))
    return [(name, str(value)) for name, value in rows if value not in (None, "")]


def _routing(settings: Mapping) -> str | None:
    if "routing" not in settings:
        return None
    rounds = settings.get("iterations", 1)
    return f"{settings['routing']}, {rounds} iteration{'s' * (rounds != 1)}"


def _tested(test: Mapping) -> str | None:
    if "accuracy" not in test:
        return None
    low, high = test.get("accuracy_ci95", (math.nan, math.nan))
    return f"{test['accuracy']:.2%} [{low:.2%}, {high:.2%}] right, n = {test['n']:,}"


def _figures(contents: Contents) -> list[Figure]:
    return [figure for section in contents.sections for figure in section.figures]


def _drawn(figure: Figure, dpi: int, largest: int) -> pictures.Picture:
    return pictures.picture(
        figure.analysis, figure.result, figure.part, dpi=dpi, largest_svg=largest
    )


def _percent(value: float) -> str:
    return f"{value:.1f} %"


def _paragraphs(text: str) -> list[str]:
    return [part for part in text.split("\n\n") if part]


def _folded(text: str) -> str:
    """For the question whether one text says all of another: captions fold lines by semicolons."""
    return " ".join(text.replace("\n", " ").replace(";", " ").lower().rstrip(".").split())


def _plain(text: str) -> str:
    return text.replace("`", "")
