"""Words of `importance`: what its numbers say, and the captions of its figures."""

from __future__ import annotations

import numpy as np

from capsviz.statistics.words import number, sentence, sentences, told

PUBLISHED = 11  # levels of the published dictionaries


def caption(result, part="") -> str:
    """What a picture shows, with its numbers."""
    if not hasattr(result, "base"):
        name = result.classes[result.watched]
        return (
            "One image without each group of its child capsules: change of the activation of class "
            f"{name}, {result.activations[result.watched]:.3f} with all. Band: 5 to 95 % of random "
            f"removals of equal norm. {sentences(_groups(result))} One image is an example."
        )
    if part == "dictionaries":
        return (
            "Entropy of the dictionaries of rounded couplings by number of levels, and accuracy "
            f"with the rounded couplings. Bands: 95 % intervals over {result.n:,} images of "
            f"{result.dataset}. {sentences(_dictionary(result))}"
        )
    return (
        "Importance of child capsules: change of the true class's activation without each group, "
        "sorted, and accuracy as groups are removed. Bars and bands: 95 % intervals over images. "
        f"{sentence(_head(result))} {' '.join(sentence(_brief(result, k)) for k in result.kinds)}"
    )


def findings(result) -> str:
    """What the numbers say, in a few lines."""
    return _of_many(result) if hasattr(result, "base") else _of_one(result)


def _of_one(result) -> str:
    name = result.classes[result.watched]
    return (
        f"activation of class {name} {result.activations[result.watched]:.3f}; what it loses "
        f"without one of the\n{_groups(result)}\none image is an example: see --n"
    )


def _groups(result) -> str:
    """A line for each kind: the group that matters most, and how many matter beyond chance."""
    lines = []
    for kind, change in result.change.items():
        worst, (low, high) = int(change.argmin()), result.control[kind]
        beyond = int((change < low).sum())
        lines.append(
            f"{kind}: most without {_name(result, kind, worst)} ({change[worst]:+.3f}); {beyond} "
            f"of {len(change)} lose more than 95 % of random removals of equal norm "
            f"({low:+.3f} to {high:+.3f})"
        )
    return "\n".join(lines)


def _name(result, kind: str, k: int) -> str:
    if kind == "places" and result.grid is not None:
        return f"row {k // result.grid[2]}, column {k % result.grid[2]}"
    return f"{k}"


def _of_many(result) -> str:
    lines = [_head(result), *(_kind(result, kind) for kind in result.kinds)]
    return "\n".join([*lines, _dictionary(result)])


def _head(result) -> str:
    activation, accuracy = result.base
    return (
        f"{result.n:,} images of {result.dataset}: accuracy {accuracy:.1%}, true activation "
        f"{activation:.3f}; children left out, {result.how}; importance ranked on {result.others}"
    )


def _kind(result, kind: str) -> str:
    change, control = result.activation_change[kind], result.control_activation_change[kind]
    areas = [number(float(one), ".1%") for one in result.area_accuracy[kind].value]
    least, most = result.area_accuracy[kind].difference[1:]
    last = result.removed[kind][-1]
    return (
        f"{kind} ({len(change)}): without one, the true activation changes by "
        f"{float(np.median(change.value)):+.3f} in the median, without random ones of equal norm "
        f"by {control:+.3f}; {_first(result, kind)}; mean accuracy until {last} are gone: random "
        f"{areas[0]}, least important first {areas[1]} (less random {least:+.1%}), most important "
        f"first {areas[2]} ({most:+.1%}): {verdict(least, most)}"
    )


def _first(result, kind: str) -> str:
    """What goes with the group that ranks first, beside random ones of its norm."""
    if result.first is None:  # of an earlier version: the largest change, on the images themselves
        change = result.activation_change[kind]
        worst = int(change.value.argmin())
        return f"at worst {change[worst]:+.3f} ({_name(result, kind, worst)})"
    own, control = result.first_activation_change[kind]
    which = _name(result, kind, result.first[kind])
    if own.runs is not None:
        which = "in each run its own"
    apart = told(control.difference, "which lose less", "which lose more", "not told apart")
    return (
        f"without the one that ranks first on the other images ({which}) {own:+.3f}, without "
        f"random ones of its norm {control:+.3f}, {apart}"
    )


def _brief(result, kind: str) -> str:
    """Of `_kind`, what a caption has room for."""
    change, areas = result.activation_change[kind], result.area_accuracy[kind].difference
    return (
        f"{kind} ({len(change)}): {_first(result, kind)}; mean accuracy less that of a random "
        f"order {areas[1]:+.1%} least important first, {areas[2]:+.1%} most important first: "
        f"{verdict(areas[1], areas[2])}"
    )


def verdict(least, most) -> str:
    """Whether the order of removal matters, and rightly."""
    right = (float(least.low) > 0, float(most.high) < 0)
    wrong = (float(least.high) < 0, float(most.low) > 0)
    if any(wrong):
        end = " at one end of the order" if any(right) or not all(wrong) else ""
        return f"importance misleads{end}: worse than a random order"
    if all(right):
        return "importance tells which can go"
    if any(right):
        return "importance tells one end of the order only"
    return "no order is shown to be better than a random one"


def _dictionary(result) -> str:
    k = result.levels.index(PUBLISHED)
    fine = len(result.levels) - 1
    fresh = (
        "" if result.fresh_bits is None else f", freshly initialised {_bits(result.fresh_bits[k])}"
    )
    drop = result.rounded_accuracy[k + 1]
    coarse = ""
    if result.entropy_bits.value[k] > 0.99 * result.bound_bits:
        coarse = (
            "; this is the bound: almost every image has a tree of its own, and the entropy tells "
            "the number of images"
        )
    elif result.keys[k] < 1.5:
        coarse = (
            ": one tree in almost every class, for the levels lie further apart than what the "
            "couplings do"
        )
    return (
        f"dictionaries of couplings at {PUBLISHED} levels: {_bits(result.entropy_bits[k])}, "
        f"{result.keys[k]:.1f} trees a class, of at most {result.bound_bits:.2f} bits"
        f"{fresh}; accuracy with these {drop:.1%}{coarse}\n"
        f"at {result.levels[fine]} levels: {_bits(result.entropy_bits[fine])}, a single child "
        f"{result.child_bits[fine]:.2f} bits; children varied apart "
        f"{_bits(result.apart_bits[fine])}"
    )


def _bits(estimate) -> str:
    low, high = (number(float(end), ".2f") for end in estimate.ci95)
    return f"{float(estimate.value):.2f} bits [{low}, {high}]"
