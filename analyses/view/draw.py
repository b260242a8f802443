"""Panels of `view`: the images in a row; below them the scores and the pose."""

import numpy as np

from capsviz.analysis import Panel
from capsviz.results import COLOURS
from capsviz.results.maps import are_short
from capsviz.results.panels import room, show, split, wrapped

HATCHES = ("", "////", "....", "xxxx")  # to tell networks apart without colours


def _pictures(result) -> list:
    """Return the images with their titles."""
    name = result.classes[result.capsule]
    images = [(result.image, "image")]
    if (result.warped != result.image).any():
        images.append((result.warped, "warped"))
    if result.own is not None:
        images.append((result.own, f"decoded: pose of {name}"))
        if result.changes.any():
            images.append((result.changed, "decoded: changed pose"))
    return images


def _images(axes, result):
    """Draw an image, as it is and warped, and what its pose decodes to."""
    images = _pictures(result)
    for one, (image, title) in zip(split(axes, 1, len(images))[0], images, strict=True):
        show(one, image, wrapped(title, room(axes) / len(images), 6))


def _scores(axes, result):
    """Draw the score of every class in each network."""
    K, J = result.scores.shape
    each = 0.8 / K
    for k, (network, row) in enumerate(zip(result.networks, result.scores, strict=True)):
        at = np.arange(J) + (k - (K - 1) / 2) * each
        routing = f" ({result.routing})" if k == 0 and result.routing != "as trained" else ""
        axes.bar(
            at, row, each, color=COLOURS[k % len(COLOURS)], hatch=HATCHES[k % len(HATCHES)],
            edgecolor="white", linewidth=0, label=f"{network}{routing}",
        )  # fmt: skip
    kinds = " or ".join(dict.fromkeys(kind.split()[-1] for kind in result.kinds))
    axes.set(ylim=(0, 1.05), ylabel=kinds, xlabel="class")
    axes.set_yticks([0, 0.5, 1])
    axes.set_xticks(range(J), result.classes, rotation=0 if are_short(result.classes) else 90)


def _pose(axes, result):
    """Draw the pose, and what is changed of it."""
    name = result.classes[result.capsule]
    at, now = np.arange(len(result.pose)), result.pose + result.changes
    axes.axhline(0, color="#7F7F7F", linewidth=0.6)
    axes.vlines(at, result.pose, now, color=COLOURS[6], linewidth=0.8)
    if (moved := np.flatnonzero(result.changes)).size:
        axes.plot(moved, now[moved], "o", color=COLOURS[1], label="pose, changed")
    axes.plot(at, result.pose, "o", color=COLOURS[0], mfc="white", label="pose of the image")
    axes.set(xlabel="dimension", ylabel="value")
    axes.set_title(f"pose of {name}")
    axes.set_xticks(at[:: max(1, len(at) // 8)])


PANELS = {
    "images": Panel(
        _images, lambda result, width: min(1.7, width / len(_pictures(result))) + 0.3, 1
    ),
    "scores": Panel(_scores, 1.7),
    "pose": Panel(_pose, 1.7),
}  # fmt: skip
