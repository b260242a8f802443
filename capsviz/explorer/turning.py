"""The image through a full circle, in both networks: frames that the browser plays. No Gradio."""

from __future__ import annotations

from html import escape

import numpy as np
from torch import Tensor

from capsviz import tracing
from capsviz.analyses import rotate
from capsviz.explorer import drawing
from capsviz.explorer.network import Networks, scale
from capsviz.results import COLOURS
from capsviz.results.panels import picture
from capsviz.transforms.warps import rotate as turn

STEP_DEG = 5.0
FRAME_MS = 120
WIDTH, HEIGHT, TOP, LEFT, BASE = 360, 156, 16, 24, 136  # of a curve, in units of its own


def turned(networks: Networks, image: Tensor, label: int | None) -> rotate.Result:
    """The full circle as `capsviz rotate` has it, from −180° to 180°."""
    return rotate.Rotate().measure(
        networks.model, image, label, classes=networks.classes, start=-180.0, stop=180.0,
        step=STEP_DEG,
    )  # fmt: skip


def played(networks: Networks, image: Tensor) -> str:
    """A player, as HTML: image (1, C, H, W) at each angle, and the curves behind it.

    `player.js` shows a frame at a time, and the curves up to it.
    """
    import torch

    degrees = rotate.angles(-180.0, 180.0, STEP_DEG)
    images = turn(image.cpu().float(), torch.from_numpy(degrees)).clamp(0, 1)
    curves = [tracing.scores(one, images).float().numpy() for one in
              (networks.model, networks.other)]  # fmt: skip
    pixels = (images * 255).round().byte().numpy()
    frames = "".join(
        _frame(networks, pixels[k], degrees[k], [one[k] for one in curves])
        for k in range(len(degrees))
    )
    what = [f"{scale(one)} of each class" for one in (networks.model, networks.other)]
    winners = sorted({int(j) for values in curves for j in values.argmax(1)})
    parts = [
        _curves(name, values, degrees, networks.classes, text, winners)
        for name, values, text in zip(networks.names, curves, what, strict=True)
    ]
    return (
        f'<div class="cv-player" data-count="{len(degrees)}" data-ms="{FRAME_MS}">'
        '<div class="cv-bar-of-player"><button type="button">Play</button>'
        f'<input type="range" min="0" max="{len(degrees) - 1}" value="0" '
        'aria-label="Angle of the frame"></div>'
        f'{drawing.row(f"""<div class="cv-frames">{frames}</div>""", *parts)}</div>'
        + drawing.note(
            "The image turns counter-clockwise as it was given, without the warp above; both "
            "networks answer at every angle, as trained. One image proves nothing about "
            "robustness: `capsviz rotate --n 1000` looks at many."
        )
    )


def _frame(networks, pixels, degrees, scores) -> str:
    words = "; ".join(
        f"{name} sees {networks.classes[int(one.argmax())]} ({one.max():.2f})"
        for name, one in zip(networks.names, scores, strict=True)
    )
    angle = f"{degrees:.0f}°".replace("-", "−")
    return (
        f'<figure class="cv-panel cv-frame" hidden><img class="cv-px" '
        f'src="{drawing.png(picture(pixels))}" alt="the image at {angle}">'
        f"<figcaption>{angle}: {escape(words)}.</figcaption></figure>"
    )


def _curves(
    name: str, values: np.ndarray, degrees: np.ndarray, classes, what: str, winners: list[int]
) -> str:
    """Curves (A, J) over angles, those of `winners` in colour, drawn up to a frame."""
    x = LEFT + (degrees - degrees[0]) / np.ptp(degrees) * (WIDTH - LEFT)
    y = BASE - values.clip(0, 1) * (BASE - TOP)
    lines, labels = [], []
    for j in sorted(range(len(classes)), key=lambda j: j in winners):
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y[:, j], strict=True))
        colour = COLOURS[winners.index(j) % len(COLOURS)] if j in winners else "#8888"
        thick = 2 if j in winners else 0.7
        lines.append(f'<polyline points="{points}" stroke="{colour}" stroke-width="{thick}"/>')
    for j in winners:
        k = int(values[:, j].argmax())
        colour = COLOURS[winners.index(j) % len(COLOURS)]
        anchor = "start" if x[k] < LEFT + 12 else "end" if x[k] > WIDTH - 12 else "middle"
        labels.append(
            f'<text x="{x[k]:.1f}" y="{y[k, j] - 3:.1f}" text-anchor="{anchor}" '
            f'style="fill:{colour};font-weight:700">{escape(classes[j])}</text>'
        )
    ticks = "".join(
        f'<text x="{LEFT + (d + 180) / 360 * (WIDTH - LEFT):.1f}" y="{HEIGHT - 6}" '
        f'text-anchor="{anchor}">{d}°</text>'.replace(">-", ">−")
        for d, anchor in ((-180, "start"), (-90, "middle"), (0, "middle"), (90, "middle"),
                          (180, "end"))
    )  # fmt: skip
    frame = (
        f'<path d="M{LEFT} {TOP}V{BASE}H{WIDTH}"/>'
        f'<text x="{LEFT - 4}" y="{TOP + 4}" text-anchor="end">1</text>'
        f'<text x="{LEFT - 4}" y="{BASE}" text-anchor="end">0</text>{ticks}'
    )
    return (
        f'<figure class="cv-panel cv-curves"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(name)} by angle">{frame}<svg class="cv-trace" x="0" y="0" '
        f'width="{WIDTH}" height="{HEIGHT}" data-left="{LEFT}" data-width="{WIDTH}">'
        f"{''.join(lines)}{''.join(labels)}</svg></svg>"
        f"<figcaption>{escape(name)}: {what} at each angle, in colour the classes that "
        "either network answers somewhere.</figcaption></figure>"
    )
