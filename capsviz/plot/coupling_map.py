"""Couplings of one image: a heat map of child types by classes."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm

from capsviz.plot import parts
from capsviz.tracing import Trace

ROUNDING = 1e-6  # couplings nearer to 1/J are uniform


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
    """Couplings c_ij of one image: rows are classes, columns types of capsules.

    With a grid a column is the mean over the places of a type; without one, each child has its own.
    The middle of the colour scale is 1/J, uniform couplings; read the scale's ends first.

    Parameters
    ----------
    trace      of `capsviz.trace`, with its couplings.
    index      which of its images.
    iteration  of routing, an index: -1 is the last.
    classes    their names, J of them; None: numbers.
    spread     couplings from the middle of the colour scale to its ends, for several on one scale;
               None: as far as these reach.
    axes       to draw into; None: those of a new figure.

    Returns
    -------
    The axes.

    Raises
    ------
    ValueError  for a trace without couplings, of a local layer, or names that are not J.
    IndexError  for an image or iteration that is not in the trace.
    """
    parts.require(trace, "couplings")
    assert trace.couplings is not None
    R, N, _, J = trace.couplings.shape
    round_ = parts.position(iteration, R, "iteration")
    values = trace.couplings[round_, parts.position(index, N, "image")]  # (I, J)
    if trace.grid is not None:
        values = values.unflatten(0, trace.grid).mean((1, 2))
    names = [str(j) for j in range(J)] if classes is None else [str(name) for name in classes]
    if len(names) != J:
        raise ValueError(f"expected names of {J} classes, got {len(names)}")
    axes = parts.or_new(axes)
    apart = float((values - 1 / J).abs().max())
    uniform = apart < ROUNDING
    if spread is None:
        spread = 0.1 / J if uniform else apart
    norm = CenteredNorm(1 / J, spread)
    drawn = axes.imshow(values.T.numpy(), cmap=cmap, norm=norm, aspect="auto", interpolation="none")
    axes.set_yticks(range(J), names)
    axes.set_xlabel("child" if trace.grid is None else "type of capsule")
    axes.set_ylabel("class")
    title = f"iteration {round_ + 1} of {R}" if R > 1 else "couplings"
    axes.set_title(f"{title}: uniform" if uniform else title)
    if colorbar:
        parts.bar(drawn, axes, r"mean $c_{ij}$" if trace.grid else r"$c_{ij}$",
                  least=0 if float(values.min()) >= 0 else None)  # fmt: skip
    return axes
