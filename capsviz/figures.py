"""Figures on disk: house style, export, the numbers beside every picture.

A figure NAME is `NAME.pdf|png|svg` and `NAME.json`, which holds the analysis, its result, options,
command line and provenance; arrays past 1 MB lie in `NAME.npz`. No torch is needed here.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.figure import Figure

import capsviz
from capsviz import discovery, tables
from capsviz.files import write_bytes, write_text
from capsviz.provenance import provenance

FORMATS = ("pdf", "png", "svg")
INCHES = {"single": 3.5, "double": 7.16}  # column widths that most venues share
COLOURS = tuple(
    "#" + c
    for c in (
        "0072B2", "D55E00", "009E73", "CC79A7", "E69F00",
        "56B4E9", "7F7F7F", "C9B800", "882255", "332288",
    )
)  # fmt: skip  # one per class, the house style's own
INLINE_BYTES = 1_000_000


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
    module = discovery.load("analyses", analysis, what="analysis")
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
    module = discovery.load("analyses", analysis, what="analysis")
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


def write_result(stem: Path, result: NamedTuple, about: Mapping) -> list[Path]:
    """Write a result as `stem.json`; large arrays as `stem.npz`, whose digest is in the JSON."""
    arrays = {k: v for k, v in result._asdict().items() if isinstance(v, np.ndarray)}
    large = sum(a.nbytes for a in arrays.values()) > INLINE_BYTES
    beside = stem.with_name(f"{stem.name}.npz")
    paths = [stem.with_name(f"{stem.name}.json")]
    if large:
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)
        about = {**about, "npz_sha256": hashlib.sha256(content.getvalue()).hexdigest()}
        write_bytes(beside, content.getvalue())
        paths.insert(0, beside)
    values = {k: _encode(k, v, large) for k, v in result._asdict().items()}
    text = json.dumps({"capsviz": capsviz.__version__, **about, "result": values})
    write_text(paths[-1], text + "\n")
    if not large:
        beside.unlink(missing_ok=True)  # of an earlier, larger result
    return paths


def read_result(path: Path) -> tuple[NamedTuple, dict]:
    """A result and what was written about it; ValueError for a file that holds none."""
    path = Path(path)
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        analysis, kind, values = about["analysis"], about["kind"], dict(about.pop("result"))
        about["width"]
    except FileNotFoundError as error:
        raise ValueError(f"there is no file '{path}'") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"'{path}' is not a result of capsviz ({type(error).__name__})") from error
    kind = getattr(discovery.load("analyses", analysis, what="analysis"), str(kind), None)
    if set(values) != set(getattr(kind, "_fields", ())):
        raise ValueError(f"'{path}' was made by another version of '{analysis}': run it again")
    arrays = {}
    if "npz_sha256" in about:
        arrays = _read_arrays(path, about["npz_sha256"])
    return kind(**{k: _decode(v, arrays) for k, v in values.items()}), about


def _read_arrays(path: Path, digest: str) -> dict[str, np.ndarray]:
    beside = path.with_suffix(".npz")
    try:
        content = beside.read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"'{beside}' is damaged or of another run than '{path.name}'")
        with np.load(io.BytesIO(content)) as stored:
            return dict(stored)
    except FileNotFoundError as error:
        raise ValueError(f"'{path}' needs {beside.name} beside it") from error
    except zipfile.BadZipFile as error:
        raise ValueError(f"'{beside}' is damaged") from error


def _encode(name: str, value, large: bool):
    if isinstance(value, np.ndarray):
        if large:
            return {"npz": name}
        flat = value.ravel()
        # str() of a float32 is its shortest exact form, half the digits of the double
        data = [float(str(v)) for v in flat] if value.dtype == np.float32 else flat.tolist()
        return {"dtype": str(value.dtype), "shape": list(value.shape), "data": data}
    return value.item() if isinstance(value, np.generic) else value


def _decode(value, arrays: Mapping[str, np.ndarray]):
    if isinstance(value, dict) and "npz" in value:
        return arrays[value["npz"]]
    if isinstance(value, dict) and set(value) == {"dtype", "shape", "data"}:
        return np.array(value["data"], value["dtype"]).reshape(value["shape"])
    return value
