"""Figures on disk: house style, export, the numbers beside every picture.

A figure NAME is `NAME.pdf|png|svg` and `NAME.json`, which holds the analysis, its result, options,
command line and provenance (`figures.results`). No torch is needed here.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import matplotlib.style
from matplotlib.figure import Figure

from capsviz import discovery
from capsviz.figures import tables
from capsviz.figures.results import read_result, to_json, write_result
from capsviz.files import write_bytes
from capsviz.provenance import provenance

__all__ = ["read_result", "to_json", "write_result"]
FORMATS = ("pdf", "png", "svg")
INCHES = {"single": 3.5, "double": 7.16}  # column widths that most venues share
COLOURS = tuple(
    "#" + c
    for c in (
        "0072B2", "D55E00", "009E73", "CC79A7", "E69F00",
        "56B4E9", "7F7F7F", "C9B800", "882255", "332288",
    )
)  # fmt: skip  # one per class, the house style's own


def style():
    """Context manager: the house style, on matplotlib's defaults and not the user's settings."""
    return matplotlib.style.context(["default", Path(__file__).parent / "house.mplstyle"])


def inches(width: str | float) -> float:
    """ "single", "double" or a number of inches; ValueError for others."""
    if width in INCHES:
        return INCHES[width]
    try:
        value = float(width)
    except ValueError:
        value = 0
    if not 2 <= value <= 30:
        raise ValueError(f"width '{width}': expected single, double, or 2 to 30 inches")
    return value


def check_formats(names: Sequence[str]) -> tuple[str, ...]:
    """The names, if all are in `FORMATS`; ValueError for others."""
    for name in names:
        if name not in FORMATS:
            raise ValueError(discovery.unknown("format", name, list(FORMATS)))
    return tuple(names)


def draw(analysis: str, result: NamedTuple, width: str | float = "double") -> Figure:
    """The figure of a result, by its analysis's own `plot`, in the house style."""
    module = discovery.load("capsviz.analyses", analysis, what="analysis")
    with style():
        return module.plot(result, width=inches(width))


def save(
    stem: Path,
    analysis: str,
    result: NamedTuple,
    *,
    formats: Sequence[str] = ("pdf", "png"),
    width: str | float = "double",
    options: Mapping | None = None,
    card: Mapping | None = None,
    device: str = "cpu",
    command: str | None = None,
    notice: str | None = None,
    runs: Mapping | None = None,
) -> list[Path]:
    """Draw a result and write its pictures, its table if its analysis has one, and its numbers.

    Parameters
    ----------
    stem      path without ending; its folder is made.
    analysis  file in `analyses/` that the result belongs to.
    formats   of `FORMATS`.
    width     "single", "double" or inches.
    options   that the analysis was run with.
    card      of the network's checkpoint.
    device    that it ran on.
    command   the command line, if there was one.
    notice    what must be said of the data, e.g. that they are lossy copies.
    runs      the training runs that it is of, where there are several.

    Returns
    -------
    The files written; the JSON last.
    """
    paths = export(stem, analysis, result, formats, width)
    about = {
        "analysis": analysis,
        "kind": type(result).__name__,
        "width": width,
        "options": dict(options or {}),
        "command": command,
        "provenance": provenance(card, device),
        **({} if notice is None else {"notice": notice}),
        **({} if runs is None else {"runs": dict(runs)}),
    }
    return [*paths, *write_result(Path(stem), result, about)]


def export(
    stem: Path, analysis: str, result: NamedTuple, formats: Sequence[str], width: str | float
) -> list[Path]:
    """Draw a result and write its pictures as `stem.FORMAT`, its tables, if any.

    The folder is made when the first picture is drawn: a result that cannot be leaves nothing.

    Each format is drawn anew: laying a figure out a second time moves things by a hair, and then
    a picture would depend on the formats that were written before it.
    """
    stem, kinds = Path(stem), check_formats(formats)
    paths = [
        save_figure(draw(analysis, result, width), stem.with_name(f"{stem.name}.{kind}"))
        for kind in kinds
    ]
    module = discovery.load("capsviz.analyses", analysis, what="analysis")
    if hasattr(module, "table") and (cells := module.table(result)) is not None:
        paths += tables.write(stem, *cells)  # header, rows, caption
    return paths


def save_figure(figure: Figure, path: Path) -> Path:
    """Write one picture without a window; no dates in it, so equal figures are equal files.

    Its folder is made, if need be.
    """
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}
    kind, content = path.suffix[1:], io.BytesIO()
    with style():
        figure.savefig(content, format=kind, metadata=undated[kind])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, _stable_ids(content.getvalue()) if kind == "svg" else content.getvalue())
    return path


def _stable_ids(svg: bytes) -> bytes:
    """Clip paths numbered in order: matplotlib names them by addresses in memory."""
    names = dict.fromkeys(re.findall(rb'(?<=[#"])p[0-9a-f]{10}(?=[")])', svg))
    for number, name in enumerate(names):
        svg = svg.replace(name, b"clip%d" % number)
    return svg
