"""Matplotlib measures a text a dozen times while it lays a figure out; in these tests, once.

How a text is laid out depends on its words, font and turn, and not on where it stands. To save a
figure, matplotlib draws it twice, first without output to lay it out: here that is all it does.
"""

from operator import attrgetter

from matplotlib import rcParams
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.backends.backend_mixed import MixedModeRenderer
from matplotlib.backends.backend_pdf import RendererPdf
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text

ASPECTS = attrgetter(  # of a Text, that its layout depends on, its font apart
    "_text", "_usetex", "_parse_math", "_rotation", "_rotation_mode", "_horizontalalignment",
    "_verticalalignment", "_multialignment", "_linespacing",
)  # fmt: skip
KINDS = (RendererAgg, RendererPdf, RendererSVG)
FONTS = ("font.family", "font.sans-serif", "font.serif", "mathtext.fontset", "text.hinting")

_measured, _drawn = Text._get_layout, Figure.draw
_layouts = {}


def layout(text, renderer):
    """What matplotlib's own method returns, which is asked once for each."""
    mixed = isinstance(renderer, MixedModeRenderer)  # that of vectors, which may rasterise parts
    kind = type(renderer._renderer if mixed else renderer)
    if kind not in KINDS or text.get_wrap() or text.get_transform_rotates_text():
        return _measured(text, renderer)
    scale = (kind, text.get_figure(root=True).dpi, kind is RendererAgg and renderer.dpi)
    font = text.get_fontproperties().copy()
    key = (font, scale, ASPECTS(text), *(str(rcParams[name]) for name in FONTS))
    if key not in _layouts:
        _layouts[key] = _measured(text, renderer)
    return _layouts[key]


def draw(figure, renderer):
    """Draw a figure, or lay out one that is about to be saved."""
    engine = figure.get_layout_engine()
    if not (figure.canvas.is_saving() and isinstance(engine, ConstrainedLayoutEngine)):
        return _drawn(figure, renderer)
    figure._get_draw_artists(renderer)  # gives axes their aspect
    return engine.execute(figure)


def remember():
    """From here on, every text is measured once, and every figure that is saved drawn once."""
    Text._get_layout, Figure.draw = layout, draw
