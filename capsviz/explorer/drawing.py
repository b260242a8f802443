"""What was computed, as HTML: small PNGs enlarged by the browser, bars, a table. No Gradio.

Matplotlib takes a tenth of a second for a figure, this a thousandth. Colours are those of
`capsviz.results`; text takes the page's own, so that a dark page stays readable.
"""

from __future__ import annotations

import base64
import functools
import io
import re
from html import escape

import numpy as np
from matplotlib import colormaps
from PIL import Image

from capsviz.analyses.routing.statistics import NO_MAP
from capsviz.nn.quantity import words_of
from capsviz.results import COLOURS
from capsviz.results.panels import picture

BLUE, RED = COLOURS[0], COLOURS[1]
COUPLING, SIGNED = "cividis", "RdBu_r"  # as in the figures of `routing`


@functools.cache
def colour_table(name: str) -> np.ndarray:
    """The 256 colours of one of matplotlib's maps, (256, 4) uint8."""
    return colormaps[name](range(256), bytes=True)


def png(pixels: np.ndarray) -> str:
    """(h, w), (h, w, 3) or (h, w, 4) uint8 as a data URI, pixel by pixel."""
    content = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(content, "png")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def pixels(image: np.ndarray, caption: str) -> str:
    """An image (C, H, W) uint8, enlarged, above its caption; of two channels the first."""
    return (
        f'<figure class="cv-panel"><img class="cv-px" src="{png(picture(image))}" '
        f'alt="{escape(caption)}"><figcaption>{escape(caption)}</figcaption></figure>'
    )


def row(*panels: str) -> str:
    """Panels beside one another, below one another where there is no room."""
    return f'<div class="cv-row">{"".join(panels)}</div>'


def note(text: str, kind: str = "") -> str:
    """A line of text; what stands between backquotes is code."""
    code = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return f'<p class="cv-note {kind}">{code}</p>' if text else ""


def gallery(cases) -> str:
    """A button for each prepared case: its image, its name, its question."""
    buttons = "".join(
        f'<button type="button" data-case="{escape(one.key)}" title="{escape(one.question)}">'
        f'<img class="cv-px" src="{png(picture((one.image[0] * 255).round().byte().numpy()))}" '
        f'alt=""{_turned(one.angle_deg)}><span>{escape(one.name)}</span></button>'
        for one in cases
    )
    return f'<div class="cv-cases">{buttons}</div>'


def _turned(angle_deg: float) -> str:
    return f' style="transform:rotate({-angle_deg:g}deg)"' if angle_deg else ""


def bars(values, classes, title: str, what: str, before=None) -> str:
    """One bar in [0, 1] for each class, the longest marked; a tick where `before` was."""
    winner, lines = int(np.argmax(values)), []
    for j, value in enumerate(values):
        tick = "" if before is None else f'<i style="left:{_percent(before[j])}"></i>'
        lines.append(
            f'<div class="cv-bar{" cv-first" if j == winner else ""}" data-class="{j}" '
            f'data-value="{value:.4f}"><b>{escape(classes[j])}</b><span>'
            f'<u style="width:{_percent(value)}"></u>{tick}</span><em>{value:.2f}</em></div>'
        )
    head = f"{escape(title)} sees <strong>{escape(classes[winner])}</strong>"
    return (
        f'<section class="cv-bars" data-predicted="{winner}"><h4>{head}</h4>'
        f"{''.join(lines)}<p>{escape(what)}</p></section>"
    )


def evidence(trace, capsule: int, name: str, limit: float | None = None) -> str:
    """The additive map of a class over the paler image, one colour scale for all classes.

    As in the figure of `routing`: the ink is outlined, and what is clearly negative has a −. The
    scale ends at `limit`, for several maps on one; None: at what is farthest from zero. Capsules
    that lie at no places have no map, but a table of what each type adds to each class.
    """
    if trace.maps is None:
        return note(NO_MAP) if trace.type_evidence is None else _by_type(trace, capsule, name)
    limit = (float(np.abs(trace.maps).max()) if limit is None else limit) or 1e-6
    height, width = trace.image.shape[1:]
    colours = colour_table(SIGNED)[_index(trace.maps[capsule] / limit / 2 + 0.5)]
    left, right, bottom, top = trace.extent_px
    box = (
        f"left:{100 * (left + 0.5) / width:.2f}%;top:{100 * (top + 0.5) / height:.2f}%;"
        f"width:{100 * (right - left) / width:.2f}%;height:{100 * (bottom - top) / height:.2f}%"
    )
    grey = 255 - trace.image.mean(0) / 2
    return (
        '<figure class="cv-panel cv-map"><div>'
        f'<img class="cv-px" src="{png(grey.round().astype(np.uint8))}" alt="the image">'
        f'<img class="cv-px cv-over" style="{box}" src="{png(colours)}" alt="evidence by place">'
        f"{_lines(trace, capsule, limit)}</div>"
        f"{_scale(SIGNED, f'−{limit:.3f}', '0', f'{limit:.3f}')}"
        f"<figcaption>Evidence for {escape(name)} by place, {_plain(trace)} summed over capsule "
        f"types; all places together: {trace.maps[capsule].sum():.2f}{_whole(trace)}."
        "</figcaption></figure>"
    )


def _plain(trace) -> str:
    return escape(words_of(trace.quantity)["plain"])


def _whole(trace) -> str:
    return "" if trace.quantity is None else f", {escape(trace.quantity['words'])}"


def _by_type(trace, capsule: int, name: str) -> str:
    """What the capsules of each type add to each class, a row for each class."""
    types, J = trace.type_evidence.shape
    limit = float(np.abs(trace.type_evidence).max()) or 1e-6
    cells = colour_table(SIGNED)[_index(trace.type_evidence.T / limit / 2 + 0.5)]
    numbers = "".join(f"<b>{j}</b>" for j in range(J))
    return (
        f'<figure class="cv-panel"><div class="cv-heat"><div class="cv-names">{numbers}</div>'
        f'<img class="cv-px" src="{png(cells)}" alt="evidence by type"></div>'
        f"{_scale(SIGNED, f'−{limit:.3f}', '0', f'{limit:.3f}')}"
        f"<figcaption>{escape(NO_MAP)}; in their place the evidence of each, {_plain(trace)}: a "
        f"row for each class, a column for each of {types} capsules; all "
        f"together for {escape(name)}: {trace.type_evidence[:, capsule].sum():.2f}{_whole(trace)}."
        "</figcaption></figure>"
    )


def couplings(trace, iteration: int, classes, off: int | None = None) -> str:
    """Mean couplings of each capsule type to each class, on one scale for all iterations.

    A type that is switched off is left blank: its couplings carry nothing.
    """
    R, types, J = trace.couplings.shape
    limit = max(float(np.abs(trace.couplings - 1 / J).max()), 1e-6)
    cells = colour_table(COUPLING)[
        _index((trace.couplings[iteration - 1].T - 1 / J) / limit / 2 + 0.5)
    ]
    if off is not None:
        cells[:, off] = 0  # transparent
    names = "".join(f"<b>{escape(name)}</b>" for name in classes)
    ends = (f"{1 / J - limit:.3f}", f"{1 / J:.3f}", f"{1 / J + limit:.3f}")
    return (
        f'<figure class="cv-panel"><div class="cv-heat"><div class="cv-names">{names}</div>'
        f'<img class="cv-px" src="{png(cells)}" '
        f'alt="couplings"></div>{_scale(COUPLING, *ends)}'
        f"<figcaption>Couplings in iteration {iteration} of {R}: a row for each class, a column "
        f"for each of {types} capsule types; 1/{J} is in the middle of the scale.</figcaption>"
        "</figure>"
    )


def spread(trace, iteration: int) -> str:
    """How far each capsule spreads itself over the classes, iteration by iteration."""
    J, lines = len(trace.lengths), []
    for r, entropy in enumerate(trace.entropy_nats, 1):
        count = np.exp(entropy)
        low, high = np.quantile(count, [0.05, 0.95])
        lines.append(
            f"<tr{' class=cv-now' if r == iteration else ''}><td>{r}</td>"
            f"<td>{entropy.mean():.3f}</td><td>{count.mean():.2f}</td>"
            f"<td>{low:.2f}–{high:.2f}</td></tr>"
        )
    return (
        '<figure class="cv-panel cv-table"><table><tr><th>iteration</th><th>entropy, nats</th>'
        f"<th>effective parents</th><th>5–95 %</th></tr>{''.join(lines)}</table>"
        f"<figcaption>How a capsule divides itself over {J} classes: entropy of its couplings, and "
        f"its exponential, the number of classes it effectively feeds.</figcaption></figure>"
    )


def vector(own: np.ndarray, changes, name: str) -> str:
    """A pose (E,) as bars from the middle; a tick where the image's own value was."""
    now = own + np.asarray(changes)
    limit = max(0.5, float(np.abs(now).max()), float(np.abs(own).max()))
    lines = []
    for d, (a, b) in enumerate(zip(own, now, strict=True)):
        start, end = sorted((0.0, b / limit / 2))
        lines.append(
            f'<div class="cv-bar{" cv-first" if a != b else ""}"><b>{d}</b><span class="cv-mid">'
            f'<u style="left:{_percent(0.5 + start)};width:{_percent(end - start)}"></u>'
            f'<i style="left:{_percent(0.5 + a / limit / 2)}"></i></span>'
            f"<em>{_signed(b)}</em></div>"
        )
    return (
        f'<section class="cv-bars"><h4>Pose of {escape(name)}, length '
        f"{np.linalg.norm(now):.2f} (the image's own {np.linalg.norm(own):.2f})</h4>"
        f"{''.join(lines)}<p>Value of each dimension; ticks: the image's own.</p></section>"
    )


def _scale(name: str, *ends: str) -> str:
    """A colour bar with the values at its ends and in its middle."""
    colours = colour_table(name)[:: 255 // 15, :3]
    stops = ",".join("rgb({},{},{})".format(*colour) for colour in colours)
    texts = "".join(f"<span>{end}</span>" for end in ends)
    return (
        f'<div class="cv-scale"><div style="background:linear-gradient(90deg,{stops})"></div>'
        f"<p>{texts}</p></div>"
    )


def _lines(trace, capsule: int, limit: float) -> str:
    """The edges of the pixels that are brighter than half, and the minus signs, over the image."""
    grey = trace.image.mean(0)
    height, width = grey.shape
    mask = np.pad(grey > (grey.min() + grey.max()) / 2 + 1e-6, 1)
    across = np.argwhere(mask[:, 1:] != mask[:, :-1]) - [1, 0]  # (y, x) of an edge on the left of x
    down = np.argwhere(mask[1:] != mask[:-1]) - [0, 1]
    path = "".join(f"M{x} {y}v1" for y, x in across) + "".join(f"M{x} {y}h1" for y, x in down)
    left, right, bottom, top = trace.extent_px
    shape = trace.maps[capsule].shape
    step = np.array([bottom - top, right - left]) / shape
    places = (np.argwhere(trace.maps[capsule] < -limit / 5) + 0.5) * step + [top + 0.5, left + 0.5]
    signs = "".join(f"M{x - 0.4:.2f} {y:.2f}h.8" for y, x in places)
    return f'<svg class="cv-over" viewBox="0 0 {width} {height}"><path d="{path}{signs}"/></svg>'


def _index(share: np.ndarray) -> np.ndarray:
    return (np.clip(share, 0, 1) * 255).round().astype(int)


def _signed(value: float) -> str:
    return f"{round(float(value), 2) + 0:+.2f}".replace("-", "−")  # + 0: no minus before zero


def _percent(share: float) -> str:
    return f"{100 * min(max(float(share), 0), 1):.1f}%"
