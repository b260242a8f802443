"""Panels of `rotate`: film strip, score curves, and the frames of the animation."""

import numpy as np
from matplotlib import rcParams
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from capsviz.analysis import Panel
from capsviz.results import COLOURS, printable
from capsviz.results.house import style
from capsviz.results.maps import are_short
from capsviz.results.panels import beside, mosaic, picture, room, show, wrapped

STRIP = 13  # images in the print figure's strip, at most
CELL, WIDEST, NAMES = 0.36, 0.6, 0.6  # inches: smallest and largest picture, row names
DASHES = ("-", "--", ":", "-.")  # the next style is used when all colours are
FRAMES = 180  # in an animation, at most
PLURAL = {"probability": "probabilities"}
TRUE, PREDICTED, OTHER = "#0072B2", "#D55E00", "#BBBBBB"


def _layout(result, width: float) -> tuple[np.ndarray, float]:
    """Return the indices of the angles that are shown, and the width of a picture in inches."""
    angles = result.angles_deg
    columns = min(STRIP, int((width - NAMES) / CELL), len(angles))
    picked = np.unique(np.linspace(0, len(angles) - 1, columns).round().astype(int))
    return picked, min((width - NAMES) / len(picked), WIDEST)


def _tall(result, width: float) -> float:
    tall, wide = result.inputs.shape[2:]
    rows = 1 if result.reconstructions is None else 2
    return rows * _layout(result, width)[1] * tall / wide + 0.45


def _strip(axes, result):
    """Draw the input at some angles, its reconstruction, and below them the predicted class."""
    picked, _ = _layout(result, room(axes))
    shown = {"input": result.inputs, "recon-\nstruction": result.reconstructions}
    shown = {name: images[picked] for name, images in shown.items() if images is not None}
    y, x = mosaic(axes, np.stack(list(shown.values())), len(picked))
    axes.set_yticks(y, list(shown), linespacing=1.0)
    axes.set_xticks(x, [f"{angle:g}°" for angle in result.angles_deg[picked]])
    axes.xaxis.tick_top()
    names = [result.classes[k] for k in result.predicted[picked]]
    under = beside(axes, "bottom", x, names, rotation=0 if are_short(result.classes) else 90)
    for text, k in zip(under.get_xticklabels(), result.predicted[picked], strict=True):
        text.set_color(rcParams["text.color"] if result.label in (None, k) else PREDICTED)


def _scores(axes, result) -> list:
    """Draw the score of every class by angle, in grey where it is never the highest."""
    angles, winners, named = result.angles_deg, set(result.predicted.tolist()), []
    for k, name in enumerate(result.classes):
        if k in winners or k == result.label:
            true = k == result.label
            (line,) = axes.plot(
                angles, result.lengths[:, k], color=COLOURS[k % len(COLOURS)],
                linestyle=DASHES[k // len(COLOURS) % len(DASHES)],
                linewidth=2 if true else 1.1, zorder=3,
            )  # fmt: skip
            named.append((axes, line, f"{name} (true class)" if true else name))
        else:
            axes.plot(angles, result.lengths[:, k], color=OTHER, linewidth=0.6, zorder=1)
    rest = len(result.classes) - len(named)
    axes.set(ylabel=result.score, ylim=(0, 1))
    most = "longest" if result.score.endswith("length") else "highest"
    those = "class that is" if rest == 1 else "classes that are"
    never = f"; grey: {rest} {those} never the {most}" if rest else ""
    text = f"rotation of the input, degrees counter-clockwise{never}"
    axes.set_xlabel(wrapped(text, room(axes) - 1))
    _degrees(axes)
    return named


def frames(result, size):
    """Yield RGB frames (h, size, 3) uint8: input, reconstruction, scores, and a strip that grows.

    Each angle has a frame; if there are more than `FRAMES` angles, only every k-th has. The
    background is drawn once, and only the moving parts are redrawn.
    """
    result = printable(result)
    with style():
        figure = Figure(figsize=(6.0, 4.6), dpi=size / 6.0, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        parts = _moving(figure, result)
        canvas.draw()
        background = canvas.copy_from_bbox(figure.bbox)
        moving = figure.findobj(lambda one: one.get_animated())
        whole = np.isclose((result.angles_deg[-1] - result.angles_deg[0]) % 360, 0)
        count = len(result.angles_deg) - (1 if whole and len(result.angles_deg) > 1 else 0)
        for i in range(0, count, -(-count // FRAMES)):  # 360° repeats 0°
            canvas.restore_region(background)
            _move(parts, result, i)
            for artist in moving:
                figure.draw_artist(artist)
            yield np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _moving(figure, result):
    """Draw a frame; return its moving parts: pictures, bars, strip and title."""
    J, angles, shown = len(result.classes), result.angles_deg, {"input": result.inputs}
    rotation = 0 if are_short(result.classes) else 90
    if result.reconstructions is not None:
        shown["reconstruction"] = result.reconstructions
    cells = figure.subplot_mosaic([[*shown, "scores"], ["strip"] * (len(shown) + 1)])
    pictures = []
    for name, images in shown.items():
        cells[name].set_title(name, fontsize=8)
        pictures.append((show(cells[name], images[0]), images))
        pictures[-1][0].set_animated(True)
    axes = cells["scores"]
    axes.set(ylim=(0, 1.0), xlim=(-0.6, J - 0.4), yticks=[0, 0.5, 1])
    axes.set_title(PLURAL.get(result.score, f"{result.score}s"), fontsize=8)
    axes.set_xticks(range(J), result.classes, rotation=rotation)
    bars = axes.bar(range(J), np.zeros(J), color=OTHER, animated=True)
    axes = cells["strip"]
    half = ((angles[-1] - angles[0]) / max(1, len(angles) - 1) or 1) / 2
    strip = axes.imshow(
        np.full((J, len(angles)), np.nan), aspect="auto", vmin=0, vmax=1, animated=True,
        extent=(angles[0] - half, angles[-1] + half, J - 0.5, -0.5),
    )  # fmt: skip
    axes.set_yticks(range(J), result.classes, fontsize=6)
    axes.set(xlabel="rotation, degrees counter-clockwise", ylabel="class")
    _degrees(axes)
    figure.colorbar(strip, ax=axes, label=result.score, ticks=[0, 0.5, 1], pad=0.01)
    title = figure.suptitle(" ", fontsize=10, animated=True)
    known = result.label is not None
    marks = {"true class": TRUE} if known else {}
    marks |= {"predicted, wrong" if known else "predicted": PREDICTED, "other classes": OTHER}
    handles = [Patch(color=colour, label=name) for name, colour in marks.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(marks), fontsize=7.5)
    return pictures, bars, strip, title


def _move(parts, result, i: int):
    """Update the moving parts to angle number i."""
    pictures, bars, strip, title = parts
    for drawing, images in pictures:
        drawing.set_data(picture(images[i]))
    for k, bar in enumerate(bars):
        bar.set_height(result.lengths[i, k])
        winner = PREDICTED if k == result.predicted[i] else OTHER
        bar.set_color(TRUE if k == result.label else winner)
    strip.set_data(np.where(np.arange(len(result.lengths)) <= i, result.lengths.T, np.nan))
    true = "" if result.label is None else f"    true class {result.classes[result.label]}"
    predicted = result.classes[result.predicted[i]]
    title.set_text(f"{result.angles_deg[i]:g}°{true}    predicted {predicted}")


def _degrees(axes):
    """Fit the horizontal axis to the angles, with ticks at multiples such as 30 or 45 degrees."""
    axes.margins(x=0)
    axes.xaxis.set_major_locator(MaxNLocator(9, steps=[1, 1.5, 3, 4.5, 9, 10]))


PANELS = {
    "strip": Panel(
        _strip, _tall, 1,
        caption=lambda result: "one image, rotated counter-clockwise"
        + ", its reconstructions" * (result.reconstructions is not None)
        + " and the class that is predicted",
    ),
    "scores": Panel(
        _scores, lambda result, width: max(1.6, 0.28 * width), 1,
        caption="the {score} of each class at every angle",
    ),
}  # fmt: skip
