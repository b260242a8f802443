"""Findings on the parse tree: how a child chooses its parent, and whether that moves."""

import numpy as np

from benchmarks.findings.finding import Finding, of_figure, over_runs, picture, seeds
from capsviz.analyses.parse_tree.measure import MOVED
from capsviz.analyses.parse_tree.words import OF_CLASS
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import mean_interval

TREE = "one tree: each class's column"  # the same for all images
OWN, OTHER = "mean of the class it reads", "mean of another class"
READING = "where they are the reading, and fail if fixed, "  # self-routing


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
        and reads(result, OTHER).high < 0.5  # even couplings would read as well
        and with_class(share[0]).low
        > max(0.5, with_class(share[fresh]).high, with_class(result.shuffled).high),
        f"Of the variance of what children prefer, {with_class(share[0]):.1%} goes with the class. "
        "One tree for all images, each class's column its mean, reads "
        f"{reads(result, TREE):.1%} of {result.n:,} right, {_points(result, TREE)} points "
        f"from their own, even couplings {reads(result, 'even'):.1%}.",
        picture(one),
        "Variance of couplings",
        f"labels shuffled {with_class(result.shuffled):.1%}, fresh weights "
        f"{with_class(share[fresh]):.1%}; the mean couplings of another class read "
        f"{reads(result, OTHER):.1%}, of its own {reads(result, OWN):.1%}",
        seeds(words),
        "couplings that vary more within a class",
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
        f"{correlation[same]:.2f}.",
        f"{picture(one)}-moved",
        "Trees of moved images",
        f"the other way {correlation[other]:.2f}; less the usual tree of the class "
        f"{one.result.correlation[1][moved]:.2f} and {one.result.correlation[1][same]:.2f}",
        seeds([f"same place less moved, {'; '.join(words)}"] if words else []),
        "a network whose couplings travel with the digit",
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
    each, whole = (mean_interval(runs)[1] for runs in (both.runs, both.runs.sum(-1)))
    of_runs, margins = (np.abs(ends - both.value[:, None]) for ends in (each, both.ci95))
    images = np.sqrt(np.maximum(margins**2 - of_runs**2, 0)).sum(0)
    margin = np.hypot(images, np.abs(whole - value))
    return Estimate(
        value, np.stack([value - margin[0], value + margin[1]]), shares.n, runs=both.runs.sum(-1)
    )
