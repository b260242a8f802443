"""House style, and what a user changes of it: matplotlib settings of a file, another font."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import matplotlib
import matplotlib.style

LACKING = re.compile(r"Glyph (\d+) .*missing from")  # matplotlib's words
FACES = ("rm", "it", "bf", "bfit", "cal", "sf", "tt")  # of formulas
SAFE = "DejaVu Sans"  # letters that a font lacks are taken from it

log = logging.getLogger(__name__)
_told: set[str] = set()  # letters that no font has
_chosen: ContextVar[Mapping | None] = ContextVar("look", default=None)


@contextmanager
def style():
    """Context manager: the house style, on matplotlib's defaults and not the user's settings.

    What `look` was given goes over it. Letters that no font has are told in a line, each once.
    """
    look = chosen()
    family = _family(look["font"]) if "font" in look else None
    font = {} if family is None else {"font.family": [family, SAFE]}
    changed = {**_mathematics(family), **look.get("rc", {}), **font}
    house = Path(__file__).parent / "house.mplstyle"
    with matplotlib.style.context(["default", house, changed]), _lacking():
        yield


@contextmanager
def _lacking():
    """Context manager: in place of matplotlib's warnings of each drawing, one line for all."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", LACKING.pattern, UserWarning)
        yield
    letters = []
    for one in caught:
        if lacking := LACKING.match(str(one.message)):
            letters.append(chr(int(lacking[1])))
        else:
            warnings.showwarning(one.message, one.category, one.filename, one.lineno)
    if new := [letter for letter in dict.fromkeys(letters) if letter not in _told]:
        _told.update(new)
        log.warning("no font here has %s: --font takes a font with them", " ".join(new))


@contextmanager
def look(rc: Mapping[str, str] | None = None, font: str | None = None):
    """Context manager: draw with these settings of matplotlib and this font.

    Parameters
    ----------
    rc    of `read_rc`.
    font  a family that is installed, or a font's file.
    """
    token = _chosen.set({name: v for name, v in (("rc", rc), ("font", font)) if v})
    try:
        yield
    finally:
        _chosen.reset(token)


def chosen() -> dict:
    """What `look` was given, to be stored beside a figure; {} for the house style as it is."""
    return dict(_chosen.get() or {})


def read_rc(path: str | Path) -> dict[str, str]:
    """Settings of a file like matplotlib's own rc and style files; ValueError for what is none."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file") from error
    values = {}
    for number, line in enumerate(lines, 1):
        setting = line.split("#")[0].strip()
        if not setting:
            continue
        name, colon, value = (part.strip() for part in setting.partition(":"))
        try:
            if not colon:
                raise ValueError("expected NAME: VALUE")
            matplotlib.RcParams({name: value})
        except (ValueError, KeyError) as error:
            words = " ".join(str(error.args[0] if error.args else error).split())
            raise ValueError(f"{path}, line {number}: {words}") from error
        values[name] = value
    return values


def check_font(font: str | None) -> str | None:
    """The font, if it is here or None; ValueError for others."""
    if font is not None:
        _family(font)
    return font


def _mathematics(family: str | None) -> dict[str, str]:
    """Settings by which formulas are of a family, too, and what it lacks of matplotlib's own."""
    if family in (None, SAFE):  # as the house style has it
        return {}
    styles = {"it": ":italic", "bf": ":bold", "bfit": ":italic:bold"}
    faces = {face: family + styles.get(face, "") for face in FACES}
    return {"mathtext.fontset": "custom"} | {f"mathtext.{k}": v for k, v in faces.items()}


def _family(font: str) -> str:
    """The family's name; of a file, which matplotlib is then told of, the one in it."""
    from matplotlib import font_manager

    if Path(font).suffix.lower() in (".ttf", ".otf"):
        try:
            font_manager.fontManager.addfont(font)
            return font_manager.FontProperties(fname=font).get_name()
        except (OSError, RuntimeError) as error:
            raise ValueError(f"'{font}' is no font's file") from error
    try:
        font_manager.findfont(font, fallback_to_default=False)
    except ValueError:
        from capsviz.discovery import unknown

        known = sorted({entry.name for entry in font_manager.fontManager.ttflist})
        raise ValueError(unknown("font", font, known)) from None
    return font
