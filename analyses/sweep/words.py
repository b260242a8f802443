"""Words of `sweep`: what its numbers say, and the caption of its figure."""

from __future__ import annotations

from capsviz.statistics.comparison import holm

LEVEL = 0.05  # of the tests that are counted


def findings(result) -> str:
    """What the numbers say of each network, a line each."""
    first, last = (f"{size:g}{result.unit}" for size in result.sizes[[0, -1]])
    head = f"mean accuracy on {result.n} {result.dataset} images over {result.warp} from "
    head += f"{first} to {last}, with 95 % intervals"
    return "\n".join([head, *(_network(result, k) for k in range(len(result.names)))])


def caption(result) -> str:
    """What the figure shows, with its numbers."""
    kinds = ", ".join(f"{s} of {n}" for n, s in zip(result.names, result.scores, strict=True))
    text = f"Accuracy, scores and calibration under {result.warp}, the same {result.n} images for "
    text += f"all networks. Score: {kinds}. Bands and bars: 95 % intervals, size by size, of "
    text += "accuracies Wilson's and Agresti and Min's, else by paired bootstrap"
    if len(result.names) > 1:
        text += "; ringed: sizes where a network differs from the first (McNemar's test, corrected "
        text += "for the number of sizes by Holm's method)"
    if result.worst is not None:
        turned = "rotations by up to 30° with " if result.grid > 1 else ""
        text += f"; of the worst of {9 * result.grid} warps ({turned}shifts by up to 3 px) "
        text += "by Wilson's method"
    head, *networks = findings(result).split("\n")
    return f"{text}. {head[0].upper()}{head[1:]}: {'; '.join(networks)}."


def _network(result, k: int) -> str:
    text = f"{result.names[k]} {result.area[k]:.1%}"
    if result.worst is not None:
        text += f", {result.worst[k]:.1%} "
        text += "in the worst case of the grid"
    if k == 0:
        return text
    text += f"; against {result.names[0]} {_points(result.area[k])}"
    if result.worst is not None:
        text += f", in the worst case {_points(result.worst[k])}"
    differing, count = int(unequal(result, k).sum()), len(result.sizes)
    return f"{text}, unequal at {differing} of {count} sizes (McNemar, p < {LEVEL:g} by Holm)"


def unequal(result, k: int):
    """(A,) whether a network differs from the first, by a test that allows for the A sizes."""
    return holm(result.mcnemar_p[k]) < LEVEL


def _points(estimate) -> str:
    """A difference to the first network, with its interval, in points of per cent."""
    return f"{100 * estimate.difference:+.1f} points"
