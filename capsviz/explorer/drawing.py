"""Draw numbers as HTML: bars, and small PNGs that the browser enlarges. No Gradio.

Matplotlib takes a tenth of a second for a figure, this module a thousandth. Colours are those of
`capsviz.results`; text has the colour of the page, so a dark page stays readable.
"""

import base64
import io
import re
from html import escape
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import CenteredNorm, Normalize
from PIL import Image

from capsviz.analyses.routing import NO_MAP
from capsviz.nn.quantity import words_of
from capsviz.results.maps import COUPLING, SIGNED, coupling_scale, halfrange
from capsviz.results.panels import picture


def png(pixels: np.ndarray) -> str:
    """Return (h, w), (h, w, 3) or (h, w, 4) uint8 as a data URI."""
    content = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(content, "png")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def pixels(image: np.ndarray, caption: str) -> str:
    """Draw an image (C, H, W) uint8 above its caption; of two channels, the first is shown."""
    return (
        f'<figure class="cv-panel"><img class="cv-px" src="{png(picture(image))}" '
        f'alt="{escape(caption)}"><figcaption>{escape(caption)}</figcaption></figure>'
    )


def figure(path: Path) -> str:
    """Embed a PNG file."""
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img class="cv-figure" src="data:image/png;base64,{data}" alt="{escape(path.stem)}">'


def row(*panels: str) -> str:
    """Put panels side by side, or below each other on a narrow page."""
    return f'<div class="cv-row">{"".join(panels)}</div>'


def note(text: str, kind: str = "") -> str:
    """Write a line of text; text between backquotes is code."""
    code = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return f'<p class="cv-note {kind}">{code}</p>' if text else ""


def bars(values, classes, title: str, what: str, before=None) -> str:
    """Draw a bar in [0, 1] for each class, with the longest marked and a tick at each `before`."""
    winner, lines = int(np.argmax(values)), []
    for j, value in enumerate(values):
        tick = "" if before is None else f'<i style="left:{_percent(before[j])}"></i>'
        lines.append(
            f'<div class="cv-bar{" cv-first" if j == winner else ""}" data-class="{j}" '
            f'data-value="{value:.4f}"><b>{escape(classes[j])}</b><span>'
            f'<u style="width:{_percent(value)}"></u>{tick}</span><em>{value:.2f}</em></div>'
        )
    head = f"{escape(title)}: predicted as <strong>{escape(classes[winner])}</strong>"
    return (
        f'<section class="cv-bars" data-predicted="{winner}"><h4>{head}</h4>'
        f"<div>{''.join(lines)}</div><p>{escape(what)}</p></section>"
    )


def evidence(trace, capsule: int, classes) -> str:
    """Draw the evidence for a class at each position over the image, on one scale for all classes.

    As in the figure of `routing`, foreground pixels are outlined, and clearly negative evidence has
    a minus sign. The scale ends at the largest value of any class. For capsules without positions,
    a heat map shows the evidence of each type for each class instead.
    """
    if trace.evidence.maps is None:
        return _by_type(trace, capsule, classes)
    norm = CenteredNorm(0, halfrange(trace.evidence.maps))
    height, width = trace.image.shape[1:]
    left, right, bottom, top = trace.extent_px
    box = (
        f"left:{100 * (left + 0.5) / width:.2f}%;top:{100 * (top + 0.5) / height:.2f}%;"
        f"width:{100 * (right - left) / width:.2f}%;height:{100 * (bottom - top) / height:.2f}%"
    )
    sign, total = _signs(trace)
    grey = png((255 - trace.image.mean(0) / 2).round().astype(np.uint8))
    colours = png(colormaps[SIGNED](norm(trace.evidence.maps[capsule]), bytes=True))
    return (
        f'<figure class="cv-panel cv-map"><div><img class="cv-px" src="{grey}" alt="the image">'
        f'<img class="cv-px cv-over" style="{box}" src="{colours}" alt="evidence by position">'
        f"{_lines(trace, capsule, norm.halfrange)}</div>{_scale(SIGNED, norm)}"
        f"<figcaption>Evidence for {escape(classes[capsule])} by position: {escape(sign)}, "
        f"summed over capsule types. Total{escape(total)}: "
        f"{trace.evidence.maps[capsule].sum():.2f}."
        "</figcaption></figure>"
    )


def _signs(trace) -> tuple[str, str]:
    """Return the formula of one capsule's evidence, as c (û·v̂), and of the sum if not s·v̂."""
    total = "" if trace.evidence.quantity is None else f" ({trace.evidence.quantity['words']})"
    return words_of(trace.evidence.quantity)["plain"], total


def _by_type(trace, capsule: int, classes) -> str:
    """Draw the evidence of the capsules of each type for each class."""
    types = len(trace.evidence.types)
    norm = CenteredNorm(0, halfrange(trace.evidence.types))
    cells = colormaps[SIGNED](norm(trace.evidence.types.T), bytes=True)
    sign, total = _signs(trace)
    text = (
        f"{NO_MAP}. Evidence of each capsule, {sign}: a row for each class, a column for "
        f"each of {types} capsules. Total for {classes[capsule]}{total}: "
        f"{trace.evidence.types[:, capsule].sum():.2f}."
    )
    return _heat(cells, classes, _scale(SIGNED, norm), text)


def couplings(trace, iteration: int, classes, off: int | None = None) -> str:
    """Draw the mean couplings of each capsule type to each class, on one scale for all iterations.

    The type `off`, which is switched off, is left blank.
    """
    R, types, J = trace.couplings.shape
    norm = coupling_scale(trace.couplings, 1 / J)
    cells = colormaps[COUPLING](norm(trace.couplings[iteration - 1].T), bytes=True)
    if off is not None:
        cells[:, off] = 0  # transparent
    kind = "capsules" if trace.evidence.maps is None else "capsule types"
    text = (
        f"Couplings in iteration {iteration} of {R}: a row for each class, a column for each of "
        f"{types} {kind}. Uniform couplings are 1/{J}."
    )
    return _heat(cells, classes, _scale(COUPLING, norm), text)


def _heat(cells: np.ndarray, names, scale: str, caption: str) -> str:
    named = "".join(f"<b>{escape(str(name))}</b>" for name in names)
    return (
        f'<figure class="cv-panel"><div class="cv-heat"><div class="cv-names">{named}</div>'
        f'<img class="cv-px" src="{png(cells)}" alt="{escape(caption.split(":")[0])}"></div>{scale}'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def vector(own: np.ndarray, changes, name: str) -> str:
    """Draw a changed pose (E,) as bars from the middle, with ticks at the unchanged values."""
    now = own + np.asarray(changes)
    limit = max(0.5, float(np.abs(now).max()), float(np.abs(own).max()))
    lines = []
    for d, (a, b) in enumerate(zip(own, now, strict=True)):
        start, end = sorted((0.0, b / limit / 2))
        value = f"{round(float(b), 2) + 0:+.2f}".replace("-", "−")  # + 0: no minus before zero
        lines.append(
            f'<div class="cv-bar{" cv-first" if a != b else ""}"><b>{d}</b><span class="cv-mid">'
            f'<u style="left:{_percent(0.5 + start)};width:{_percent(end - start)}"></u>'
            f'<i style="left:{_percent(0.5 + a / limit / 2)}"></i></span><em>{value}</em></div>'
        )
    return (
        f'<section class="cv-bars"><h4>Pose of {escape(name)}, length '
        f"{np.linalg.norm(now):.2f} (unchanged: {np.linalg.norm(own):.2f})</h4>"
        f"<div>{''.join(lines)}</div>"
        "<p>Value of each dimension. Ticks: the unchanged pose.</p></section>"
    )


def _scale(name: str, norm: Normalize) -> str:
    """Draw a colour bar with the values at its ends and middle."""
    colours = colormaps[name](np.linspace(0, 1, 16), bytes=True)[:, :3]
    stops = ",".join("rgb({},{},{})".format(*colour) for colour in colours)
    ends = np.asarray(norm.inverse([0, 0.5, 1]))
    texts = "".join(f"<span>{f'{end:.3f}' if end else 0}</span>" for end in ends).replace("-", "−")
    return (
        f'<div class="cv-scale"><div style="background:linear-gradient(90deg,{stops})"></div>'
        f"<p>{texts}</p></div>"
    )


def _lines(trace, capsule: int, limit: float) -> str:
    """Outline the pixels brighter than the mid-range, and draw minus signs on negative evidence."""
    grey = trace.image.mean(0)
    height, width = grey.shape
    mask = np.pad(grey > (grey.min() + grey.max()) / 2 + 1e-6, 1)
    across = np.argwhere(mask[:, 1:] != mask[:, :-1]) - [1, 0]  # (y, x) of an edge on the left of x
    down = np.argwhere(mask[1:] != mask[:-1]) - [0, 1]
    path = "".join(f"M{x} {y}v1" for y, x in across) + "".join(f"M{x} {y}h1" for y, x in down)
    left, right, bottom, top = trace.extent_px
    step = np.array([bottom - top, right - left]) / trace.evidence.maps[capsule].shape
    negative = np.argwhere(trace.evidence.maps[capsule] < -limit / 5)
    middles = (negative + 0.5) * step + [top + 0.5, left + 0.5]
    signs = "".join(f"M{x - 0.4:.2f} {y:.2f}h.8" for y, x in middles)
    return f'<svg class="cv-over" viewBox="0 0 {width} {height}"><path d="{path}{signs}"/></svg>'


def _percent(share: float) -> str:
    return f"{100 * min(max(float(share), 0), 1):.1f}%"
