"""Words of `parse_tree`: what its numbers say, and the captions of its figures."""

from __future__ import annotations

import numpy as np

from capsviz.statistics.words import number, sentences, tied

COMPONENTS = ("parents", "places", "types", "children", "classes", "by child", "images")
FIXED, OF_CLASS, OF_IMAGE = slice(0, 4), slice(4, 6), 6  # among these
TRAINED, UNKNOWN, FRESH = "trained", "this network", "freshly initialised"
MOST = 0.5  # of the variance


def caption(result, part="") -> str:
    """What a picture shows, with its numbers."""
    sentence = findings(result)
    if hasattr(result, "epochs"):
        text = (
            "Child capsules over training: largest activation over all images, gradient in shares "
            "of the largest child's, and where the variance of couplings lies."
        )
    elif not hasattr(result, "shares"):
        text = (
            "Favourite parents of all children, for two images and a fresh network: as a tree "
            "(lines: share of a type's places), and at each place of each type (pale: a weak "
            "preference, in shares of the panel's strongest)."
        )
        sentence = sentence.replace(": see --n", "")
    elif part == "moved":
        text = (
            "Accuracy with couplings frozen, and whether the tree moves with the image: "
            "correlation of trees. Bars: 95 % intervals over "
            f"{result.n:,} images of {result.dataset}."
        )
        sentence = "\n".join([*_frozen(result), *_trees(result)])
    else:
        text = (
            "What decides which parent a child prefers: shares of the variance of couplings, and "
            "children that change their favourite. Bars: 95 % intervals over images."
        )
        sentence = "\n".join([_variance(result), _favourites(result), *result.notes])
    return f"{text} {sentences(sentence)}"


def findings(result) -> str:
    """What the numbers say, in a few lines."""
    if hasattr(result, "epochs"):
        return _of_run(result)
    return _of_many(result) if hasattr(result, "shares") else _of_two(result)


def _of_two(result) -> str:
    names = [result.classes[k] for k in result.read]
    parts = []
    for name, favourite, read in zip(names, result.favourites, result.read, strict=True):
        parts.append(f"{name}: {number(float((favourite == read).mean()), '.0%')}")
    fresh = f"; freshly initialised: {parts[2]}" if len(parts) > 2 else ""
    differ = number(float((result.favourites[0] != result.favourites[1]).mean()), ".0%")
    sd = ", ".join(f"{value:.2g}" for value in result.coupling_sd)
    return (
        f"children whose favourite is the class that is read ({'; '.join(parts[:2])}{fresh}); "
        f"{differ} have another favourite in the other image\n"
        f"standard deviation of the couplings about even ones: {sd}\n"
        "two images are examples: see --n"
    )


def total(estimate, part) -> float:
    """Of shares (7,), those of some components together."""
    return float(np.sum(estimate.value[part]))


def _of_many(result) -> str:
    lines = [_variance(result), _favourites(result), *_frozen(result), *_trees(result)]
    return "\n".join([*lines, *result.notes])


def _frozen(result) -> list[str]:
    if result.accuracy is None:
        return []
    ties = np.zeros(len(result.frozen)) if result.tied is None else result.tied
    own, *rest = (f"{one:.1%}{tied(k)}" for one, k in zip(result.accuracy, ties, strict=True))
    listed = "; ".join(f"{n} {v}" for n, v in zip(result.frozen[1:], rest, strict=True))
    return [
        f"accuracy {own} with its own couplings; frozen in every iteration ({result.others}): "
        f"{listed}"
    ]


def _trees(result) -> list[str]:
    if result.correlation is None:
        return []
    return [_moved(*pair) for pair in zip(result.trees, result.correlation, strict=True)]


def _moved(name: str, estimate) -> str:
    at_new, same, other = estimate
    what = f"correlation with the tree of the image moved by one place, {name}"
    if np.isnan(estimate.value).any():
        return f"{what}: none, nothing is left of any tree"
    low, high = sorted(-same.difference.ci95)
    return (
        f"{what}: {float(at_new.value):.2f} at the place that it moved to, less that at the same "
        f"place {-float(same.difference.value):+.2f} [{low:+.2f}, {high:+.2f}], one place the "
        f"other way {float(other.value):.2f}: {_carried(same)}"
    )


def _carried(same) -> str:
    low, high = same.difference.ci95
    if high < 0:
        return "the tree moves with the image"
    return "the tree stays at its place" if low > 0 else "neither place shows more"


def _variance(result) -> str:
    trained = result.shares[0]
    if np.isnan(trained.value).any():
        return "no child favours any parent: the couplings are even in every image"
    fixed, classes = total(trained, FIXED), total(trained, OF_CLASS)
    chance = total(result.shuffled, OF_CLASS)
    controls = ""
    if len(result.networks) > 1:
        fresh = result.shares[1]
        controls = f"; freshly initialised: {_three(fresh)}"
    p, place, kind, single, alike, *_ = trained.value
    return (
        f"variance of preferences over {result.n:,} images of {result.dataset} (sd about even "
        f"{result.coupling_sd[0]:.2g}): {_three(trained)}; with class labels shuffled the class "
        f"takes {number(chance, '.1%')}{controls}\n"
        f"of what is always the same: parents {_of(p, fixed)}, places {_of(place, fixed)}, types "
        f"{_of(kind, fixed)}, single children {_of(single, fixed)}; of what goes with the class, "
        f"{_of(alike, classes)} is alike in all children; of what changes between images, "
        f"{_of(classes, 1 - fixed)} changes with the class\n"
        f"{verdict(trained, result.shuffled)}"
    )


def _three(estimate) -> str:
    names = ("always the same", "with the class", "between images of a class")
    values = (total(estimate, FIXED), total(estimate, OF_CLASS), total(estimate, OF_IMAGE))
    if np.isnan(values).any():
        return "even couplings"
    return ", ".join(
        f"{name} {number(value, '.1%')}" for name, value in zip(names, values, strict=True)
    )


def _of(part: float, whole: float) -> str:
    return number(part / whole, ".0%") if whole > 1e-9 else "nothing"


def verdict(estimate, shuffled) -> str:
    """What decides most of a child's preferences: by its class beyond what shuffled labels take."""
    low = estimate.low
    if low[FIXED].sum() > MOST:
        return "children mostly prefer the same parents in every image: a static tree"
    if low[OF_CLASS].sum() - np.nan_to_num(shuffled.high[OF_CLASS]).sum() > MOST:
        alike = estimate.value[4] / estimate.value[OF_CLASS].sum()
        how = "alike in all children" if alike > MOST else "child by child"
        return f"children mostly choose by the class of the image, {how}"
    if low[OF_IMAGE] > MOST:
        return "children mostly choose by the image, within its class too"
    return "no one thing decides most of what children prefer"


def _favourites(result) -> str:
    lines = []
    for name, row in zip(result.networks, result.favourites, strict=True):
        values = [number(float(one), ".1%") for one in row.value]
        if np.isnan(row.value).all():
            lines.append(f"{name}: no child favours any parent")
            continue
        lines.append(
            f"{name}: {values[0]} of children differ in their favourite between images of unlike "
            f"class, {values[1]} of the same class; {values[3]} favour the class that is read, "
            f"{values[4]} the class that another image is read as"
        )
    return "\n".join(lines)


def _of_run(result) -> str:
    first, last = result.epochs[0], result.epochs[-1]
    starved = result.starved
    lines = [
        f"{result.run}, {result.n:,} images of {result.dataset}: dead capsules (largest activation "
        f"below {result.dead_norm:g}) {result.dead[0]} of {result.children} in epoch {first}, "
        f"{result.dead[-1]} in epoch {last}, at most {result.dead.max()}",
        f"starved capsules (gradient below {result.starved_share:g} of the largest): "
        f"{int(starved.value[0])} in epoch {first}, {int(starved.value[-1])} "
        f"[{starved.low[-1]:.0f}, {starved.high[-1]:.0f}] in epoch {last}",
        f"variance of preferences in epoch {first}: {_three(result.shares[0])}; in epoch {last}: "
        f"{_three(result.shares[-1])}",
        "a maximum over more images can only revive a capsule",
    ]
    return "\n".join(lines)
