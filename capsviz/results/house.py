"""The house style of figures, its user settings, picture formats, and widths of venues."""

import logging
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import matplotlib
import matplotlib.style

from capsviz.discovery import require_known, unknown

LACKING = re.compile(r"Glyph (\d+) .*missing from")  # matplotlib's warning
FACES = ("rm", "it", "bf", "bfit", "cal", "sf", "tt")  # font faces of formulas
SAFE = "DejaVu Sans"  # fallback for letters that a font lacks

FORMATS = ("pdf", "png", "svg")
INCHES = {"single": 3.5, "double": 7.16}  # column widths that most venues share
VENUES = {  # column and text width in inches, from the venues' LaTeX classes
    "neurips": (5.5, 5.5),
    "iclr": (5.5, 5.5),
    "icml": (3.25, 6.75),
    "cvpr": (3.25, 6.875),
    "eccv": (4.8, 4.8),
    "ieee": (3.5, 7.16),
    "nature": (3.5, 7.2),
}

log = logging.getLogger(__name__)
_warned: set[str] = set()  # letters without a font that were already reported
_chosen: ContextVar[Mapping | None] = ContextVar("look", default=None)


@contextmanager
def style():
    """Context manager: apply the house style on matplotlib's defaults, not on user settings.

    Settings of `look` override it. Letters that no font has are logged in one line, each once.
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
    """Context manager: log matplotlib's warnings of missing letters as one line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", LACKING.pattern, UserWarning)
        yield
    letters = []
    for one in caught:
        if lacking := LACKING.match(str(one.message)):
            letters.append(chr(int(lacking[1])))
        else:
            warnings.showwarning(one.message, one.category, one.filename, one.lineno)
    if new := [letter for letter in dict.fromkeys(letters) if letter not in _warned]:
        _warned.update(new)
        log.warning("no font here has %s: --font takes a font with them", " ".join(new))


@contextmanager
def look(rc: Mapping[str, str] | None = None, font: str | None = None):
    """Context manager: draw with these settings of matplotlib and this font.

    Parameters
    ----------
    rc    settings from `read_rc`.
    font  an installed font family, or a font file.
    """
    token = _chosen.set({name: v for name, v in (("rc", rc), ("font", font)) if v})
    try:
        yield
    finally:
        _chosen.reset(token)


def chosen() -> dict:
    """Return the settings of `look`, to store beside a figure; {} for the plain house style."""
    return dict(_chosen.get() or {})


def read_rc(path: str | Path) -> dict[str, str]:
    """Return the settings in a matplotlib rc or style file; ValueError for other files."""
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
    """Return the font, or None; ValueError if it is not installed."""
    if font is not None:
        _family(font)
    return font


def _mathematics(family: str | None) -> dict[str, str]:
    """Return settings to draw formulas in a font family; matplotlib replaces missing letters."""
    if family in (None, SAFE):  # the house style's own
        return {}
    styles = {"it": ":italic", "bf": ":bold", "bfit": ":italic:bold"}
    faces = {face: family + styles.get(face, "") for face in FACES}
    return {"mathtext.fontset": "custom"} | {f"mathtext.{k}": v for k, v in faces.items()}


def _family(font: str) -> str:
    """Return the name of a font family; a font file is registered with matplotlib first."""
    from matplotlib import font_manager

    if Path(font).suffix.lower() in (".ttf", ".otf"):
        try:
            font_manager.fontManager.addfont(font)
            return font_manager.FontProperties(fname=font).get_name()
        except (OSError, RuntimeError) as error:
            raise ValueError(f"'{font}' is not a font file") from error
    try:
        font_manager.findfont(font, fallback_to_default=False)
    except ValueError:
        known = sorted({entry.name for entry in font_manager.fontManager.ttflist})
        raise ValueError(unknown("font", font, known)) from None
    return font


def inches(width: str | float) -> float:
    """Return a width in inches: "single", "double" or a number; ValueError for others."""
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
    """Return the names of formats, each once; ValueError for one that is not in `FORMATS`."""
    for name in names:
        require_known("format", name, FORMATS)
    return tuple(dict.fromkeys(names))


def check_venue(name: str | None) -> str | None:
    """Return the name of a venue, or None; ValueError if it is unknown."""
    if name is not None and name not in VENUES:
        raise ValueError(unknown("venue", name, sorted(VENUES)))
    return name


def width_for(width: str, venue: str | None) -> str | float:
    """Return the width of a figure: a venue's column or text width, else the checked `width`."""
    check_venue(venue)
    if venue is not None and width in INCHES:
        return VENUES[venue][width == "double"]
    inches(width)
    return width


def column(venue: str | None) -> float:
    """Return the width of a column in inches; wider figures span the whole page."""
    return INCHES["single"] if venue is None else VENUES[venue][0]
