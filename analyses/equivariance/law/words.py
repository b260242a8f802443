"""Words of the law of a warp: its rows, what its numbers say, its table and its caption."""

from __future__ import annotations

import numpy as np

from capsviz.statistics.words import in_a_row, number

LAWS = (
    "own map, whole warp",
    "half a warp, twice",
    "extrapolated from half",
    "one matrix, own offsets",
    "one map for all classes",
    "one shift",
)
OWN, TWICE, EXTRAPOLATED, ONE_MATRIX, ONE_MAP, SHIFT = range(len(LAWS))
BASELINES = (OWN, SHIFT)  # that a law is compared with, none themselves
ALONE = (
    "all images of a class change alike: one shift is the whole law, and R2 of the change is none"
)
LESS = "less than the own map: "


def findings(result) -> str:
    """R2 by law, a line for each, of every kind of vector; what the laws lose, and its control."""
    others = ", ".join(result.sources[1:])
    lines = [
        f"{result.n:,} {result.dataset} images, R2 of the vector under the whole warp by maps "
        f"fitted on {result.fit_count} {result.fit_of} of each class, and of its change, with 95 % "
        f"intervals; in round brackets {others}{_means(result)}:"
    ]
    for f, name in enumerate(result.warps):
        lines.append(f"{name}, {reach(result, f)}:")
        for law, words in enumerate(result.laws):
            parts = []
            for field in ("explained", "change"):
                first, *rest = getattr(result, field)[:, f, law]
                values = ", ".join(number(float(one.value), ".2f") for one in rest)
                parts.append(f"{first:.2f}{f' ({values})' if values else ''}")
            lines.append(f"  {words}: {parts[0]}; change {parts[1]}")
        lines.append(verdict(result, f))
    lines.append(f"cost: {result.looks:,} images looked at in {result.seconds:,.0f} s")
    return "\n".join([*lines, *result.notes])


def _means(result) -> str:
    if result.seeds < 2:
        return ""
    return f", freshly initialised: means of {result.seeds} networks, which intervals are over, too"


def reach(result, f: int) -> str:
    """The sizes of the halves and of the whole."""
    low, half_low, half, high = (f"{size:.3g}" for size in result.sizes[f])
    unit = result.units[f]
    return f"halves {half_low} and {half}{unit}, whole {low} and {high}{unit}"


def verdict(result, f: int) -> str:
    """What each law explains less than the own map, and whether a fresh network does as well."""
    parts = []
    for law, words in enumerate(result.laws):
        if law in BASELINES:
            continue
        less = result.to_own[0, f, law] * -1
        ends = sorted(less.ci95)
        parts.append(f"{words} {float(less.value):.2f} [{ends[0]:.2f}, {ends[1]:.2f}]")
    text = f"{LESS}{', '.join(parts)}"
    if np.isnan(result.change.value[0, f]).any():
        return f"{text}; {ALONE}"
    if not fresh_kinds(result):
        return text
    told = {
        "above": [words for law, words in enumerate(result.laws) if _above(result, f, law)],
        "below": [words for law, words in enumerate(result.laws) if _below(result, f, law)],
    }
    parts = [
        f"{where} freshly initialised networks: {in_a_row(w)}" for where, w in told.items() if w
    ]
    if not told["above"]:
        parts.insert(0, "no law is clearly above that of freshly initialised networks")
    return "; ".join([text, *parts])


def _above(result, f: int, law: int) -> bool:
    """Whether a law explains something of the vector and of its change, and more of both than in
    fresh networks of every preset.
    """
    own = result.explained[0, f, law], result.change[0, f, law]
    return (
        law not in BASELINES
        and all(one.low > 0 for one in own)
        and all(
            result.explained.difference.high[s, f, law] < 0
            and result.change.difference.high[s, f, law] < 0
            for s in fresh_kinds(result)
        )
    )


def _below(result, f: int, law: int) -> bool:
    """Whether every fresh network has more of the law, in the vector and in its change."""
    return law not in BASELINES and all(
        result.explained.difference.low[s, f, law] > 0
        and result.change.difference.low[s, f, law] > 0
        for s in fresh_kinds(result)
    )


def fresh_kinds(result) -> list[int]:
    """The kinds of vectors of the first network, freshly initialised."""
    start = f"{result.sources[0]} freshly"
    return [s for s, name in enumerate(result.sources) if name.startswith(start)]


def table(result):
    """Header, rows and caption: R2 of every kind of vector, by warp and law."""
    rows = [
        [name, words, what, *(f"{one:.2f}" for one in getattr(result, field)[:, f, law])]
        for f, name in enumerate(result.warps)
        for law, words in enumerate(result.laws)
        for what, field in (("vector", "explained"), ("change", "change"))
    ]
    return ["Warp", "Predicted by", "R² of", *result.sources], rows, caption(result)


def caption(result) -> str:
    """What the figure shows; the numbers of every law are the table's."""
    F = range(len(result.warps))
    warps = "; ".join(f"{result.warps[f]}, {reach(result, f)}" for f in F)
    verdicts = "; ".join(f"{result.warps[f]}, {verdict(result, f).removeprefix(LESS)}" for f in F)
    return (
        "Whether the maps of a warp are a law: share of the variance, within its class, of the "
        "warped image's vector (left) and of its change (right) that is explained by a map fitted "
        "for that class and warp; by that of half the warp, used twice; by odd and even part of "
        "the change under half the warp, extrapolated; by one matrix for all classes with the "
        "offsets of each, by one map for all classes with one offset; by the same shift for all "
        f"images of a class. {result.n:,} {result.dataset} images, maps fitted on "
        f"{result.fit_count} {result.fit_of} of each class, those of all classes on all of them; "
        f"vectors whole{_means(result)}; {warps}. "
        "Bars: 95 % intervals, paired bootstrap over images, an arrow where one leaves the axis. "
        f"Less R² than the own map: {verdicts}."
    )
