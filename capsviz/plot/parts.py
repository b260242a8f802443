"""What the functions of `capsviz.plot` share: axes, one image's part of a trace, colour scales."""

from __future__ import annotations

import operator

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable

from capsviz.tracing import Trace


def or_new(axes: Axes | None) -> Axes:
    """The axes, or those of a new figure of pyplot."""
    if axes is not None:
        return axes
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def require(trace: Trace, *names: str, local: bool = False) -> None:
    """ValueError for a trace without some of its parts, or of local children but for `local`."""
    for name in names:
        if getattr(trace, name) is None:
            raise ValueError(
                f"this trace has no {name}: trace with {name!r} among keep=(...); "
                "where it is there already, the network has none"
            )
    if trace.links is not None and not local:
        raise ValueError(
            "this layer is local, with couplings for each of its places: draw trace.couplings "
            "of the place that you mean"
        )


def position(index: int, count: int, what: str) -> int:
    """A place in a list, counted from its end if negative; IndexError for one outside."""
    place = operator.index(index)
    if not -count <= place < count:
        raise IndexError(f"{what} {index}: expected {-count} to {count - 1}")
    return place % count


def bar(drawn: ScalarMappable, axes: Axes, label: str, least: float | None = None) -> None:
    """A labelled colour bar beside the axes; it begins at the least value that there can be."""
    figure = axes.get_figure()
    assert figure is not None
    shown = figure.colorbar(drawn, ax=axes, label=label)
    if least is not None and shown.ax.get_ylim()[0] < least:
        shown.ax.set_ylim(bottom=least)
