"""Draw the stages of a CapsNet for README and docs, from a real trace of one digit.

`python -m benchmarks.diagram` writes docs/capsules.svg and .png from the shipped `mnist`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from torch.nn.functional import cosine_similarity

import capsviz
from benchmarks import ROOT
from capsviz import results
from capsviz.inputs.opening import open_inputs, open_picture
from capsviz.results import COLOURS

WIDTH, HEIGHT = 7.16, 1.75  # inches
TITLES = (
    ("image", "28 × 28"),
    ("primary capsules", "lengths, 16 of 32 types"),
    ("votes", "agreement with the pose"),
    ("couplings", "three routing iterations"),
    ("class capsules", "10 vectors of 16, lengths"),
    ("reconstruction", "from the longest capsule"),
)
WIDTHS = (1, 1, 1.15, 1.35, 1.25, 1)
BLUE, RED, GREY = COLOURS[0], COLOURS[1], "#7F7F7F"


def draw(trace, label: int) -> Figure:
    """Return six panels from left to right, of the first image of a trace."""
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="none")
    left, gap, top, height = 0.022, 0.034, 0.25, 0.52
    unit = (1 - 2 * left - gap * (len(WIDTHS) - 1)) / sum(WIDTHS)
    x, panels = left, []
    for share, (name, below) in zip(WIDTHS, TITLES, strict=True):
        width = share * unit
        axes = figure.add_axes((x, top, width, height), xticks=[], yticks=[])
        figure.text(x + width / 2, 0.88, name, ha="center", fontsize=8, weight="bold")
        figure.text(x + width / 2, 0.04, below, ha="center", fontsize=6.3, color=GREY, wrap=False)
        panels.append(axes)
        x += width + gap
    for one, two in pairwise(panels):
        a, b = one.get_position(), two.get_position()
        arrow = FancyArrowPatch(
            (a.x1 + 0.005, top + height / 2), (b.x0 - 0.005, top + height / 2),
            transform=figure.transFigure, arrowstyle="-|>", mutation_scale=8, color=GREY, lw=1,
        )  # fmt: skip
        figure.add_artist(arrow)
    image, primary, votes, couplings, classes, drawn = panels
    image.imshow(trace.images[0, 0], cmap="gray_r")
    lengths = trace.child_activations[0].unflatten(0, trace.grid).numpy()
    primary.imshow(_sheet(lengths[:16]), cmap="Blues", aspect="equal")
    _votes(votes, trace, label)
    by_type = trace.couplings[:, 0].unflatten(1, trace.grid).mean((2, 3)).numpy()  # (R, types, J)
    apart = np.concatenate([one.T for one in by_type[[0, -1]]], 0)
    J = by_type.shape[2]
    spread = abs(apart - 1 / J).max()
    couplings.imshow(apart, cmap="cividis", vmin=1 / J - spread, vmax=1 / J + spread, aspect="auto")
    couplings.axhline(J - 0.5, color="white", lw=2)
    couplings.set_ylabel("last    first", fontsize=6.3, labelpad=1)
    ends = f"{apart.min():.3f} (blue) to {apart.max():.3f} (yellow)"
    couplings.set_xlabel(ends, fontsize=5.8, labelpad=2, color=GREY)
    values = trace.lengths[0].numpy()
    classes.barh(range(J), values, color=[RED if j == values.argmax() else GREY for j in range(J)])
    classes.set(xlim=(0, 1), ylim=(J - 0.5, -0.5), yticks=range(J), xticks=[0, 1])
    classes.tick_params(length=0, labelsize=6.3, pad=1)
    classes.spines[["top", "right"]].set_visible(False)
    for axes in (image, primary, drawn, couplings):
        axes.spines[:].set_visible(False)
    for axes in (image, drawn):
        axes.spines[:].set(visible=True, color=GREY, linewidth=0.4)
    drawn.imshow(trace.reconstruction[0, 0], cmap="gray_r")
    return figure


def _sheet(maps: np.ndarray) -> np.ndarray:
    """Put maps (16, rows, columns) side by side, four in a row, with a light line between."""
    padded = np.pad(maps, ((0, 0), (0, 1), (0, 1)), constant_values=np.nan)
    rows = padded.reshape(4, 4, *padded.shape[1:])
    return np.concatenate([np.concatenate(list(row), 1) for row in rows], 0)


def _votes(axes, trace, label: int) -> None:
    """Draw how votes agree with the poses of the predicted class and of the next one."""
    other = int(trace.lengths[0].argsort(descending=True)[1])
    for parent, colour in ((other, GREY), (label, RED)):
        votes, pose = trace.votes[0, :, parent], trace.poses[-1, 0, parent]
        cosine = cosine_similarity(votes, pose[None])
        axes.hist(
            cosine.numpy(), bins=np.linspace(-1, 1, 33), histtype="step", linewidth=1.1,
            color=colour, label=f"for {parent}",
        )  # fmt: skip
    axes.set(xlim=(-1, 1), xticks=[-1, 0, 1])
    axes.tick_params(length=0, labelsize=6.3, pad=1)
    axes.legend(loc="upper left", fontsize=6.3, handlelength=0.7, borderaxespad=0.1)


def main() -> None:
    """Write both files."""
    inputs = open_inputs(dataset="mnist", device="cpu")
    picture = open_picture(inputs, digit=2, index=0)
    trace = capsviz.trace(inputs.model, picture.image)
    for kind in ("svg", "png"):
        with results.style():
            figure = draw(trace, picture.label)
        results.save_figure(figure, ROOT / "docs" / f"capsules.{kind}")


if __name__ == "__main__":
    main()
