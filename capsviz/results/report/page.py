"""The page: one HTML file that holds its pictures and its style, and fetches nothing."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import matplotlib
from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure as Drawing

from capsviz import results
from capsviz.results.report import Contents, Figure
from capsviz.statistics import numbers
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.words import with_interval

FOLDER = Path(__file__).parent
LIMIT_BYTES = 8_000_000
# Dots per inch of a PNG, and the largest SVG in bytes, until the page is small enough.
SIZES = ((160, 250_000), (130, 120_000), (110, 50_000), (80, 20_000))
SECTIONS = ("What to see", "What not to conclude", "Method", "Sources")  # of an analysis, in order


class Picture(NamedTuple):
    """One figure at two widths, for a wide page and a telephone, as addresses that hold it."""

    wide: str
    narrow: str


def render(contents: Contents) -> str:
    """Return the page as text, below `LIMIT_BYTES` by coarser pictures if need be.

    Raises
    ------
    ValueError  if it is too large all the same.
    """
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "command": lambda name: name.replace("_", "-"),
        "plain": lambda text: text.replace("`", "").replace("**", ""),
        "paragraphs": lambda text: [part for part in text.split("\n\n") if part],
        "points": _points,
    }
    template = environment.from_string((FOLDER / "page.html").read_text(encoding="utf-8"))
    style = (FOLDER / "page.css").read_text(encoding="utf-8")
    figures = [figure for section in contents.sections for figure in section.figures]
    for size in SIZES:
        page = template.render(
            c=contents,
            style=style,
            sections=SECTIONS,
            drawn={id(one): picture(one, *size) for one in figures},
            rows={id(one): numbers.rows(one.result) if one.findings else [] for one in figures},
            longer={id(one): numbers.left_out(one.result) for one in figures},
            key=id,
            card_rows=card_rows,
        )
        if len(page.encode()) < LIMIT_BYTES:
            return page
    raise ValueError(
        f"the page would take {len(page.encode()) / 1e6:.1f} MB, more than "
        f"{LIMIT_BYTES / 1e6:.0f}: choose fewer analyses by --only"
    )


def picture(figure: Figure, dpi: int, largest_svg: int) -> Picture:
    """Draw a figure at two widths, as SVG.

    An SVG of more bytes than `largest_svg` holds pixels or thousands of points: it becomes a PNG.
    Letters are drawn as paths, because a reader may not have the font.
    """
    return Picture(*(_drawn(figure, width, dpi, largest_svg) for width in ("double", "single")))


def _drawn(figure: Figure, width: str, dpi: int, largest_svg: int) -> str:
    def draw() -> Drawing:
        return results.draw(figure.analysis, figure.result, width, figure.part)

    vector = _saved(draw(), "svg", dpi)
    if len(vector) <= largest_svg:
        return f"data:image/svg+xml;base64,{base64.b64encode(vector).decode()}"
    return f"data:image/png;base64,{base64.b64encode(_saved(draw(), 'png', dpi)).decode()}"


def _saved(drawing: Drawing, kind: str, dpi: int) -> bytes:
    content = io.BytesIO()
    undated = {"svg": {"Date": None}, "png": {"Software": None}}[kind]
    with results.style(), matplotlib.rc_context({"svg.fonttype": "path"}):
        drawing.savefig(content, format=kind, dpi=dpi, metadata=undated)
    return content.getvalue()


def card_rows(card: Mapping) -> list[tuple[str, str]]:
    """Return the rows of a network's card; a network without a full card has fewer rows."""
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
        ("accuracy on the whole test set", _tested(test)),
    ]
    if training.get("unfinished"):
        rows.append(("note", "the run had not ended when these weights were taken"))
    return [(name, str(value)) for name, value in rows if value not in (None, "")]


def _routing(settings: Mapping) -> str | None:
    if "routing" not in settings:
        return None
    iterations = settings.get("iterations", 1)
    return f"{settings['routing']}, {iterations} iteration{'s' * (iterations != 1)}"


def _tested(test: Mapping) -> str | None:
    if "accuracy" not in test:
        return None
    nan = float("nan")
    text = with_interval(test["accuracy"], test.get("accuracy_ci95", (nan, nan)), ".2%")
    return f"{text}, n = {test['n']:,}"


def _points(difference: Estimate) -> str:
    """Return a difference of shares, in percentage points."""
    value, low, high = (100 * float(v) for v in (difference.value, *difference.ci95))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}] points"
