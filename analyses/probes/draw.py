"""Panels of `probes`: R2 by measure, disentanglement, the cycle, paths, and a film strip."""

from functools import partial

import numpy as np

from capsviz.analysis import Panel
from capsviz.results import COLOURS
from capsviz.results.maps import GREY
from capsviz.results.panels import band, beside, dots, kind, mosaic, points, room, rows_from

NAMES = {
    "slant_deg": "slant",
    "width_px": "width",
    "height_px": "height",
    "thickness_px": "thickness",
    "x_px": "position, x",
    "y_px": "position, y",
}
WIDE = 5.0  # inches: from this width on, a strip has all steps
LOWEST = -0.6  # start of R2 axes; lower values are arrows at the edge
PATH, FADE, OTHER = COLOURS[0], COLOURS[1], "#C00000"


def _kinds(result, estimate, names, named=True):
    """Yield the estimate, look and legend label (name and dimensions) of each code."""
    for one, name in zip(estimate, names, strict=True):
        text = name
        if name in result.sources and "components" not in name:
            text += f": {result.dimensions[result.sources.index(name)]} numbers"
        yield kind(one, result.codes.index(name), text if named else None)


def _probes(axes, result):
    """Draw R² of measures of the image from the pose (filled), and of the control task (hollow)."""
    low = min(float(result.r2.low.min()), float(result.control.low.min()))
    left, gap = max(LOWEST, min(0.0, low) - 0.05), 0.7 / len(result.sources)
    for one, fill in ((result.control, "none"), (result.r2, "full")):
        kinds = _kinds(result, one, result.sources, fill == "full")
        dots(axes, kinds, gap, left=left, fillstyle=fill, markersize=3)
    axes.plot([], [], "o", fillstyle="none", color=GREY, label="hollow: control task")
    names = [NAMES.get(one, one) for one in result.measures]
    rows_from(axes, names, left, "R² within a class, linear probe")


def _dci(axes, result):
    """Draw disentanglement and completeness of every code, with Student's t over classes."""
    pair = (result.disentanglement, result.completeness)
    for row, one in enumerate(pair):
        kinds = _kinds(result, one, result.codes, row == 0)
        dots(axes, kinds, 0.7 / len(result.codes), row, left=0, markersize=3)
    right = min(1.03, max(float(one.high.max()) for one in pair) + 0.1)
    rows_from(axes, ["disen-\ntangled", "complete"], 0, "DCI, mean over classes", right=right)


def _cycle(axes, result):
    """Draw R² of the pose when its reconstruction is encoded again."""
    left = max(-1.6, min(0.0, float(result.cycle.low.min())) - 0.05)
    points(axes, result.cycle, COLOURS[0], "o", left=left, markersize=3)
    short = ["reconstruction", "equal noise", "another image's\nreconstruction"]
    rows_from(axes, short, left, "R² of the pose, encoded again")


def _path(field: str, axes, result):
    """Draw one quantity along paths of poses and cross-fades."""
    estimate = getattr(result, field)
    for one, colour, marker, words in (
        (estimate[0], PATH, "o", "path of poses"),
        (estimate[1], FADE, "s", "cross-fade"),
    ):
        band(axes, result.t, one, f"{marker}-", color=colour, label=words)
    axes.set(xlim=(0, 1), xlabel="t", xticks=[0, 0.5, 1])
    if field == "path_activation":
        axes.set(ylim=(0, 1.02), ylabel="activation")
    else:
        axes.set(ylim=(0, 1.1 * float(estimate.high.max())), ylabel="rms to nearest image")


def _steps(result, width: float) -> np.ndarray:
    return np.arange(len(result.t))[:: 1 if width >= WIDE else 2]  # fewer on a narrow page


def _tall(result, width: float) -> float:
    return (width - 0.45) / (len(_steps(result, width)) + 2) + 0.25


def _poses(axes, result):
    """Draw images decoded along the path between two poses, (1 - t) v_a + t v_b."""
    steps = _steps(result, room(axes))
    names = ["image a", *(f"t = {result.t[i]:.3g}" for i in steps), "image b"]
    activations = [result.activations[0], *result.path_activations[steps], result.activations[1]]
    pictures = np.concatenate([result.images[:1], result.path[steps], result.images[1:]])
    _row(axes, pictures, result, activations, names)
    axes.set_ylabel("path of\nposes", color=PATH, fontsize=6.5)


def _fade(axes, result):
    """Draw the cross-fade of the pixels at the ends of the path."""
    steps, blank = _steps(result, room(axes)), np.full_like(result.images[:1], 255)
    activations = [None, *result.fade_activations[steps], None]
    _row(axes, np.concatenate([blank, result.fade[steps], blank]), result, activations)
    axes.set_ylabel("cross-fade\nof pixels", color=FADE, fontsize=6.5)


def _row(axes, pictures, result, activations, names=None):
    """Draw pictures (n, C, H, W) side by side, with predicted classes below and names above."""
    _, centres = mosaic(axes, pictures[None], len(pictures))
    axes.set_yticks([])
    texts, colours = [], []
    for one in activations:
        predicted = None if one is None else int(one.argmax())
        texts.append("" if one is None else f"{result.classes[predicted]}: {one[predicted]:.2f}")
        colours.append("black" if predicted in (None, result.capsule) else OTHER)
    axes.set_xticks(centres, texts, fontsize=6.5)
    for label, colour in zip(axes.get_xticklabels(), colours, strict=True):
        label.set_color(colour)
    if names is not None:
        beside(axes, "top", centres, names, fontsize=6.5)


def _curves(axes, result):
    """Draw activations of the class, and of the longest other capsule. One pair of images proves
    nothing.
    """
    name = result.classes[result.capsule]
    most = "longest" if result.score.endswith("length") else "highest"
    for what, activations, colour, marker in (
        ("path", result.path_activations, PATH, "o"),
        ("cross-fade", result.fade_activations, FADE, "s"),
    ):
        others = np.delete(activations, result.capsule, 1).max(1)
        axes.plot(result.t, activations[:, result.capsule], f"{marker}-", color=colour,
                  markersize=3, label=f"{what}: {name}")  # fmt: skip
        axes.plot(result.t, others, ":", color=colour, linewidth=0.9,
                  label=f"{what}: {most} other")  # fmt: skip
    axes.set(xlabel="t, from image a to image b", ylabel="activation", ylim=(0, 1.02), xlim=(0, 1))


PANELS = {
    "path": Panel(_poses, _tall, 1),
    "fade": Panel(_fade, _tall, 1),
    "activations": Panel(_curves, 1.45, 1),
}  # fmt: skip
MANY = {
    "probes": Panel(
        _probes, lambda r, width: 0.45 + 6 * max(0.24, 0.05 * len(r.sources)), 2 / 3, marks="bars"
    ),
    "dci": Panel(_dci, 1.4, 1 / 3, marks="bars"),
    "cycle": Panel(_cycle, 1.45, 1 / 3, figure="paths", shown="cycle", marks="bars"),
    **{
        name: Panel(
            partial(_path, field), 1.45, 1 / 3, 1 / 2, "paths", field, marks="bands",
            caption="along {couples} straight paths between two poses and along cross-fades, the "
            f"|{words}",
        )
        for name, field, words in (
            ("path", "path_activation", "activation of the class"),
            ("distance", "path_distance", "distance to the nearest image of the class"),
        )
    },
}  # fmt: skip
