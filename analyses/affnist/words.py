"""Words of `affnist`: what its numbers say, and the captions of its figures."""

from __future__ import annotations

import numpy as np

from capsviz.statistics.words import number, sentence

PAPER_WEIGHT = 0.0005  # of the reconstruction, Sabour, Frosst & Hinton 2017, section 4.1


def findings(result) -> str:
    """What the numbers say, some lines for each state."""
    if hasattr(result, "images"):
        return f"{result.images.shape[1] - 1} variants of {len(result.images)} digits"
    return "\n".join(_lines(result, losses=True))


def caption(result, part="") -> str:
    """What a picture shows, with its numbers."""
    if hasattr(result, "images"):
        return (
            "Left: one MNIST digit of each class, padded to 40×40. Right of it: variants of "
            "affnist_like, drawn by affNIST's description."
        )
    if part == "factors":
        return (
            f"Accuracy of {result.n:,} images of affnist_like against each factor, bars: 95 % "
            f"intervals over {_sources(result)}. Angle, shear and scale are shown within the "
            "trained places, which end at the dotted line, on a scale of their own."
        )
    text = "Accuracy on affine digits after training on shifted ones alone, bars: 95 % intervals "
    text += f"over {_sources(result)}; open: on shifted test digits."
    if result.within is not None:
        text += (
            " Circles: images within the trained places, triangles: beyond. Lost to each factor: "
            "Shapley values of a logistic fit of right answers."
        )
    lines = "; ".join(_lines(result, losses=False))
    return f"{text} {_recipe(result)}{sentence(lines)}"


def table_caption(result) -> str:
    """What the columns of the table are."""
    text = f"Accuracy on {result.n:,} images of affnist_like after training on shifted digits alone"
    if "matched" in result.states:
        text += f"; matched weights: the first at {100 * result.target:g} % held-out accuracy"
    text += ". Gap: points from CapsNet, paired, over the seeds that both have."
    if result.within is not None:
        text += (
            " Within, beyond: images moved by at most the 6 px of training along both axes, and "
            "the others. Lost: points that each factor takes, Shapley values of a logistic fit of "
            "right answers."
        )
    return f"{text} {_recipe(result)}Intervals: 95 %, over {_sources(result)}."


def _sources(result) -> str:
    """What the intervals are over."""
    counts = {len(seeds) for seeds in result.seeds}
    if max(counts) == 1:
        return "digits, not over seeds"
    return "digits and seeds" if min(counts) > 1 else "digits and, where there are several, seeds"


def _lines(result, losses: bool) -> list[str]:
    lines = []
    for state in dict.fromkeys(result.states):
        rows = [i for i, own in enumerate(result.states) if own == state]
        head = f"accuracy of {result.n:,} affnist_like images, {state}"
        if state == "matched":
            head += f" at {100 * result.target:g} % held-out accuracy"
        lines.append(f"{head}: {', '.join(_accuracy(result, i) for i in rows)}")
        if result.within is not None:
            lines += [_places(result, rows), *apart(result, rows)]
            lines += _lost(result, rows) if losses else []
    return lines


def _accuracy(result, i: int) -> str:
    seeds = len(result.seeds[i])
    return f"{result.networks[i]} {result.affine[i]:.1%} ({seeds} seed{'s' * (seeds > 1)})"


def _places(result, rows) -> str:
    """Accuracy within the trained places and beyond, of each network."""
    share = number(result.share_beyond, ".0%")
    parts = [
        ", ".join(f"{result.networks[i]} {estimate[i]:.1%}" for i in rows)
        for estimate in (result.within, result.beyond)
    ]
    return (
        f"{share} of the images lie beyond the trained places; within them {parts[0]}; "
        f"beyond them {parts[1]}"
    )


def apart(result, rows) -> list[str]:
    """How far the networks are from CapsNet within and beyond, and which factor does most of it."""
    ranges, compared = [], [i for i in rows if np.isfinite(result.affine.difference.value[i])]
    if not compared:
        return []
    for estimate in (result.within, result.beyond):
        gaps = 100 * estimate.difference.value[compared]
        low, high = (f"{end:+.1f}" for end in (np.nanmin(gaps), np.nanmax(gaps)))
        ranges.append(low if low == high else f"{low} to {high}")
    text = f"points from capsnet: {ranges[0]} within, {ranges[1]} beyond"
    if result.lost is None:
        return [text]
    gaps, less = result.affine.difference, result.lost.difference
    unequal = [i for i in compared if gaps.low[i] > 0 or gaps.high[i] < 0]
    if unequal:
        place = all(_is_place(gaps.value[i], less[i]) for i in unequal)
        if place:
            text += "; what sets those of unequal accuracy apart is place"
        parts = [
            f"{-100 * less.value[i, 0]:+.1f} of {100 * gaps.value[i]:+.1f} ({result.networks[i]})"
            for i in unequal
        ]
        text += f"{': ' if place else '; '}shift makes {', '.join(parts)} points of the gap"
    return [text]


def _is_place(gap: float, less) -> bool:
    """Whether shift makes more than half of a gap, clearly, and more than any other factor.

    Parameters
    ----------
    gap   difference in accuracy.
    less  Estimate (F,), differences in what each factor takes, shift first.
    """
    shift = less[0]
    return bool(
        (shift.high < 0 if gap > 0 else shift.low > 0)
        and -shift.value / gap > 0.5
        and int(abs(less.value).argmax()) == 0
    )


def _lost(result, rows) -> list[str]:
    """What each factor takes from the accuracy of each network."""
    if result.lost is None:
        return []
    names = [factor.split(",")[0].removeprefix("largest ") for factor in result.factors]
    parts = []
    for i in rows:
        lost, share = 100 * result.lost[i], result.lost_share[i]
        costs = [
            f"{name} {lost[k]:.1f} ({number(float(share.value[k]), '.0%')})"
            for k, name in enumerate(names)
        ]
        parts.append(f"{result.networks[i]} {', '.join(costs)}")
    return [f"points lost to each factor (and share of all that is lost): {'; '.join(parts)}"]


def _recipe(result) -> str:
    """That the CapsNets weigh their reconstruction otherwise than the paper's."""
    weights = sorted({w for w in result.reconstruction_weight or () if w is not None})
    if not weights or weights == [PAPER_WEIGHT]:
        return ""
    several = " and ".join(f"{weight:g}" for weight in weights)
    return f"CapsNets weigh their reconstruction by {several} (the paper's: {PAPER_WEIGHT}). "
