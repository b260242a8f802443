"""House style, and what a user changes of it: matplotlib settings of a file, another font."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import matplotlib
import matplotlib.style

SAFE = "DejaVu Sans"  # letters that a font lacks are taken from it

_chosen: ContextVar[Mapping | None] = ContextVar("look", default=None)


def style():
    """Context manager: the house style, on matplotlib's defaults and not the user's settings.

    What `look` was given goes over it.
    """
    look = chosen()
    font = {"font.family": [_family(look["font"]), SAFE]} if "font" in look else {}
    changed = {**look.get("rc", {}), **font}
    return matplotlib.style.context(["default", Path(__file__).parent / "house.mplstyle", changed])


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
            words = " ".join(str(error).strip("\"'").split())
            raise ValueError(f"{path}, line {number}: {words}") from error
        values[name] = value
    return values


def check_font(font: str | None) -> str | None:
    """The font, if it is here or None; ValueError for others."""
    if font is not None:
        _family(font)
    return font


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
