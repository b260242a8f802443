"""Findings on couplings: what they carry, what iterations change, what their maps show."""

from collections.abc import Sequence

import numpy as np

from benchmarks.findings import trained
from benchmarks.findings.by_iterations import ALIKE, PAPER, trend_of_iterations
from benchmarks.findings.finding import (
    LONG,
    STEM,
    Finding,
    of_figure,
    over_runs,
    percent,
    picture,
    seeds,
    singles,
    slim,
    statistics,
    value,
)
from benchmarks.shipped import shipped
from capsviz import checkpoint, discovery
from capsviz.analyses.faithfulness import CONTROLS
from capsviz.analyses.transplant.words import (
    LIKE,
    NOISE,
    SHUFFLED,
    UNLIKE,
    UNLIKE_SHUFFLED,
    by_class,
)
from capsviz.tracing.construction import BY_CONSTRUCTION

EVEN = 0.01  # standard deviation of couplings about 1/10 that look even


def may_fail(routing: str | None) -> bool:
    """Whether a routing is not bound to follow another image's couplings."""
    return "transplant" not in BY_CONSTRUCTION.get(routing or "", ())


def transplant() -> Finding:
    """Another image's couplings bring its class."""
    one = of_figure("transplant-mnist-*-images.json")
    result = one.result
    spared, kinds = [], []

    def partner(of):
        if of.coupling_sd.value[0] == 0 or of.iterations is not None:
            return None
        share = of.as_partner[UNLIKE]
        if float(of.coupling_sd.value[0]) > EVEN:
            kinds.append("destroyed" if of.as_own[NOISE].high < 0.5 else "kept")
        elif share.low > 0.5:
            kinds.append("repeated")
        else:
            kinds.append("spared")
            spared.append(share)
        return share, ".1%", True

    words, files, _ = over_runs("transplant", "Statistics", partner, may_fail)
    longer, on_stem = _trained_longer()
    trend, of_trend = trend_of_iterations()
    told = (PAPER, *ALIKE) if trend else ()
    by_kind = {
        kind: [word for word, its in zip(words, kinds, strict=True) if its == kind]
        for kind in ("repeated", "spared", "destroyed", "kept")
    }
    sharper = by_kind["destroyed"]
    apart = [of for of in singles("transplant", "Statistics") if by_class(of.result)]
    apart = [of for of in apart if may_fail(of.about["provenance"].get("routing"))]
    least = min((of.result.as_partner[UNLIKE_SHUFFLED].value for of in apart), default=np.nan)
    words = [
        *_without(told, by_kind["repeated"]),
        *_without(told, by_kind["spared"]),
        f"of sharper couplings {'; '.join(sharper)}",
        f"in {len(apart)} networks of one run the other's shuffled do as well, "
        f"{percent(least)} or more",
        *on_stem,
    ]
    files += longer
    words += by_kind["kept"]
    elsewhere = ""
    if (photographs := shipped("transplant-cifar10-resnet-*-images.json")) is not None:
        share = photographs.result.as_partner[UNLIKE]
        elsewhere = f" Not in `cifar10-resnet`: {share:.1%}."
        spared, files = [*spared, share], [*files, photographs.source]
    holds = result.coupling_sd[0].value < EVEN and all(share.high < 0.5 for share in spared)
    return Finding(
        "Couplings that look even can carry the class",
        holds
        and bool(sharper)
        and result.as_partner[UNLIKE].low > 0.5
        and result.as_own[SHUFFLED].low > 0.5
        and result.as_partner[UNLIKE_SHUFFLED].high < 0.5,
        f"Couplings have a standard deviation of {value(result.coupling_sd[0], '.4f')} about 1/10. "
        "Yet an image with another class's couplings is read as "
        f"that class in {result.as_partner[UNLIKE]:.1%} of {result.n:,} pairs. "
        f"{trend}{elsewhere}".lstrip(),
        picture(one),
        "Readings by couplings",
        f"read as their own class with a like image's {result.as_own[LIKE]:.1%}, "
        f"with their own shuffled {result.as_own[SHUFFLED]:.1%}, with equal noise "
        f"{result.as_own[NOISE]:.1%}; as the other's with its shuffled "
        f"{result.as_partner[UNLIKE_SHUFFLED]:.1%}",
        seeds(words),
        "the other's couplings, shuffled, that move as many images",
        [one.source, *files, *of_trend, *(of.source for of in apart)],
    )


def _trained_longer() -> tuple[list[str], list[str]]:
    """Files, and in words how many follow the other's couplings after more epochs on one stem."""

    def share(of):
        return of.as_partner[UNLIKE], ".1%", True

    briefly, first = slim("transplant", ["dynamic"], share, "Statistics")
    fully, second = slim("transplant", ["dynamic" + LONG], share, "Statistics")
    if not second:
        return [], []
    fully = fully.removeprefix("dynamic ")
    return [*first, *second], [f"{STEM} {briefly.rpartition(', ')[0]}, after ten epochs {fully}"]


def iterations() -> Finding:
    """Three iterations read what one reads."""
    one = of_figure("routing-mnist-*-images.json")
    result = one.result
    even, last = result.controls.index("uniform"), len(result.entropy_nats) - 1
    activation = result.true_activation

    def changed(of):
        rounds = len(of.entropy_nats)
        return (of.changed[rounds - 1], ".2%", True) if rounds > 1 else None

    words, files, _ = over_runs("routing", "Statistics", changed, "dynamic".__eq__)
    words = _without((*ALIKE, "cifar10`"), words)  # of which `_elsewhere` tells
    apart, more = _elsewhere(changed)
    longer, pairs = trained.words()
    return Finding(
        "Trained networks read the same digits in one iteration as in three",
        bool(result.changed[last].high < 0.01 and activation[last].low > activation[0].high),
        f"Two more iterations change {result.changed[last]:.2%} of {result.n:,} predictions. They "
        f"lengthen the winning capsule: the true one from {value(activation[0], '.2f')} to "
        f"{value(activation[last], '.2f')}.{apart}",
        picture(one),
        "Accuracy and activation by iteration",
        f"with even couplings {result.control_accuracy[even]:.1%} are read right, by routing "
        f"{result.accuracy[last]:.1%}{f'; {longer}' if longer else ''}",
        seeds(words),
        "a data set on which more iterations mend predictions",
        [one.source, *files, *more, *pairs],
    )


def _without(names: Sequence[str], words: list[str]) -> list[str]:
    """Those of recipes that are told of elsewhere left out."""
    return [word for word in words if not any(name in word for name in names)]


def _elsewhere(changed) -> tuple[str, list[str]]:
    """Where iterations change more: by dynamic routing on photographs, and by EM."""
    known = {of.network: of for of in singles("routing", "Statistics")}
    words, files = "", []
    folder = discovery.folder(checkpoint.SHIPPED) / "seeds" / "cifar10"
    for path, result, runs in statistics(folder, "routing", "Statistics"):
        less = 100 * result.accuracy.difference[len(result.entropy_nats) - 1]
        words = f" In `cifar10` ({runs}) they change {changed(result)[0]:.1%}, accuracy by "
        words += f"{less:+.1f} points."
        files.append(path)
    if of := known.get("digits-em"):
        gain = of.result.accuracy.difference[len(of.result.entropy_nats) - 1]
        words += f" EM mends some: `{of.network}` {100 * gain:+.1f} points."
        files.append(of.source)
    return words, files


def maps() -> Finding:
    """A routing map is no more faithful than what knows no class."""
    one = of_figure("faithfulness-mnist-*-images.json")
    result, (brightness, norm) = one.result, CONTROLS
    routed, even, bright, lengths, random = map(
        result.names.index,
        ("routing map", "routing map, uniform", brightness, norm, "random order"),
    )

    def less(of):
        if of.routed_less is None:  # capsules at one place: there is no map
            return None
        difference = of.routed_less[of.names.index(brightness)]
        return difference, "+.3f", difference.low <= 0 or abs(difference.value) < 0.05

    words, files, _ = over_runs("faithfulness", "Statistics", less)
    return Finding(
        "By deletion and insertion, a routing heat map is no more faithful than the ink",
        result.routed_less[bright].low <= 0,
        "Pixels are removed, or alone shown, in a map's order; the area between both curves is "
        f"{result.gap[routed]:.3f} for the routing map, on {result.n} images. The ink itself "
        f"has {result.gap[bright]:.3f}. By "
        f"infidelity (less is better) the map has {result.infidelity[routed]:.3f}, the ink "
        f"{result.infidelity[bright]:.3f}.",
        picture(one),
        "Deletion and insertion by map",
        f"lengths of primary capsules {result.gap[lengths]:.3f}, infidelity "
        f"{result.infidelity[lengths]:.3f}; even couplings "
        f"{result.gap[even]:.3f} and {result.infidelity[even]:.3f}; random order "
        f"{result.gap[random]:.3f}",
        seeds(["routing map less ink, " + "; ".join(words)]) if words else seeds([]),
        "a map ahead of the ink in scenes, where objects are small",
        [one.source, *files],
    )
