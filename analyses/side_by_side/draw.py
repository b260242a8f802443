"""Panels of `side_by_side`: one image network by network, and what was counted over many."""

from __future__ import annotations

from functools import partial

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.ticker import MaxNLocator

from capsviz.analysis import Panel
from capsviz.results import maps
from capsviz.results.maps import BLUE, COUPLING, GREY, RED
from capsviz.results.panels import name_rows, points, split

NETWORKS = ("first", "second")


def _couplings(k: int, axes, result):
    """Draw the mean coupling of each capsule type of a network to each class."""
    values, J = result.couplings[result.networks[k]], len(result.classes)
    scale = maps.coupling_scale(values, 1 / J)
    drawn = axes.imshow(values.T, cmap=COUPLING, norm=scale, aspect="auto", interpolation="none")
    title = f"{result.networks[k]}\n{result.effective[k]:.2f} of {J} effective parents"
    axes.set(title=title, xlabel="capsule type", ylabel="class")
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    maps.class_ticks(axes.yaxis, result.classes, step=2)
    maps.coupling_bar(drawn, axes, 1 / J, "coupling")


def _evidence(k: int, axes, result):
    """Draw the evidence for the two classes in a network, by position or by capsule."""
    name = result.networks[k]
    if result.maps[name] is None:
        both = (result.type_evidence[name], result.uniform_type_evidence[name])
        scale = CenteredNorm(0, maps.halfrange(np.stack(both)))
        grid = split(axes, 1, 2, sharey=True)[0]
        drawn = maps.by_capsule(grid, both, scale, "capsule")
        maps.class_ticks(grid[0].yaxis, result.classes, step=2)
    else:
        kinds = {"routed": result.maps[name], "uniform": result.uniform_maps[name]}
        sums = {"routed": result.sums[k], "uniform": result.uniform_sums[k]}
        pairs = [(j, kind) for j in result.shown for kind in kinds]
        scale = CenteredNorm(
            0, maps.halfrange(np.stack([one[result.shown] for one in kinds.values()]))
        )
        grid = split(axes, 1, len(pairs), wspace=0.02)[0]
        for one, (j, kind) in zip(grid, pairs, strict=True):
            place = result.extents_px[name]
            drawn = maps.one_map(one, result.image, place, kinds[kind][j], scale)
            one.set_title(f"for {result.classes[j]},\n{kind}", fontsize=6.5, pad=2)
            one.set_xlabel(f"Σ {sums[kind][j]:.2f}", labelpad=1, fontsize=6)
        grid[0].set_ylabel(name, fontsize=6.5)
    bar = maps.colour_bar(drawn, grid, "evidence", aspect=8)
    bar.locator = MaxNLocator(3, symmetric=True)


def _activations(k: int, axes, result):
    """Draw activations of a network, routed and with uniform couplings."""
    at = np.arange(len(result.classes))
    maps.dumbbells(axes, at, result.activations[k], result.uniform_activations[k])
    axes.set(title="activations", xlabel="class", ylim=(-0.05, 1.05))
    axes.set_yticks([0, 0.5, 1])
    maps.class_ticks(axes.xaxis, result.classes, step=2)


def _accuracy(axes, result):
    """Draw accuracy with routing and with uniform couplings."""
    _rows(axes, result, "accuracy, %")
    points(axes, 100 * result.accuracy, RED, "o", "routed", -0.12)
    points(axes, 100 * result.uniform_accuracy, BLUE, "s", "uniform", 0.12, mfc="white")


def _cost(axes, result):
    """Draw the accuracy that uniform couplings cost."""
    _rows(axes, result, "accuracy lost with\nuniform couplings, points")
    points(axes, 100 * result.cost, RED, "o")
    axes.axvline(0, color=GREY, linewidth=0.6)


def _parents(axes, result):
    """Draw the effective number of parents of a capsule."""
    J = len(result.classes)
    _rows(axes, result, f"effective parents of a capsule\n(dotted: all {J})")
    points(axes, result.effective_parents, RED, "o")
    axes.axvline(J, color=GREY, linestyle=":")
    axes.set_xlim(0.5, J + 0.5)


def _rows(axes, result, label: str):
    axes.set_xlabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    name_rows(axes, [name.replace("-", "-\n", 1) for name in result.networks], fontsize=6.5)


def _tall(result, width: float) -> float:
    return 0.27 * len(result.networks) + 0.65


PANELS = {
    f"{name}-{network}": Panel(partial(draw, k), tall, share, narrow)
    for some in (
        (("couplings", _couplings, 1.6, 0.27, 0.5), ("activations", _activations, 1.6, 0.23, 0.5)),
        (("evidence", _evidence, 1.25, 0.5, 1.0),),
    )
    for k, network in enumerate(NETWORKS)
    for name, draw, tall, share, narrow in some
}
MANY = {
    "accuracy": Panel(_accuracy, _tall, 1 / 3),
    "cost": Panel(_cost, _tall, 1 / 3),
    "parents": Panel(_parents, _tall, 1 / 3),
}
