"""Lines with bands, and rows of points: what most drawings of estimates are made of."""

from __future__ import annotations


def band(axes, x, estimate, *style, **look):
    """Draw values (N,) as a line, with their intervals as a band of its colour."""
    (line,) = axes.plot(x, estimate.value, *style, **look)
    axes.fill_between(
        x, estimate.low, estimate.high, color=line.get_color(), alpha=0.2, linewidth=0
    )
    return line


def name_rows(axes, names, left, label, *, right=1.03):
    """Name rows from the top down, on a horizontal axis from `left` with a line at 0."""
    axes.axvline(0, color="#7F7F7F", linewidth=0.5)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlim=(left, right), ylim=(len(names) - 0.5, -0.5), xlabel=label)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
