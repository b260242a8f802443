"""Evidence for one class by place: a map on the image's own grid of pixels."""

from __future__ import annotations

import torch
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm

from capsviz.plot import parts
from capsviz.results.panels import picture
from capsviz.tracing import Trace
from capsviz.tracing.evidence import additive_map, of_image, quantity


def evidence(
    trace: Trace,
    index: int = 0,
    *,
    parent: int | None = None,
    place: int | None = None,
    iteration: int = -1,
    spread: float | None = None,
    axes: Axes | None = None,
    colorbar: bool = True,
    cmap: str = "RdBu_r",
) -> Axes:
    """What each place of an image adds to a class capsule, drawn over the image,
    whose outline stays above it.

    The map is Σ over types of c_ij (û_ij · v̂_j); over all places it sums to s_j · v̂_j, the
    class's whole input, as long as the routing adds no bias. Where the activation is no length, it
    is the routing's own exact decomposition of what the activation is read from, and the colour
    bar says which: of EM routing it sums to the logit less a constant. Axes are in pixels.
    Beside it belongs the map of `capsviz.trace(..., couplings="uniform")`: what of it is routing's.

    Parameters
    ----------
    trace      of `capsviz.trace`, with votes, couplings and poses.
    index      which of its images.
    parent     number of the class, or in a lower layer of the type; None: the most active.
    place      number of the parent's place, row by row, in a layer whose places see some children;
               None: what the parents of all places get, together.
    iteration  of routing, an index: -1 is the last.
    spread     evidence from zero to the ends of the colour scale, for several on one scale; None:
               as far as this map reaches. Of axes with a map it is `axes.images[-1].norm.vmax`.
    axes       to draw into; None: those of a new figure.

    Returns
    -------
    The axes.

    Raises
    ------
    ValueError  for a trace without these parts, a place that is not there, or children that have
                no places on the image.
    IndexError  for an image, class or iteration that is not in the trace.
    """
    parts.require(trace, "votes", "couplings", "poses", local=True)
    assert trace.votes is not None and trace.poses is not None and trace.factors is not None
    if trace.grid is None or trace.extent is None:
        raise ValueError("the children of this layer have no places on the image: there is no map")
    R, N, *_, J, _ = trace.poses.shape
    image, round_ = parts.position(index, N, "image"), parts.position(iteration, R, "iteration")
    if parent is None:
        read = trace.lengths if trace.lengths is not None else trace.poses[-1].norm(dim=-1)
        parent = int(read[image].reshape(-1, J).amax(0).argmax())
    parent = parts.position(parent, J, "class")
    with torch.no_grad():
        values = additive_map(of_image(trace, image), round_, place=place)[0, parent].numpy()
    axes = parts.or_new(axes)
    _, _, height, width = trace.images.shape
    axes.set_facecolor("white")  # of the paper that ink is on, whatever the style
    axes.imshow(picture(trace.images[image].numpy()), cmap="gray_r", vmin=0, vmax=1, alpha=0.5)
    norm = CenteredNorm(0, float(abs(values).max()) or 1e-6 if spread is None else spread)
    drawn = axes.imshow(
        values, cmap=cmap, norm=norm, extent=trace.extent, interpolation="none", zorder=2
    )
    grey = trace.images[image].mean(0).numpy()
    if grey.max() > grey.min():
        half = (float(grey.min()) + float(grey.max())) / 2
        axes.contour(grey, [half], colors="black", linewidths=0.7, zorder=3)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), xlabel="px", ylabel="px")
    at = "" if place is None else f" at place {place}"
    axes.set_title(f"evidence for {parent}{at}, Σ {values.sum():.2f}")
    if colorbar:
        parts.bar(drawn, axes, f"{quantity(trace).part} by place")
    return axes
