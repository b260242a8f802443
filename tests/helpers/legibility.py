"""What cannot be read in a printed figure, measured from matplotlib's own boxes."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import Bbox

POINTS = 6.0  # the smallest letters
AXES = 0.2  # the smallest axes, and the smallest picture of a mosaic, inches
BAR = 0.05  # the thinnest scale of colours, inches
PAGE = 9.0  # the tallest figure with its caption, inches
SLACK = 0.75  # points: matplotlib's box of a text holds room for accents and descenders, ink or not


def defects(figure, width: float, caption: str) -> list[str]:
    """Sentences about everything that a reader of the figure would complain of; [] for none."""
    texts = drawn_texts(figure)
    tall = PAGE - caption_inches(caption, width)
    return [
        *_sizes(figure, width, tall),
        *letters(texts),
        *_axes(figure),
        *_pictures(figure),
        *_overlaps(texts),
        *_strangers(figure, texts),
        *off_page(figure, texts),
    ]


def caption_inches(caption: str, width: float) -> float:
    """Height of a caption of 9 points under a figure of that width, in Times, and the gap to it."""
    lines = math.ceil(len(caption) * 0.42 * 9 / 72 / width)
    return 0.1 + lines * 10.5 / 72


def drawn_texts(figure) -> list[tuple[Text, np.ndarray]]:
    """The texts that are really drawn (ticks out of sight are not), and their corners (4, 2)."""
    texts, original = [], Text.draw

    def record(self, renderer):
        if self.get_visible() and self.get_text().strip() and (self.get_alpha() or 1) > 0:
            texts.append((self, corners(self, renderer)))
        return original(self, renderer)

    Text.draw = record
    try:
        FigureCanvasAgg(figure)
        figure.draw_without_rendering()  # lays it out first; what colours pixels take is not asked
    finally:
        Text.draw = original
    return texts


def corners(text: Text, renderer) -> np.ndarray:
    """Corners (4, 2) of a text's box in pixels, turned as the text is."""
    extent = Text.get_window_extent  # of the words: an annotation's own holds its arrow too
    box, angle = extent(text, renderer), text.get_rotation()
    middle = np.array([(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2])
    size = np.array([box.width, box.height])
    if angle % 90:
        mode = text.get_rotation_mode()
        text.set_rotation(0)
        flat = extent(text, renderer)
        text.set_rotation(angle)
        text.set_rotation_mode(mode)
        size = np.array([flat.width, flat.height])
    else:
        angle = 0
    slack = SLACK * text.figure.dpi / 72
    half = np.maximum(size / 2 - slack, 0.1)
    turn = np.deg2rad(angle)
    matrix = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    signs = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    return middle + (signs * half) @ matrix


def meet(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two convex quadrilaterals overlap."""
    first, second = (Path([*shape, shape[0]], closed=True) for shape in (one, other))
    return first.intersects_path(second, filled=True)


def _sizes(figure, width, tall):
    wide, high = figure.get_size_inches()
    if abs(wide - width) > 0.01:
        yield f"is {wide:.2f} in wide"
    if high > tall:
        yield f"is {high:.2f} in tall, with its caption more than a page: at most {tall:.2f}"


def letters(texts):
    for text, _ in texts:
        if text.get_fontsize() < POINTS - 0.01:
            yield f"{_short(text)} has {text.get_fontsize():.1f} points"


def _every_axes(figure):
    every = [one for axes in figure.axes for one in (axes, *axes.child_axes)]  # of ticks, no need
    return [one for one in every if one.get_visible() and (one.axison or one.has_data())]


def _axes(figure):
    for axes in _every_axes(figure):
        box = axes.get_window_extent()
        size = np.array([box.width, box.height]) / figure.dpi
        least = BAR if hasattr(axes, "_colorbar") else AXES
        if size.min() < least and axes.has_data():
            yield f"axes {_named(axes)} of {size[0]:.2f} x {size[1]:.2f} in"


def _pictures(figure):
    """Images of a mosaic, which says how many it holds; of several on one axes, each."""
    for image in (one for axes in _every_axes(figure) for one in axes.images):
        rows, columns = getattr(image, "pictures", (1, 1))
        box = image.get_window_extent()
        size = np.array([box.width / columns, box.height / rows]) / figure.dpi
        if image.get_visible() and size.min() < AXES - 0.01:
            yield f"a picture of {size[0]:.2f} x {size[1]:.2f} in on axes {_named(image.axes)}"


def _upright(outlines) -> tuple[np.ndarray, np.ndarray]:
    """Lower left and upper right corners (n, 2) of the upright boxes around them."""
    shapes = np.array([*outlines]).reshape(-1, 4, 2)
    return shapes.min(1), shapes.max(1)


def _overlaps(texts):
    low, high = _upright(outline for _, outline in texts)
    for k, (one, first) in enumerate(texts):  # boxes that lie apart need no second look
        near = ((low[k] < high[k + 1 :]) & (low[k + 1 :] < high[k])).all(1)
        for other, second in (texts[k + 1 + n] for n in np.flatnonzero(near)):
            if meet(first, second):
                yield f"{_short(one)} and {_short(other)} overlap"


def _strangers(figure, texts):
    """Texts of one axes that lie on another, or of the figure on any."""
    low, high = _upright(outline for _, outline in texts)
    for axes in _every_axes(figure):
        box = axes.get_window_extent()
        shape = np.array([[box.x0, box.y0], [box.x1, box.y0], [box.x1, box.y1], [box.x0, box.y1]])
        near = ((low < (box.x1, box.y1)) & ((box.x0, box.y0) < high)).all(1)
        for text, outline in (texts[n] for n in np.flatnonzero(near)):
            if text.axes is axes or not meet(shape, outline):
                continue
            if not (_legend_of(text, axes) or _same_place(text.axes, box)):
                yield f"{_short(text)} lies on axes {_named(axes)}"


def _legend_of(text, axes) -> bool:
    legend = axes.get_legend()
    return legend is not None and text in legend.findobj(Text)


def _same_place(axes, box) -> bool:
    """Twins and insets."""
    if axes is None:
        return False
    own = axes.get_window_extent()
    both = Bbox.intersection(own, box)
    return both is not None and both.width * both.height > 0.9 * min(
        own.width * own.height, box.width * box.height
    )


def off_page(figure, texts):
    wide, high = figure.get_size_inches() * figure.dpi
    for text, outline in texts:
        (x0, y0), (x1, y1) = outline.min(0), outline.max(0)
        if min(x0, y0) < -1 or x1 > wide + 1 or y1 > high + 1:
            yield f"{_short(text)} lies off the page"
    for axes in _every_axes(figure):
        box = axes.get_window_extent()
        if min(box.x0, box.y0) < -1 or box.x1 > wide + 1 or box.y1 > high + 1:
            yield f"axes {_named(axes)} lie off the page"


def _short(text) -> str:
    words = " ".join(text.get_text().split())
    return repr(words if len(words) < 30 else f"{words[:27]}...")


def _named(axes) -> str:
    words = axes.get_title() or axes.get_ylabel() or axes.get_xlabel()
    return repr(" ".join(words.split())[:30])
