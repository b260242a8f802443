"""Figures on disk: draw a result, and write its numbers beside the pictures.

A figure NAME is `NAME.pdf|png|svg` and `NAME.json`, which holds the analysis, its result, options,
command line and provenance (`results.files`). This module does not need torch.
"""

import io
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import PlaceHolderLayoutEngine
from matplotlib.text import Text

from capsviz import analysis as contract
from capsviz import arrangement, discovery
from capsviz.files import write_bytes
from capsviz.provenance import provenance
from capsviz.results import tables
from capsviz.results.files import check_fields
from capsviz.results.files import read_result as read_result
from capsviz.results.files import to_json as to_json
from capsviz.results.files import write_result as write_result
from capsviz.results.house import FORMATS, check_formats, chosen, inches, style
from capsviz.statistics import numbers
from capsviz.statistics.words import sentence, shortened

MINUS = re.compile(r"(?<![\w.)\]-])-(?=\.?\d)")  # before a number, not between two
PAGE = 9  # inches: largest height of the text on a page of a venue
log = logging.getLogger(__name__)
COLOURS = tuple(
    "#" + c
    for c in (
        "0072B2", "D55E00", "009E73", "AE76FB", "F5A088",
        "6F025B", "70555D", "E342A6", "AE1820", "0100CB",
    )
)  # fmt: skip  # one per class, as in the house style; distinct with deuteranopia too


def parts(analysis: str, result: NamedTuple) -> tuple[str, ...]:
    """Return the names of the pictures of a result: "" is the first, often the only one."""
    return _own(analysis, result).parts(result)


def picture_names(
    stem: str, analysis: str, result: NamedTuple, panel: Sequence[str] = ()
) -> dict[str, str]:
    """Return file names of pictures by part, without suffix: STEM for the first, else STEM-PART.

    Chosen panels make one picture.
    """
    names = [""] if panel else parts(analysis, result)
    return {part: f"{stem}-{part}" if part else stem for part in names}


def caption(
    analysis: str, result: NamedTuple, part: str = "", *, notice: str | None = None,
    width: str | float | None = None, panel: Sequence[str] = (),
) -> str:  # fmt: skip
    """Return sentences on what a picture of a result shows, and a note on the data.

    With `panel`, they describe these panels only. With `width`, they name the panels and parts that
    do not fit into a picture of that width.
    """
    own = _own(analysis, result, part)
    drawn, missing, omitted = own.chosen(result, part, panel), list[str](), list[str]()
    if width is not None:
        missing, omitted = arrangement.left_out(drawn, result, inches(width))
    drawn = {name: one for name, one in drawn.items() if name not in missing}
    texts = [own.caption_of(result, list(drawn))]
    if missing or omitted:
        texts.append(f"Left out for lack of room: {', '.join([*missing, *omitted])}.")
    return " ".join(texts if notice is None else [*texts, f"Note: {notice}."])


def _own(analysis: str, result: NamedTuple, part: str = "") -> contract.Analysis:
    """Return the analysis of a result; ValueError for an unknown picture."""
    own = contract.of_result(analysis, type(result).__name__)
    if part and part not in (known := own.parts(result)):
        raise ValueError(discovery.unknown("picture", part, [name for name in known if name]))
    return own


def printable(result: NamedTuple) -> NamedTuple:
    """Return a result with class names for figures: long ones shortened, and "$" escaped."""
    if classes := getattr(result, "classes", None):
        return result._replace(classes=[one.replace("$", r"\$") for one in shortened(classes)])
    return result


def draw(
    analysis: str,
    result: NamedTuple,
    width: str | float = "double",
    part: str = "",
    *,
    panel: str | Sequence[str] = (),
    axes: Axes | None = None,
) -> Figure:
    """Draw a picture of a result, or some of its panels, in the house style.

    Long class names are shortened here, but not in numbers and captions. Negative numbers in texts
    get a minus sign, like those at axes, instead of Python's hyphen. `panel` and `axes` are those
    of `capsviz.analysis.Analysis.draw`. A panel drawn into given axes keeps their style.
    """
    own = _own(analysis, result, part)
    more: dict[str, Any] = {name: one for name, one in (("panel", panel), ("axes", axes)) if one}
    with nullcontext() if axes else style():
        figure: Any = own.draw(printable(result), width=inches(width), part=part, **more)
    if not isinstance(figure, Figure):
        kind, source = type(figure).__name__, discovery.source("capsviz.analyses", analysis)
        raise ValueError(f"`draw` of {source} gives a {kind}, expected a Figure")
    for text in figure.findobj(Text):
        text.set_text(MINUS.sub("−", text.get_text()))
    return figure


def save(
    stem: Path,
    analysis: str,
    result: NamedTuple,
    *,
    formats: Sequence[str] = ("pdf", "png"),
    width: str | float = "double",
    panel: Sequence[str] = (),
    table: bool = False,
    options: Mapping | None = None,
    card: Mapping | None = None,
    device: str = "cpu",
    command: str | None = None,
    notice: str | None = None,
    identity: str | None = None,
    runs: Mapping | None = None,
    networks: Mapping[str, str | None] | None = None,
) -> list[Path]:
    """Draw a result and write its pictures, its table if it has one, and its numbers.

    Pictures and tables of earlier numbers are deleted.

    Parameters
    ----------
    stem      path without suffix; its folder is created.
    width     "single", "double" or inches.
    panel     names of the panels to draw, in order, in place of the pictures.
    table     write a table of the numbers even if the analysis has no table.
    card      of the network's checkpoint.
    notice    a note on the data, e.g. that they are lossy copies.
    identity  identifies the command and its options, to find an equal figure.
    networks  name -> SHA-256 of the weights, if several networks are compared.

    Returns
    -------
    The paths of the written files, the JSON last.
    """
    if not hasattr(result, "_asdict"):
        kind = type(result).__name__
        raise ValueError(f"the analysis '{analysis}' gives a {kind}, expected a NamedTuple")
    numbers.rows(result)  # before anything is written
    check_fields(result)
    own = _own(analysis, result)
    for part in own.parts(result):
        own.caption(result, part)
    about: dict[str, Any] = {
        "analysis": analysis,
        "kind": type(result).__name__,
        "width": width,
        **({} if identity is None else {"identity": identity}),
        "options": dict(options or {}),
        "command": command,
        "provenance": provenance(card, device),
    }
    more = {"look": chosen(), "panel": panel, "notice": notice, "runs": runs, "networks": networks}
    about |= {name: value for name, value in more.items() if value}
    stem = Path(stem)
    paths = export(stem, analysis, result, formats, width, panel)
    if table or own.table(result) is not None:
        try:
            paths += tables.write(stem, *table_of(analysis, result, about))
        except NoNumbersError as error:
            log.warning("%s: %s, so no table is written", stem.name, error)
    names = [f"{stem.name}.{kind}" for kind in ("md", "tex")]
    for name in picture_names(stem.name, analysis, result).values():
        names += [f"{name}.{kind}" for kind in FORMATS]
    for earlier in {stem.with_name(name) for name in names} - {*paths}:
        earlier.unlink(missing_ok=True)
    return [*paths, *write_result(stem, result, about)]


def export(
    stem: Path,
    analysis: str,
    result: NamedTuple,
    formats: Sequence[str],
    width: str | float,
    panel: Sequence[str] = (),
) -> list[Path]:
    """Draw a result and write its pictures, or one picture of the chosen panels.

    The first picture is `stem.FORMAT`, further `parts` are `stem-PART.FORMAT`. The log names
    panels that do not fit into a picture.
    """
    stem, kinds, paths = Path(stem), check_formats(formats), []
    for part, name in picture_names(stem.name, analysis, result, panel).items() if kinds else ():
        figure: Any = draw(analysis, result, width, part, panel=panel)
        paths += [save_figure(figure, stem.with_name(f"{name}.{kind}")) for kind in kinds]
        if (tall := figure.get_figheight()) > PAGE:
            log.warning("%s is %.1f inches tall, and no venue takes more than %d", name, tall, PAGE)
        if left_out := getattr(figure, "left_out", ()):
            alone, names = " or ".join(f"--panel {one}" for one in left_out), ", ".join(left_out)
            log.warning("%s has no room for %s: draw it alone, %s", name, names, alone)
        if omitted := getattr(figure, "omitted", ()):
            log.warning("%s has no room for %s", name, ", ".join(omitted))
    return paths


class NoNumbersError(ValueError):
    """A result has no number with an interval."""


def table_of(
    analysis: str, result: NamedTuple, about: Mapping | None = None
) -> tuple[list[str], list[list[str]], str]:
    """Return header, rows and caption of the analysis's own table, or of a table of all numbers.

    `about` is the metadata in the result's file. Raises NoNumbersError for a result with no
    estimates.
    """
    own = _own(analysis, result)
    if (table := own.table(result)) is not None:
        return table
    header, rows = numbers.cells(result)
    if not rows:
        raise NoNumbersError("no numbers with intervals")
    first = own.caption_of(result, list(own.chosen(result))).partition(". ")[0].rstrip(".")
    texts = [first, own.intervals(result), _whose(about or {})]
    return header, rows, " ".join(map(sentence, filter(None, texts)))


def _whose(about: Mapping) -> str:
    """Return the names of the networks of a result, with their numbers of training runs."""
    if runs := about.get("runs"):
        several = (runs, *runs.get("others", ()))
        names = [f"{one['recipe']} ({len(one['seeds'])} training runs)" for one in several]
        names += list(about.get("networks", ()))[len(names) :]  # of one run each
    else:
        given = about.get("options", {}).get("checkpoint") or []
        given = [given] if isinstance(given, str) else given
        weights = about.get("provenance", {}).get("weights")
        names = [*about.get("networks", [Path(one).name for one in given])]
        names = names or ([Path(weights).stem] if weights else [])
    return f"Network{'s' * (len(names) > 1)}: {', '.join(names)}" if names else ""


def save_figure(figure: Figure, path: Path) -> Path:
    """Write one picture."""
    content = encoded(figure, path.suffix[1:].lower())
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content)
    return path


def encoded(figure: Figure, kind: str, **options) -> bytes:
    """Return the bytes of a picture file; without dates, so equal figures give equal files.

    A figure is laid out only once, so that all formats have the same layout.
    """
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}
    content = io.BytesIO()
    with style(), matplotlib.rc_context({"figure.constrained_layout.use": False}):
        if not isinstance(figure.get_layout_engine(), PlaceHolderLayoutEngine | None):
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
        figure.savefig(content, format=kind, metadata=undated[kind], **options)
    return content.getvalue()


def animate(frames: Iterable[np.ndarray], path: Path, *, fps: float) -> Path:
    """Write RGB frames (h, w, 3) uint8 as a GIF that loops.

    All frames share one palette of greys, the colour map and the house colours, since the legend
    would flicker with a palette per frame. Later frames contain only the pixels that change.
    """
    from imageio.v3 import imwrite
    from PIL import Image

    greys = np.append(255, np.arange(0, 249, 4)).repeat(3)  # white first, so that it wins ties
    scale = (matplotlib.colormaps["viridis"](np.linspace(0, 1, 128))[:, :3] * 255).round().ravel()
    house = [int(c[i : i + 2], 16) for c in COLOURS for i in (1, 3, 5)]
    colours = [*greys.astype(int), *scale.astype(int), *house]
    clear = len(colours) // 3  # index of the transparent colour, for pixels that do not change
    palette = Image.new("P", (1, 1))
    palette.putpalette(colours)
    before, changes = None, []
    for frame in frames:
        numbers = Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
        now = np.asarray(numbers)
        changes.append(now if before is None else np.where(now == before, np.uint8(clear), now))
        before = now
    content = imwrite(
        "<bytes>", changes, plugin="pillow", extension=".gif", duration=round(1000 / fps), loop=0,
        palette=bytes([*colours, 1, 2, 3]), transparency=clear, disposal=1, optimize=False,
    )  # fmt: skip
    write_bytes(path, content)
    return path
