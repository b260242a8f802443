"""Words of `transplant` for single parts and single iterations."""

from __future__ import annotations

import numpy as np

from capsviz.statistics.words import number, sentences, told

GIVEN = "the couplings decide the class by construction, whatever was learned"
SAME = 1e-4  # of activations: exchanged as a whole, they are the other image's
WHAT = {
    "couplings": "their couplings are another image's, their votes kept",
    "children": "they are another image's, and routing runs by itself",
    "poses": "the directions of their poses are another image's, their lengths kept",
}


def caption(result) -> str:
    """What the figure shows, with its numbers."""
    if hasattr(result, "donors"):
        text = (
            "Couplings in single iterations: what images are read as when the couplings of one "
            "iteration, or of all from it on, are those that another image, or the image itself, "
            "has in its last, and the other iterations route. Bars"
        )
    else:
        text = (
            "One part after the other: capsules of which "
            f"{WHAT[result.of]}. Maps and points: the change of two activations; dashed, with its "
            "band: as many capsules drawn at random, also below the maps. Right: what is read when "
            "more of them are, drawn at random. Bars and bands"
        )
    return (
        f"{text}: 95 % intervals, of shares Wilson's of the effective number of pairs, of "
        f"activations by bootstrap of couples of images. {sentences(findings(result))}"
    )


def findings(result) -> str:
    """What the numbers say, in a few lines."""
    lines = _of_rounds(result) if hasattr(result, "donors") else _of_parts(result)
    return "\n".join(lines + ([] if result.given is None else [f"{GIVEN}: {result.given}"]))


def _of_parts(result) -> list[str]:
    some = result.some_partner
    whole = next(iter(some.values()))[-1]
    half = {kind: int(np.abs(shares - 0.5).argmin()) for kind, shares in result.shares.items()}
    halves = ", ".join(f"{kind} {one[half[kind]]:.1%}" for kind, one in some.items())
    sure = " (by construction: a check of the instrument)" if result.off < SAME else ""
    where = "" if result.layer is None else f" of layer {result.layer}"
    return [
        f"of {result.n:,} pairs of {result.dataset} images, with all {result.of}{where} of an "
        f"image of another class, {whole:.1%} are read as that image's class{sure}; with half of "
        f"them, drawn by {halves}",
        *(_kind(result, kind) for kind in result.kinds),
    ]


def _kind(result, kind: str) -> str:
    partner, own = result.partner_change[kind], result.own_change[kind]
    control, first = result.first_change[kind]
    which = "in each run its own" if first.runs is not None else _name(result, kind)
    apart = told(first.difference, "more", "less", "not told apart")
    largest = float(result.partner[kind].value[1:].max())
    return (
        f"{kind} ({len(partner) - 1}, of {result.sizes[kind]} each): one changes the unlike "
        f"class's activation by {np.median(partner.value[1:]):+.4f} in the median, as many at "
        f"random by {partner[0]:+.4f}, the own class's by {np.median(own.value[1:]):+.4f} and "
        f"{own[0]:+.4f}; "
        f"at most {number(largest, '.1%')} are read as the unlike class, at random "
        f"{result.partner[kind][0]:.1%}; the one that moves it most in one half of the couples "
        f"({which}) moves it by {first:+.4f} in the other, at random {control:+.4f}: {apart}"
    )


def _name(result, kind: str) -> str:
    k = result.first[kind]
    if kind == "places":
        return f"row {k // result.grid[2]}, column {k % result.grid[2]}"
    return f"{k}"


def _of_rounds(result) -> list[str]:
    own, like, unlike = range(3)
    count = result.own["alone"].value.shape[1]
    lines = []
    for mode, words in (("alone", "alone"), ("onward", "and all after it")):
        shares = ", ".join(f"{r + 1}: {result.partner[mode][unlike, r]:.1%}" for r in range(count))
        lines.append(f"in iteration r {words}: {shares}")
    controls = "; ".join(
        f"{result.donors[k]} {number(float(result.own['alone'].value[k].min()), '.1%')}"
        for k in (own, like)
    )
    return [
        f"of {result.n:,} pairs of {result.dataset} images, read as the unlike image's class with "
        f"its couplings {'; '.join(lines)}",
        verdict(result),
        f"controls, couplings in one iteration, read as their own class at least: {controls}",
    ]


def verdict(result) -> str:
    """Whether the iterations that follow undo what was put in."""
    whole, alone = result.partner["onward"][2, 0], result.partner["alone"][2, :-1]
    if float(whole.low) <= 0.5:
        return "in all iterations, too, they are not shown to decide the class of most pairs"
    if float(alone.high.max()) < float(whole.low):
        return "the iterations that follow undo it: fewer than with these couplings in all of them"
    if float(alone.low.min()) > 0.5:
        return "the iterations that follow do not undo it: most are read so even after the first"
    return "how much the iterations that follow undo depends on the iteration, or is not told"
