"""Findings on routing: what couplings carry, what iterations change, how a child chooses."""

import numpy as np

from benchmarks.claims.claim import shipped
from benchmarks.findings.finding import Finding, of_figure, over_runs, picture, seeds, value
from capsviz.analyses.faithfulness.words import CONTROLS
from capsviz.analyses.parse_tree.measure import MOVED
from capsviz.analyses.parse_tree.words import OF_CLASS
from capsviz.analyses.transplant.words import LIKE, NOISE, SHUFFLED, UNLIKE
from capsviz.leaderboard.columns import even as even_couplings
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import student_interval


def transplant() -> Finding:
    """Another image's couplings bring its class."""
    one = of_figure("transplant-mnist-*-images.json")
    result = one.result
    carried, spared = [], []

    def partner(of):
        if of.coupling_sd.value[0] == 0:
            return None
        share = of.as_partner[UNLIKE]
        (carried if share.low > 0.5 else spared).append(share)
        return share, ".1%", True

    words, files, _ = over_runs("transplant", "Statistics", partner)
    elsewhere = ""
    if (photographs := shipped("transplant-cifar10-resnet-*-images.json")) is not None:
        share = photographs.result.as_partner[UNLIKE]
        elsewhere = f" Not in every network: with `cifar10-resnet`, on CIFAR-10, {share:.1%}."
        spared, files = [*spared, share], [*files, photographs.source]
    holds = len(carried) > 0 and all(share.high < 0.5 for share in spared)
    return Finding(
        "Couplings that look even can carry the class",
        holds and result.as_partner[UNLIKE].low > 0.5 and result.as_own[SHUFFLED].low > 0.5,
        f"Couplings have a standard deviation of {value(result.coupling_sd[0], '.4f')} about 1/10. "
        "Yet an image with its own votes and the couplings of an image of another class is read as "
        f"that class in {result.as_partner[UNLIKE]:.1%} of {result.n:,} pairs. No heat map of "
        f"couplings shows this.{elsewhere}",
        picture(one),
        "What images are read as with the couplings of others",
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

    def uniform(of):
        if of.coupling_sd.value[-1] < 1e-6:
            return None
        ((_, less),) = even_couplings(of)
        return less, "+.1%", True

    words, files, _ = over_runs("routing", "Statistics", uniform)
    slim = "even couplings change the accuracy of"
    return Finding(
        "Three iterations read the same digits as one",
        result.changed[last].high < 0.01,
        f"Two more iterations change {result.changed[last]:.2%} of {result.n:,} predictions. They "
        f"lengthen the winning capsule: the true class goes from {value(activation[0], '.2f')} to "
        f"{value(activation[last], '.2f')}. Couplings could decide (finding 1); on clean digits "
        "they are not asked to.",
        picture(one),
        "Accuracy and activation by iteration and with other couplings",
        f"with even couplings {result.control_accuracy[even]:.1%} are read right, by routing "
        f"{result.accuracy[last]:.1%}, with random ones "
        f"{result.control_accuracy[result.controls.index('random')]:.1%}",
        seeds([f"{slim} {', '.join(words)}"] if words else []),
        "a data set on which more iterations mend predictions, with the same weights",
        [one.source, *files],
    )


def by_class() -> Finding:
    """A child's preference goes with the class."""
    one = of_figure("parse-tree-mnist-*-images.json")
    result = one.result
    fresh = result.networks.index("freshly initialised")
    share, frozen = result.shares, result.frozen.index("one tree: each class's column")

    def of_class(of):
        trained = with_class(of.shares[0])
        if np.isnan(trained.value):
            return None
        return trained, ".1%", trained.low > max(0.5, with_class(of.shuffled).high)

    words, files, holds = over_runs("parse-tree", "Statistics", of_class)
    return Finding(
        "A child chooses its parent by the class of the image, not by the image",
        holds
        and with_class(share[0]).low
        > max(0.5, with_class(share[fresh]).high, with_class(result.shuffled).high),
        f"Of the variance of what children prefer, {with_class(share[0]):.1%} goes with the class. "
        "One tree for all images, in which each class has its mean couplings, reads "
        f"{result.accuracy[frozen]:.1%} of {result.n:,} images right; routing "
        f"{result.accuracy[0]:.1%}. No parse tree of the single image is needed for digits.",
        picture(one),
        "Where the variance of couplings lies",
        f"labels shuffled {with_class(result.shuffled):.1%}, freshly initialised "
        f"{with_class(share[fresh]):.1%}; with the mean couplings of another class "
        f"{result.accuracy[result.frozen.index('mean of another class')]:.1%} are read right",
        seeds(words),
        "a network whose accuracy falls when its couplings are frozen to one tree",
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
        "Accuracy with frozen couplings, and correlation of trees of moved images",
        f"the other way {correlation[other]:.2f}; less the usual tree of the class "
        f"{one.result.correlation[1][moved]:.2f} and {one.result.correlation[1][same]:.2f}",
        seeds([f"same less moved, {'; '.join(words)}"] if words else [])
        + "; slim networks have one place a type",
        "a network with one transform for all places whose couplings do not travel either",
        [one.source, *files],
    )


def maps() -> Finding:
    """A routing map is no more faithful than what knows no class."""
    one = of_figure("faithfulness-mnist-*-images.json")
    result, (brightness, norm) = one.result, CONTROLS
    routed = result.names.index("routing map")

    def less(of):
        if of.routed_less is None:  # capsules at one place: there is no map
            return None
        difference = of.routed_less[of.names.index(brightness)]
        return difference, "+.3f", difference.low <= 0 or abs(difference.value) < 0.05

    words, files, _ = over_runs("faithfulness", "Statistics", less)
    return Finding(
        "A routing heat map is no more faithful than the ink of the image",
        result.routed_less[result.names.index(brightness)].low <= 0,
        "Pixels are removed, or alone shown, in a map's order; the area between the two curves is "
        f"{result.gap[routed]:.3f} for the routing map, on {result.n} images. The ink itself, "
        f"which knows of no class, has {result.gap[result.names.index(brightness)]:.3f}. The map "
        "is no evidence of what the network looked at.",
        picture(one),
        "Deletion and insertion by map",
        f"lengths of primary capsules {result.gap[result.names.index(norm)]:.3f}, even couplings "
        f"{result.gap[result.names.index('routing map, uniform')]:.3f}, random order "
        f"{result.gap[result.names.index('random order')]:.3f}",
        seeds(["routing map less ink, " + "; ".join(words)]) if words else seeds([]),
        "a map ahead of the ink where the object is a small part of it: scenes, clutter",
        [one.source, *files],
    )


def with_class(shares: Estimate) -> Estimate:
    """What goes with the class, in all children alike and child by child, of shares (7,).

    The ends of two intervals are added, which is wider than need be; over runs Student's t.
    """
    both = shares[OF_CLASS]
    runs = None if both.runs is None else both.runs.sum(-1)
    ends = both.ci95.sum(0) if runs is None else student_interval(runs)[1]
    return Estimate(both.value.sum(), ends, shares.n, runs=runs)
