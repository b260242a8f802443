"""The image through a full circle in both networks: frames that the browser plays. No Gradio."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capsviz import tracing
from capsviz.analyses import rotate
from capsviz.explorer import drawing
from capsviz.explorer.networks import Networks
from capsviz.explorer.panels import score_name
from capsviz.results import COLOURS
from capsviz.results.panels import picture
from capsviz.transforms import warps

SWEEP: dict[str, Any] = {"start": -180.0, "stop": 180.0, "step": 5.0}  # degrees
FRAME_MS = 120
WIDTH, HEIGHT, TOP, LEFT, BASE = 360, 156, 16, 24, 136  # of a curve, in units of its own


def player(networks: Networks, image: Tensor) -> str:
    """Return a player of an image (1, C, H, W) at each angle, and the curves of both networks.

    `player.js` shows a frame at a time, and the curves up to it.
    """
    degrees = rotate.angles(**SWEEP)
    images = warps.rotate(image.cpu().float(), torch.from_numpy(degrees)).clamp(0, 1)
    models = networks.model, networks.other
    scores = [tracing.scores(one, images).float().numpy() for one in models]
    pixels = (images * 255).round().byte().numpy()
    frames = "".join(
        _frame(networks, pixels[k], degrees[k], [one[k] for one in scores])
        for k in range(len(degrees))
    )
    winners = sorted({int(j) for values in scores for j in values.argmax(1)})
    curves = [
        _curves(f"{name}: {score_name(model)}", values, degrees, networks.classes, winners)
        for name, model, values in zip(networks.names, models, scores, strict=True)
    ]
    return (
        f'<div class="cv-player" data-count="{len(degrees)}" data-ms="{FRAME_MS}">'
        '<div class="cv-bar-of-player"><button type="button">Play</button>'
        f'<input type="range" min="0" max="{len(degrees) - 1}" value="0" '
        'aria-label="Angle of the frame"></div>'
        f'{drawing.row(f"""<div class="cv-frames">{frames}</div>""", *curves)}</div>'
        + drawing.note(
            "The original image is rotated counter-clockwise, without the warp above. Both "
            "networks classify it at every angle, as trained. One image proves nothing about "
            "robustness: `capsviz rotate --n 1000` measures many."
        )
    )


def _frame(networks: Networks, pixels: np.ndarray, degrees: float, scores) -> str:
    words = "; ".join(
        f"{name}: predicted as {networks.classes[int(one.argmax())]} ({one.max():.2f})"
        for name, one in zip(networks.names, scores, strict=True)
    )
    angle = f"{degrees:.0f}°".replace("-", "−")
    return (
        f'<figure class="cv-panel cv-frame" hidden><img class="cv-px" '
        f'src="{drawing.png(picture(pixels))}" alt="the image at {angle}">'
        f"<figcaption>{angle}: {escape(words)}.</figcaption></figure>"
    )


def _curves(what: str, values: np.ndarray, degrees: np.ndarray, classes, winners: list[int]) -> str:
    """Draw scores (A, J) over A angles; those of `winners` are in colour."""
    x = LEFT + (degrees - degrees[0]) / np.ptp(degrees) * (WIDTH - LEFT)
    y = BASE - values.clip(0, 1) * (BASE - TOP)
    colours = {j: COLOURS[k % len(COLOURS)] for k, j in enumerate(winners)}
    lines, labels = [], []
    for j in sorted(range(len(classes)), key=lambda j: j in winners):
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y[:, j], strict=True))
        look = (colours[j], 2) if j in winners else ("#8888", 0.7)
        lines.append('<polyline points="{}" stroke="{}" stroke-width="{}"/>'.format(points, *look))
    for j, colour in colours.items():
        k = int(values[:, j].argmax())
        anchor = "start" if x[k] < LEFT + 12 else "end" if x[k] > WIDTH - 12 else "middle"
        labels.append(
            f'<text x="{x[k]:.1f}" y="{y[k, j] - 3:.1f}" text-anchor="{anchor}" '
            f'style="fill:{colour};font-weight:700">{escape(classes[j])}</text>'
        )
    anchors = {-180: "start", -90: "middle", 0: "middle", 90: "middle", 180: "end"}
    ticks = "".join(
        f'<text x="{LEFT + (d + 180) / 360 * (WIDTH - LEFT):.1f}" y="{HEIGHT - 6}" '
        f'text-anchor="{anchor}">{d}°</text>'.replace(">-", ">−")
        for d, anchor in anchors.items()
    )
    return (
        f'<figure class="cv-panel cv-curves"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(what)} by angle"><path d="M{LEFT} {TOP}V{BASE}H{WIDTH}"/>'
        f'<text x="{LEFT - 4}" y="{TOP + 4}" text-anchor="end">1</text>'
        f'<text x="{LEFT - 4}" y="{BASE}" text-anchor="end">0</text>{ticks}'
        f'<svg class="cv-trace" x="0" y="0" width="{WIDTH}" height="{HEIGHT}" '
        f'data-left="{LEFT}" data-width="{WIDTH}">{"".join(lines)}{"".join(labels)}</svg></svg>'
        f"<figcaption>{escape(what)} of each class at each angle. In colour: classes that either "
        "network predicts at some angle.</figcaption></figure>"
    )
