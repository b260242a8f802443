"""Panels of `tsne`: the map of the capsules beside that of the pixels; their scores."""

from functools import partial

import numpy as np
from matplotlib.patches import Rectangle

from capsviz.analysis import Panel
from capsviz.results import COLOURS
from capsviz.results.panels import beside, dots, name_rows, picture, room, rule, wrapped

# A thumbnail's side, as a share of the map's, and its least side in inches.
SHARE, THUMBNAIL = 0.075, 0.27
MARKERS = "os^Dv"  # the next one when all colours are used
TITLES = {
    "poses": "pose of the predicted class",
    "all-poses": "poses of all classes",
    "couplings": "couplings",
}
CAPSULES, PIXELS = "#0072B2", "#7F7F7F"


def _scores(axes, result):
    """Draw how well the maps and the vectors behind them separate classes and keep neighbours."""
    dots(axes, zip(result.scores, (CAPSULES, PIXELS), "os", _titles(result), strict=True), 0.3)
    names = [wrapped(name, 1.1) if room(axes) < 5 else name for name in result.score_names]
    name_rows(axes, names, linespacing=0.95)
    pairs = [f"{ours:.3f}, {theirs:.3f}" for ours, theirs in result.scores.value.T]
    beside(axes, "right", range(len(names)), [pair.replace("-", "−") for pair in pairs])
    axes.set_xlim(min(0, result.scores.ci95.min() - 0.02), 1.01)
    axes.set_xlabel("score, k = 10")
    rule(axes)


def _titles(result) -> tuple[str, str]:
    raw = "raw pixels" if len(result.thumbnails) else "raw inputs"
    return result.below if result.of == "primary" else TITLES[result.of], raw


def places(points: np.ndarray, chosen, side: float) -> np.ndarray:
    """Return centres (T, 2) for thumbnails: near the `chosen` points, and hiding few others."""
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    ring = np.stack([np.cos(angles), np.sin(angles)], 1)
    steps = np.concatenate([radius * side * ring for radius in np.arange(0.8, 8, 0.4)])
    low, high = points.min(0), points.max(0)
    centres = np.empty((0, 2))
    for i in chosen:
        tried = points[i] + steps
        near = np.abs(tried.T[:, :, None] - points.T[:, None]) < 0.6 * side  # (2, tries, points)
        hidden = (near[0] & near[1]).sum(1)
        occupied = (np.abs(tried[:, None] - centres).max(2) < 1.1 * side).any(1)
        outside = (tried < low).any(1) | (tried > high).any(1)
        far = np.linalg.norm(steps, axis=1) / side
        best = (3 * hidden + far + 1000 * occupied + 5 * outside).argmin()
        centres = np.concatenate([centres, tried[best : best + 1]])
    return centres


def _map(which: int, axes, result):
    """Draw the map, with images that are misclassified, or rotated."""
    side = room(axes) if room(axes) > 3.4 else 2.2  # a map in a column is limited by its height
    share = max(SHARE, THUMBNAIL / side)
    axes.set_title(f"{_titles(result)[which]}, {result.dimensions[which]:,} numbers")
    points, paths = result.positions[which], result.paths[which]
    wrong = result.labels != result.predicted
    for k in np.unique(result.labels):
        look = {"s": 5, "linewidth": 0, "alpha": 0.8, **_style(k)}
        axes.scatter(*points[result.labels == k].T, **look)
        mark = {"linestyle": "none", "markersize": 4, "label": result.classes[k], **_style(k)}
        axes.plot([], [], **mark)
    ring = {"facecolor": "none", "edgecolor": "black", "linewidth": 0.7}
    label = "misclassified" if wrong.any() else None
    axes.scatter(*points[wrong].T, s=16, zorder=3, label=label, **ring)
    every = np.concatenate([points, paths.reshape(-1, 2)])
    side = share * np.ptp(every, axis=0).max()
    centres = places(every, result.thumbnails, side)
    for i, image, centre in zip(result.thumbnails, result.thumbnail_images, centres, strict=True):
        colour = "black" if wrong[i] else _style(result.labels[i])["color"]
        _thumbnail(axes, image, points[i], centre, side, colour, "--" if wrong[i] else "-")
    for label, path, predicted in zip(
        result.path_labels, paths, result.path_predicted, strict=True
    ):
        _path(axes, path, label, predicted)
    corners = np.concatenate([every, centres])
    low, high = corners.min(0), corners.max(0)
    half = (high - low).max() / 2 + 0.7 * side  # a square, so that both maps have the same size
    for set_limits, centre in zip((axes.set_xlim, axes.set_ylim), (low + high) / 2, strict=True):
        set_limits(centre - half, centre + half)
    axes.set(aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color="#BBBBBB")


def _thumbnail(axes, image, point, centre, side, colour, line):
    """Draw an image in a frame whose longer side is `side`, with a line to its point."""
    (x, y), (_, tall, wide) = centre, image.shape
    high, half = side * tall / max(tall, wide) / 2, side * wide / max(tall, wide) / 2
    axes.plot(*zip(point, centre, strict=True), color="black", linewidth=0.4, zorder=4)
    box = (x - half, x + half, y - high, y + high)
    axes.imshow(picture(image), extent=box, cmap="gray_r", vmin=0, vmax=255, zorder=5)
    frame = {"fill": False, "edgecolor": colour, "linewidth": 1, "linestyle": line}
    axes.add_patch(Rectangle((x - half, y - high), 2 * half, 2 * high, zorder=6, **frame))


def _path(axes, path, label, predicted):
    """Draw a line through the angles, coloured by predicted class, with − and + at its ends."""
    axes.plot(*path.T, color="black", linewidth=0.7, zorder=7)
    colours = [_style(k)["color"] for k in predicted]
    axes.scatter(*path.T, s=7, c=colours, edgecolor="black", linewidth=0.3, zorder=8)
    middle = len(path) // 2
    axes.scatter(*path[middle], s=30, edgecolor="black", linewidth=0.8, zorder=9, **_style(label))
    for end, sign in ((0, "$-$"), (-1, "$+$")):
        ring = {"color": "white", "markeredgecolor": colours[end], "markersize": 6}
        axes.plot(*path[end], "o", zorder=9, **ring)
        axes.plot(*path[end], marker=sign, color="black", markersize=4, zorder=10)


def _style(k) -> dict:
    """Return the colour and marker of a class."""
    marker = MARKERS[k // len(COLOURS) % len(MARKERS)]
    return {"color": COLOURS[k % len(COLOURS)], "marker": marker}


def _about(name: str, result) -> str:
    """Return the caption of a map."""
    what = f"capsules ({result.of})" if name == "capsules" else name
    wrong = "\nrings: misclassified images" * bool((result.labels != result.predicted).any())
    lines = "\nlines: single images rotated from -60° to 60°" * bool(len(result.path_labels))
    method = "t-SNE" if result.method == "tsne" else "PCA"
    whole = f"maps of {result.n:,} images of {result.dataset} by {method}, of "
    return f"{whole}|their {what}{wrong}{lines}"


PANELS = {
    **{
        name: Panel(
            partial(_map, k), lambda result, width: min(0.93 * width, 3.75),
            caption=partial(_about, name),
        )
        for k, name in enumerate(("capsules", "pixels"))
    },
    "scores": Panel(_scores, 1.6, 1, figure="scores", marks="bars"),
}  # fmt: skip
