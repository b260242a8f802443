"""Draw parts of a trace into axes of your own.

    trace = capsviz.trace(model, images)
    fig, (left, right) = plt.subplots(1, 2, layout="constrained")
    capsviz.plot.couplings(trace, axes=left)
    capsviz.plot.evidence(trace, axes=right)

Each function draws one image of the trace into the given axes or new ones, and returns the axes. It
saves nothing and sets no style. The analyses draw whole figures, with numbers and controls.
"""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm
from torch import Tensor

from capsviz.nn.images import check_images
from capsviz.results.maps import outline
from capsviz.results.panels import picture
from capsviz.tracing import Trace
from capsviz.tracing.evidence import additive_map, of_image, quantity

__all__ = ["couplings", "evidence", "overlay"]

ROUNDING = 1e-6  # couplings that deviate less from their mean are uniform


def couplings(
    trace: Trace,
    index: int = 0,
    *,
    iteration: int = -1,
    classes: Sequence[str] | None = None,
    spread: float | None = None,
    axes: Axes | None = None,
    colorbar: bool = True,
    cmap: str = "cividis",
) -> Axes:
    """Draw the couplings c_ij of one image: rows are classes, columns are capsule types.

    With a grid, a column is the mean over the positions of a type; without one, each capsule has a
    column. The middle of the colour scale is the mean of all couplings: uniform couplings, 1/J if
    those of a capsule sum to 1. Read the ends of the scale first.

    Parameters
    ----------
    trace      result of `capsviz.trace`, with couplings.
    index      which image of the trace.
    iteration  index of the routing iteration; -1 is the last.
    classes    J names of the classes; None: those of the trace, or numbers.
    spread     distance from the middle of the colour scale to its ends, to draw several plots on
               one scale; None: the largest deviation of these couplings.
    axes       axes to draw into; None: those of a new figure.

    Raises
    ------
    ValueError  for a trace without couplings or of a local layer, or if there are not J names.
    IndexError  for an image or iteration that is not in the trace.
    """
    whole = trace.require("couplings")
    if trace.links is not None:
        raise ValueError(
            "this layer is local, with couplings for each of its positions: draw trace.couplings "
            "of one position instead"
        )
    R, N, _, J = whole.shape
    r = _within(iteration, R, "iteration")
    values = whole[r, _within(index, N, "image")]  # (I, J)
    if trace.grid is not None:
        values = values.unflatten(0, trace.grid).mean((1, 2))
    names = list(map(str, (trace.classes or range(J)) if classes is None else classes))
    if len(names) != J:
        raise ValueError(f"expected names of {J} classes, got {len(names)}")
    axes = _or_new(axes)
    even = float(values.mean())
    apart = float((values - even).abs().max())
    uniform = apart < ROUNDING
    if spread is None:
        spread = 0.1 * even if uniform else apart
    norm = CenteredNorm(even, spread)
    drawn = axes.imshow(values.T.numpy(), cmap=cmap, norm=norm, aspect="auto", interpolation="none")
    axes.set_yticks(range(J), names)
    axes.set_xlabel("child" if trace.grid is None else "type of capsule")
    axes.set_ylabel("class")
    title = f"iteration {r + 1} of {R}" if R > 1 else "couplings"
    axes.set_title(f"{title}: uniform" if uniform else title)
    if colorbar:
        label = r"mean $c_{ij}$" if trace.grid else r"$c_{ij}$"
        bar = axes.figure.colorbar(drawn, ax=axes, label=label)
        if values.min() >= 0 > bar.ax.get_ylim()[0]:  # no coupling can be negative
            bar.ax.set_ylim(bottom=0)
    return axes


def evidence(
    trace: Trace,
    index: int = 0,
    *,
    parent: int | None = None,
    position: int | None = None,
    iteration: int = -1,
    spread: float | None = None,
    axes: Axes | None = None,
    colorbar: bool = True,
    cmap: str = "RdBu_r",
) -> Axes:
    """Draw what each position of an image adds to a class capsule, over the outline of the image.

    The map is Σ over types of c_ij (û_ij · v̂_j). Its sum over positions is s_j · v̂_j, the whole
    input of the class, if the routing adds no bias. If the activation is not a length, the map is
    the routing's own exact decomposition of the activation's input, named at the colour bar. For EM
    routing, it sums to the logit minus a constant. Axes are in pixels. To see what routing adds,
    compare it with the map of `capsviz.trace(..., couplings="uniform")`.

    Parameters
    ----------
    trace      result of `capsviz.trace`, with votes, couplings and poses.
    index      which image of the trace.
    parent     index of the class, or of the capsule type in a lower layer; None: the most active.
    position   index of the parent's position, row by row, in a layer whose positions see only some
               children; None: the sum over the parents at all positions.
    iteration  index of the routing iteration; -1 is the last.
    spread     evidence at the ends of the colour scale, to draw several maps on one scale; None:
               the largest of this map. Drawn axes have it as `axes.images[-1].norm.vmax`.
    axes       axes to draw into; None: those of a new figure.

    Raises
    ------
    ValueError  for a trace without these parts, a position that is not there, or children that
                have no positions on the image.
    IndexError  for an image, class or iteration that is not in the trace.
    """
    for part in ("votes", "couplings"):
        trace.require(part)
    poses = trace.require("poses")
    if trace.grid is None or trace.extent is None:
        raise ValueError("the children of this layer have no positions on the image: no map")
    R, N, *_, J, _ = poses.shape
    image, r = _within(index, N, "image"), _within(iteration, R, "iteration")
    if parent is None:
        active = trace.lengths if trace.lengths is not None else poses[-1].norm(dim=-1)
        parent = int(active[image].reshape(-1, J).amax(0).argmax())
    parent = _within(parent, J, "class")
    with torch.no_grad():
        values = additive_map(of_image(trace, image), r, position=position)[0, parent].numpy()
    axes = overlay(
        trace.images[image], values, extent=trace.extent, spread=spread, axes=axes, cmap=cmap,
        colorbar=f"{quantity(trace).part} by position" if colorbar else None,
    )  # fmt: skip
    axes.set(xlabel="px", ylabel="px")
    at = "" if position is None else f" at position {position}"
    name = trace.classes[parent] if trace.classes else parent
    axes.set_title(f"evidence for {name}{at}, Σ {values.sum():.2f}")
    return axes


def overlay(
    image: Tensor,
    values: Tensor | np.ndarray,
    *,
    extent: tuple[float, float, float, float] | None = None,
    spread: float | None = None,
    axes: Axes | None = None,
    colorbar: str | None = "",
    cmap: str = "RdBu_r",
) -> Axes:
    """Draw a map over an image and its outline: `capsviz.overlay(image, map)`.

    Parameters
    ----------
    image     (C, H, W) in [0, 1].
    values    (rows, columns) of any size, signed; zero is in the middle of the colour scale.
    extent    left, right, bottom and top of the map in pixels, as from `capsviz.tracing.extent`;
              None: the whole image.
    spread    value at the ends of the colour scale; None: the largest of the map.
    axes      axes to draw into; None: those of a new figure.
    colorbar  label of the colour bar; None: no colour bar.

    Raises
    ------
    ValueError  for an image or map of other dimensions, and for images that `capsviz.trace`
                refuses: uint8, or values outside [0, 1].
    """
    pixels, values = np.ascontiguousarray(image), np.asarray(values)
    if pixels.ndim != 3 or values.ndim != 2:
        raise ValueError(
            f"expected an image (C, H, W) and a map (rows, columns), got {pixels.shape} and "
            f"{values.shape}: take one image and one class"
        )
    check_images(torch.from_numpy(pixels)[None])
    pixels = pixels.astype(np.float32)
    axes, (_, height, width) = _or_new(axes), pixels.shape
    axes.set_facecolor("white")  # in every style
    axes.imshow(picture(pixels), cmap="gray_r", vmin=0, vmax=1, alpha=0.5)
    norm = CenteredNorm(0, float(abs(values).max()) or 1e-6 if spread is None else spread)
    place: Any = (-0.5, width - 0.5, height - 0.5, -0.5) if extent is None else tuple(extent)
    drawn = axes.imshow(
        values, cmap=cmap, norm=norm, extent=place, interpolation="none", zorder=2,
        alpha=0.7 if extent is None else 1,
    )  # fmt: skip
    outline(axes, pixels, 0.7)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    if colorbar is not None:
        axes.figure.colorbar(drawn, ax=axes, label=colorbar)
    return axes


def _or_new(axes: Axes | None) -> Axes:
    """Return the axes, or those of a new pyplot figure."""
    if axes is not None:
        return axes
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def _within(index: int, count: int, what: str) -> int:
    """Return a non-negative index for one that may count from the end; IndexError if outside."""
    place = operator.index(index)
    if not -count <= place < count:
        raise IndexError(f"{what} {index}: expected {-count} to {count - 1}")
    return place % count
