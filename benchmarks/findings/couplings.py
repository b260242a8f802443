"""Findings on routing: what couplings carry, what iterations change, how a child chooses."""

import numpy as np

from benchmarks.claims.claim import shipped
from benchmarks.findings.finding import (
    STEM,
    Finding,
    of_figure,
    over_runs,
    picture,
    seeds,
    slim,
    value,
)
from capsviz.analyses.faithfulness.words import CONTROLS
from capsviz.analyses.parse_tree.measure import MOVED
from capsviz.analyses.parse_tree.words import OF_CLASS
from capsviz.analyses.transplant.words import LIKE, NOISE, SHUFFLED, UNLIKE
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import student_interval
from capsviz.tracing.construction import BY_CONSTRUCTION

EVEN = 0.01  # standard deviation of couplings about 1/10 that look even
TREE = "one tree: each class's column"  # the same for all images
READING = "where they are the reading, and fail if fixed, "  # self-routing


def may_fail(routing: str | None) -> bool:
    """Whether a routing is not bound to follow another image's couplings."""
    return "transplant" not in BY_CONSTRUCTION.get(routing or "", ())


def transplant() -> Finding:
    """Another image's couplings bring its class."""
    one = of_figure("transplant-mnist-*-images.json")
    result = one.result
    spared, kinds = [], []

    def partner(of):
        if of.coupling_sd.value[0] == 0:
            return None
        share = of.as_partner[UNLIKE]
        if float(of.coupling_sd.value[0]) <= EVEN:
            kinds.append("even")
            spared.append(share)
        else:
            kinds.append("destroyed" if of.as_own[NOISE].high < 0.5 else "kept")
        return share, ".1%", True

    words, files, _ = over_runs("transplant", "Statistics", partner, may_fail)
    by_kind = {
        kind: [word for word, its in zip(words, kinds, strict=True) if its == kind]
        for kind in ("even", "destroyed", "kept")
    }
    sharper = by_kind["destroyed"]
    words = [
        *by_kind["even"],
        f"of sharper couplings, which noise destroys too, {'; '.join(sharper)}",
    ]
    words += [f"which it spares, {'; '.join(by_kind['kept'])}"] if by_kind["kept"] else []
    elsewhere = ""
    if (photographs := shipped("transplant-cifar10-resnet-*-images.json")) is not None:
        share = photographs.result.as_partner[UNLIKE]
        elsewhere = f" Not so in `cifar10-resnet`, on CIFAR-10: {share:.1%}."
        spared, files = [*spared, share], [*files, photographs.source]
    holds = result.coupling_sd[0].value < EVEN and all(share.high < 0.5 for share in spared)
    return Finding(
        "Couplings that look even can carry the class",
        holds
        and bool(sharper)
        and result.as_partner[UNLIKE].low > 0.5
        and result.as_own[SHUFFLED].low > 0.5,
        f"Couplings have a standard deviation of {value(result.coupling_sd[0], '.4f')} about 1/10. "
        "Yet an image with its own votes and the couplings of an image of another class is read as "
        f"that class in {result.as_partner[UNLIKE]:.1%} of {result.n:,} pairs. "
        f"{elsewhere.lstrip()}",
        picture(one),
        "Readings with the couplings of others",
        f"read as their own class with couplings of the same class {result.as_own[LIKE]:.1%}, "
        f"with their own shuffled {result.as_own[SHUFFLED]:.1%}, with equal noise "
        f"{result.as_own[NOISE]:.1%}",
        seeds(words),
        "shuffled couplings that move as many images",
        [one.source, *files],
    )


def iterations() -> Finding:
    """Three iterations read what one reads."""
    one = of_figure("routing-mnist-*-images.json")
    result = one.result
    even, last = result.controls.index("uniform"), len(result.entropy_nats) - 1
    activation = result.true_activation

    def changed(of):
        rounds = len(of.entropy_nats)
        return (of.changed[rounds - 1], ".1%", True) if rounds > 1 else None

    words, files, _ = over_runs("routing", "Statistics", changed, "dynamic".__eq__)
    on_stem, others = slim("routing", ("dynamic",), changed, "Statistics")
    words += [f"{STEM} {on_stem}"] if on_stem else []
    deciding, more = slim("routing", ("variational",), changed, "Statistics")
    apart = f" In others they change more: {STEM} {deciding}." if more else ""
    return Finding(
        "Three iterations of dynamic routing read the same digits as one",
        bool(result.changed[last].high < 0.01 and activation[last].low > activation[0].high),
        f"Two more iterations change {result.changed[last]:.2%} of {result.n:,} predictions. They "
        f"lengthen the winning capsule: the true class goes from {value(activation[0], '.2f')} to "
        f"{value(activation[last], '.2f')}.{apart}",
        picture(one),
        "Accuracy and activation by iteration",
        f"with even couplings {result.control_accuracy[even]:.1%} are read right, by routing "
        f"{result.accuracy[last]:.1%}",
        seeds(words),
        "a data set on which more iterations mend predictions",
        [one.source, *files, *others, *more],
    )


def by_class() -> Finding:
    """A child's preference goes with the class."""
    one = of_figure("parse-tree-mnist-*-images.json")
    result = one.result
    fresh = result.networks.index("freshly initialised")
    share = result.shares

    kinds, against = [], []

    def of_class(of):
        trained = with_class(of.shares[0])
        if np.isnan(trained.value):
            return None
        against.append(trained.high < 0.5)
        if trained.low <= max(0.5, with_class(of.shuffled).high):
            kinds.append("not shown: ")
        else:
            kinds.append("" if one_tree_serves(of) else READING)
        return trained, ".1%", True

    words, files, _ = over_runs("parse-tree", "Statistics", of_class)
    said = sorted(zip(kinds, words, strict=True), key=lambda pair: (pair[0] != "", pair))
    words = [f"{kind}{word}" for kind, word in said]
    return Finding(
        "In most networks a child chooses its parent more by the class than by the image",
        not any(against)
        and kinds.count("") > len(kinds) / 2
        and one_tree_serves(result)
        and with_class(share[0]).low
        > max(0.5, with_class(share[fresh]).high, with_class(result.shuffled).high),
        f"Of the variance of what children prefer, {with_class(share[0]):.1%} goes with the class. "
        "Couplings fixed for all images, for each class its mean, read "
        f"{reads(result, TREE):.1%} of {result.n:,} images right, {_points(result, TREE)} points "
        f"from its own, even ones {reads(result, 'even'):.1%}.",
        picture(one),
        "Variance of couplings",
        f"labels shuffled {with_class(result.shuffled):.1%}, freshly initialised "
        f"{with_class(share[fresh]):.1%}; the mean couplings of another class read "
        f"{reads(result, 'mean of another class'):.1%}",
        seeds(words),
        "couplings by agreement that are fixed so and read 5 points less than a network's own",
        [one.source, *files],
    )


def stays() -> Finding:
    """The tree does not move with the image."""
    one = of_figure("parse-tree-mnist-*-images.json")
    correlation = one.result.correlation[one.result.trees.index("whole tree")]
    moved, same, other = range(len(MOVED))

    def apart(of):
        if of.correlation is None:  # capsules at one place: there is nowhere to move
            return None
        each = of.correlation[of.trees.index("whole tree")].difference[same]
        return each, "+.2f", each.low > 0

    words, files, holds = over_runs("parse-tree", "Statistics", apart)
    return Finding(
        "The parse tree stays where it is when the digit moves",
        holds and correlation.difference[same].low > 0,
        "When a digit moves by one place of the grid, couplings at the places that it moved to "
        f"correlate with those before by {correlation[moved]:.2f}, at the same places by "
        f"{correlation[same]:.2f}. They belong to places, as the transforms do.",
        f"{picture(one)}-moved",
        "Trees of moved images",
        f"the other way {correlation[other]:.2f}; less the usual tree of the class "
        f"{one.result.correlation[1][moved]:.2f} and {one.result.correlation[1][same]:.2f}",
        seeds([f"same less moved, {'; '.join(words)}"] if words else []),
        "a network with one transform for all places whose couplings do not travel either",
        [one.source, *files],
    )


def maps() -> Finding:
    """A routing map is no more faithful than what knows no class."""
    one = of_figure("faithfulness-mnist-*-images.json")
    result, (brightness, norm) = one.result, CONTROLS
    routed, even, ink, lengths, random = map(
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
        result.routed_less[ink].low <= 0,
        "Pixels are removed, or alone shown, in a map's order; the area between the two curves is "
        f"{result.gap[routed]:.3f} for the routing map, on {result.n} images. The ink itself, "
        f"which knows of no class, has {result.gap[ink]:.3f}. By "
        f"infidelity (less is better) the map has {result.infidelity[routed]:.3f}, the ink "
        f"{result.infidelity[ink]:.3f}.",
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


def reads(of, couplings: str) -> Estimate:
    """Accuracy with the couplings of a name."""
    return of.accuracy[of.frozen.index(couplings)]


def one_tree_serves(of) -> bool:
    """Whether couplings that are the same for all images cost less than 5 points."""
    return bool(reads(of, TREE).value > reads(of, "its own").value - 0.05)


def _points(of, couplings: str) -> str:
    """What couplings of a name cost, paired, less the accuracy with its own."""
    less = of.accuracy.difference[of.frozen.index(couplings)] * 100
    return f"{less:+.1f}"


def with_class(shares: Estimate) -> Estimate:
    """What goes with the class, in all children alike and child by child, of shares (7,).

    The ends of two intervals are added, which is wider than need be; over runs their parts by the
    images alone, in squares with Student's margin of the runs' sums.
    """
    both = shares[OF_CLASS]
    value = both.value.sum()
    if both.runs is None:
        return Estimate(value, both.ci95.sum(0), shares.n)
    each, whole = (student_interval(runs)[1] for runs in (both.runs, both.runs.sum(-1)))
    of_runs, margins = (np.abs(ends - both.value[:, None]) for ends in (each, both.ci95))
    images = np.sqrt(np.maximum(margins**2 - of_runs**2, 0)).sum(0)
    margin = np.hypot(images, np.abs(whole - value))
    return Estimate(
        value, np.stack([value - margin[0], value + margin[1]]), shares.n, runs=both.runs.sum(-1)
    )
