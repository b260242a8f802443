"""Make the tables and pictures of docs/findings.md from the shipped results.

`make readme` fills in the tables and draws the pictures. The page's sentences are written by hand;
each finding here tests whether its intervals support them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from benchmarks import ROOT, dots, read
from benchmarks.dots import Number
from benchmarks.refuter import Search, everywhere, search
from benchmarks.shipped import (
    LAWS,
    SEEDS,
    Source,
    accuracies,
    bound,
    dose_text,
    over_runs,
    shipped,
)  # fmt: skip
from capsviz.analyses.binding.measure import ALONE, COUPLING, EVIDENCE, UNIFORM
from capsviz.analyses.transplant import (
    CLASS_MEAN,
    DONOR,
    DONOR_SHUFFLED,
    EVEN,
    NOISE,
    UNLIKE,
    UNLIKE_SHUFFLED,
)
from capsviz.files import write_text
from capsviz.nn import routing as routings
from capsviz.results import leaderboard, paired
from capsviz.results.leaderboard import columns
from capsviz.results.tables import markdown
from capsviz.statistics import equivalence
from capsviz.statistics.equivalence import Paired
from capsviz.statistics.estimate import Estimate, less
from capsviz.statistics.words import UNTRAINED, untrained_of

PAGE = ROOT / "docs/findings.md"
FOLDER = ROOT / "docs/findings"  # pictures
REPRODUCED = ROOT / "trained/reproduce"  # cards of `capsviz reproduce`
NONE = "–"
BY_DOSE = "couplings-by-dose-*-images.json"


class Finding(NamedTuple):
    """The table and the picture of a finding, and whether they support its sentence."""

    holds: bool  # whether the intervals support it
    axis: str  # label of the picture's axis
    plotted: tuple[int, ...]  # columns of the table in the picture
    header: list[str]
    rows: list[list[str]]
    sources: list[str]  # files, from the root of the checkout
    note: str = ""  # text below the table
    searches: Sequence[Search] = ()  # searches for counterexamples
    drawn: Sequence[list[str]] = ()  # rows of the picture, if they differ from the table's

    def table(self) -> str:
        """Return the table, note and searches, with a warning if the sentence no longer holds."""
        warning = "" if self.holds else "**The shipped results no longer support this.**"
        lines = "\n".join(f"- {one}" for one in self.searches)
        found = f"{sum(bool(one.found) for one in self.searches)} of {len(self.searches)} kinds"
        head = f"<details><summary>Counterexamples: {found} searched for were found</summary>"
        rows = in_percent(self.header, self.rows).rstrip()
        return "\n\n".join(filter(None, [warning, rows, self.note, head, lines, "</details>"]))

    def picture(self) -> str:
        """Return the picture, an SVG of the plotted columns."""
        names = [self.header[k].replace("`", "") for k in self.plotted]
        shown = self.drawn or self.rows
        alike = len({row[0] for row in shown}) < len(shown)
        rows = [
            (", ".join(row[: 1 + alike]).replace("`", ""), [row[k] for k in self.plotted])
            for row in shown
        ]
        return dots.draw(self.axis, names, rows)


def in_percent(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; a column in percent has the unit in its header."""
    names, columns = list(header), [list(column) for column in zip(*rows, strict=True)]
    for k, cells in enumerate(columns):
        numbers = {cell for cell in cells if cell != NONE}
        if numbers and all(number.endswith(" %") for number in numbers):
            names[k] += ", %"
            columns[k] = [cell.removesuffix(" %") for cell in cells]
    return markdown(names, list(zip(*columns, strict=True)))


def percent(estimate: Estimate, digits: int = 1) -> Number:
    """Return a share and its interval in percent: 93.7 [92.0, 95.0] %."""
    return _number(estimate, 100, f".{digits}f", " %")


def points(estimate: Estimate) -> Number:
    """Return a difference of shares in percentage points, with its sign."""
    return _number(estimate, 100, "+.2f")


def plain(estimate: Estimate, form: str = ".2f") -> Number:
    """Return a number and its interval: 0.89 [0.89, 0.90]."""
    return _number(estimate, 1, form)


def gain(tested: Paired) -> Number:
    """Return a tested difference in percentage points, with its sign."""
    return plain(tested.difference, "+.2f")


def _number(estimate: Estimate, scale: float, form: str, unit: str = "") -> Number:
    ends = (scale * float(end) for end in (estimate.value, estimate.low, estimate.high))
    return Number(f"{scale * estimate:{form}}{unit}", tuple(ends))


def transplant() -> Finding:
    """Test that couplings can carry the class, and at which dose."""
    mnist = shipped("transplant-mnist-1000-images.json")
    two = "mnist-2-iterations-10-epochs"
    each = {
        ("`mnist`", "3"): mnist,
        ("`mnist-2-iterations-10-epochs`", "2"): over_runs(two, "transplant", iterations=None),
        ("the same, routed 3 times", "3"): over_runs(two, "transplant", iterations=3),
        ("`digits`", "3"): shipped("leaderboard/digits/transplant-digits-360-images.json"),
        ("`cifar10-resnet`", "3"): shipped("transplant-cifar10-resnet-cifar10-500-images.json"),
    }
    dosed = {
        "`mnist`": shipped(f"transplant-mnist-{BY_DOSE}"),
        **{
            f"`{name}`": shipped(f"leaderboard/{name}/transplant-{name}-*{BY_DOSE}")
            for name in ("digits", "cifar10-resnet")
        },
    }

    rows = []
    for (network, iterations), one in each.items():
        by_dose = [NONE, NONE]
        if network in dosed:
            result = dosed[network].result
            by_dose = [percent(result.at(CLASS_MEAN, 1)), dose_text(result, DONOR)]
        rows.append([
            network, f"{iterations} iterations", f"{float(one.result.coupling_sd.value[0]):.4f}",
            *(percent(one.result.as_partner[k]) for k in (UNLIKE, UNLIKE_SHUFFLED)), *by_dose,
            percent(one.result.as_own[EVEN]), str(one.runs),
        ])  # fmt: skip
    follow, kept = mnist.result.as_partner, mnist.result.as_own
    more = [one.result.as_partner[UNLIKE] for one in list(each.values())[1:4]]
    narrow = []
    for matrices, label in NARROW.items():
        over_five = over_runs(f"mnist-matrices-{matrices}", "transplant", kind="Doses")
        narrow.append(f"{dose_text(over_five.result, DONOR)} ({label})")
    clipped = [name for name, one in everywhere("transplant-*-by-dose-*", "Doses") if one.clipped]
    three = over_runs("mnist-10-epochs", "transplant")
    first, *others = (one.result for one in dosed.values())
    at_half = float(first.half.high[first.conditions.index(DONOR)])
    return Finding(
        bool(follow[UNLIKE].low > 0.5 > follow[UNLIKE_SHUFFLED].high)
        and bool(kept[NOISE].low > 0.9 and kept[EVEN].low > 0.9 and more[0].high < more[1].low)
        and at_half < 1
        and min(first.at(CLASS_MEAN, 1).low, first.at(DONOR, -1).low) > 0.5
        and all(one.at(DONOR, 1).high < 0.5 for one in others)
        and all(one.half.value[one.conditions.index(DONOR)] > 1 for one in others),
        "images predicted as the donor's class, %",
        (3, 4),
        ["network", "routing", "s.d. of couplings", "predicted as the donor's class",
         "control: donor's couplings, shuffled", "mean couplings of the donor's class",
         "dose at which 50 % follow", "class kept with uniform couplings", "runs"],
        rows,
        [one.path for one in (*each.values(), *dosed.values(), three)],
        "Trained like the second row but with 3 iterations (`mnist-10-epochs`, "
        f"{three.runs} runs), {percent(three.result.as_partner[UNLIKE])} follow. "
        "Dose: factor of the deviation of the donor's couplings from uniform ([all "
        "networks](leaderboard.md#doses)). On the narrow stem of finding 4 (five runs) half follow "
        f"at {', '.join(narrow)}. Negative couplings were set to 0: {', '.join(clipped)}. "
        "The first four searches below are of networks in which the donor's couplings change over "
        "10 % of predictions.",
        _against_transplant(),
    )  # fmt: skip


def _against_transplant() -> list[Search]:
    exchanged = dict(everywhere("transplant-*", "Statistics"))
    moved = {name: one for name, one in exchanged.items() if one.as_partner.low[UNLIKE] > 0.1}
    kept = {name: one.as_own for name, one in moved.items()}
    sharp = {n: one.as_partner for n, one in exchanged.items() if one.coupling_sd.value[0] > 0.1}
    doses = dict(everywhere("transplant-*-by-dose-*", "Doses"))
    follow = {name: one for name, one in doses.items() if one.at(DONOR, 1).low > 0.1}
    pairs = {  # from the dose result if the exchange was not measured separately
        name: np.array([one.at(kind, 1).value for kind in (DONOR, DONOR_SHUFFLED)])
        for name, one in follow.items()
    } | {
        name: one.as_partner.value[[UNLIKE, UNLIKE_SHUFFLED]]
        for name, one in moved.items()
        if len(one.conditions) > UNLIKE_SHUFFLED
    }
    return [
        search("shuffled couplings change at least half as many predictions",
               "shuffled couplings change at least half as many", pairs,
               lambda one: one[1] >= one[0] / 2),
        search("the mean couplings of the donor's class change fewer than half as many",
               "mean couplings change far fewer", follow,
               lambda one: one.at(CLASS_MEAN, 1).value < one.at(DONOR, 1).value / 2),
        search("with uniform couplings fewer than 90 % keep their class",
               "uniform couplings do in some networks", kept, lambda one: one.value[EVEN] < 0.9),
        search("with noise of equal s.d. fewer than 90 % keep their class", "Noise often changes",
               kept, lambda one: one.value[NOISE] < 0.9),
        search("less than half follow, where the s.d. of couplings is above 0.1", "even above",
               sharp, lambda one: one.value[UNLIKE] < 0.5),
        search("fewer follow at dose 8 than at dose 1", "fewer in five networks", doses,
               lambda one: difference(one.at(DONOR, 8), one.at(DONOR, 1)).high < 0),
        search("with the opposite deviation (dose -1) at least half as many images follow",
               "the opposite deviation (dose −1)", doses,
               lambda one: one.at(DONOR, -1).value >= one.at(DONOR, 1).value / 2),
    ]  # fmt: skip


def iterations() -> Finding:
    """Compare numbers of iterations at test time and in training."""
    mnist = shipped("routing-mnist-*-images.json")
    each = {name: over_runs(name, "routing") for name in ("mnist-10-epochs", "cifar10")}
    rows = []
    for name, one in each.items():
        last = len(one.result.entropy_nats) - 1
        changed, more = one.result.changed[last], one.result.accuracy.difference[last]
        rows.append([f"`{name}`", "at test time", percent(changed, 2), points(more), str(one.runs)])
    pairs = iteration_pairs()
    together = {}
    for label, long in (("10 epochs", True), ("2 or 4 epochs", False)):
        some = [gains for name, gains in pairs.items() if name.startswith("10-") == long]
        means = 100 * np.array([np.mean(gains) for gains in some])
        together[label] = _gained(means)
        about = [f"{len(some)} recipes of {label}, MNIST", "in training", NONE]
        rows.append([*about, gain(together[label]), f"{sum(map(len, some))} pairs"])
    each_recipe = {
        name: _gained(100 * np.array(gains), ONE_IMAGE)
        for name, gains in pairs.items()
        if len(gains) >= equivalence.FEWEST
    }
    three, one = (accuracies(f"mnist-iterations-{k}") for k in (3, 1))
    by_seed = {f"seed {seed}": three[seed] - one[seed] for seed in three}
    stated = _gained(np.array(list(by_seed.values())), ONE_IMAGE)
    about = ["one recipe of 4 epochs, stated beforehand", "in training", NONE, gain(stated)]
    rows.append([*about, f"{len(by_seed)} pairs"])
    gains = {
        name: one.accuracy.difference[len(one.entropy_nats) - 1]
        for name, one in everywhere("routing-*", "Statistics")
        if len(one.entropy_nats) > 1
    }
    changed = mnist.result.changed[len(mnist.result.entropy_nats) - 1]
    return Finding(
        bool(changed.high < 0.01 and together["10 epochs"].difference.low > 0)
        and bool(stated.difference.low > 0)
        and bool((each["cifar10"].result.accuracy.difference.runs[:, -1] < 0).all()),
        "accuracy on digits gained by three iterations, points",
        (3,),
        ["network", "three iterations instead of one", "predictions changed",
         "accuracy gained, points", "runs"],
        rows,
        [mnist.path, *(one.path for one in each.values()),
         *(str(card.relative_to(ROOT)) for pair in _card_pairs() for card in pair)],
        "Over several recipes, intervals are over their means; they share four architectures. Of "
        f"the {len(each_recipe)} recipes with three pairs (3 of 10 epochs, 5 of 4), "
        f"{_verdicts(each_recipe)}.",
        [search("one iteration at test time is less accurate", "depend on their iterations", gains,
                lambda one: one.low > 0),
         search("one iteration at test time is more accurate", "more accurate with one", gains,
                lambda one: one.high < 0),
         search("no gain by training with three iterations is shown, in recipes of 10 epochs",
                "in none of them alone",
                {f"`{name[10:]}`": one for name, one in each_recipe.items() if name[:3] == "10-"},
                lambda one: one.difference.low <= 0),
         search("training with three iterations is less accurate, in recipes with three pairs",
                "less accurate with three", each_recipe, lambda one: one.difference.high < 0),
         search("training with three iterations is less accurate, in pairs stated beforehand",
                "one of which loses", by_seed, lambda one: one < 0)],
        drawn=[  # without CIFAR-10, whose interval hides the others
            [name if "train" in how else f"{name}, {how}", how, *numbers]
            for name, how, *numbers in rows
            if name != "`cifar10`"
        ],
    )  # fmt: skip


MARGIN = paired.MARGIN  # points of accuracy
ONE_IMAGE = 0.01  # points: one of 10,000 images
AFFINE_MARGIN = 1.0  # points of accuracy on affine digits


def _gained(gains: np.ndarray, resolution: float = 0.0) -> Paired:
    """Test whether gains, in points, differ from zero."""
    return equivalence.paired(gains, np.zeros(len(gains)), MARGIN, resolution=resolution)


def _verdicts(tested: dict[str, Paired]) -> str:
    """Count the verdicts of comparisons with one margin, and name their detectable differences."""
    (margin,) = {one.margin for one in tested.values()}
    verdicts = [one.verdict for one in tested.values()]
    different, equivalent, open_ = map(
        verdicts.count, (equivalence.DIFFERENT, equivalence.EQUIVALENT, equivalence.NOT_SETTLED)
    )
    could = [one.detectable for one in tested.values()]
    return (
        f"{different} are different, {equivalent} equivalent within ±{margin:g} points and {open_} "
        f"not settled (detectable: {np.median(could):.2f}, {min(could):.2f} to {max(could):.2f})"
    )


ONE_ITERATION = {"routing-1": "routing-3", "uniform": "dynamic"}  # one -> three iterations


def iteration_pairs() -> dict[str, list[float]]:
    """Return the accuracy gained by training with three iterations, by recipe, for each seed."""
    result = defaultdict(list)
    for one, three in _card_pairs():
        recipe = f"{one.parent.name}/{one.stem.rpartition('-')[0]}"
        result[recipe].append(_accuracy(three) - _accuracy(one))
    return dict(result)


def _card_pairs() -> list[tuple[Path, Path]]:
    return [
        (path, other)
        for path in sorted(REPRODUCED.glob("*-epochs/mnist-*.json"))
        for one, three in ONE_ITERATION.items()
        if (other := path.with_name(path.name.replace(one, three))) != path and other.is_file()
    ]


def _accuracy(path: Path) -> float:
    return json.loads(path.read_text(encoding="utf-8"))["results"]["test"]["accuracy"]


def by_class() -> Finding:
    """Compare the variance between classes of couplings, pixels, capsules and votes."""
    one = shipped("parse-tree-mnist-*-images.json")
    result, untrained = one.result, one.result.networks.index(UNTRAINED)
    labels = {
        "couplings": "couplings",
        "votes": "votes",
        "primary capsules": "control: primary capsules, vectors",
        "their activations": "control: primary capsules, lengths",
        "pixels": "control: pixels",
    }
    rows, less = [], []
    for k, (name, label) in enumerate(labels.items()):
        assert result.sources[k] == name
        own = result.with_class[0, k]
        less.append(own.difference)
        apart = points(own.difference) if k else NONE
        rows.append([label, percent(own), percent(result.with_class[untrained, k]), apart, "1"])
    known = dict(everywhere("parse-tree-*", "Statistics"))
    measured = {name: one for name, one in known.items() if one.with_class is not None}
    more = {
        f"{name}, {source}": one.with_class.difference.low[0, k]
        for name, one in measured.items()
        for k, source in enumerate(one.sources)
        if k
    }
    unlearned = {  # votes minus couplings
        name: less
        for name, one in measured.items()
        for less in [one.with_class.difference[one.networks.index(UNTRAINED), 1]]
        if not np.isnan(less.value)
    }
    column = result.own_column
    return Finding(
        all(one.high < 0 for one in less[1:])
        and bool(column.low[0] > 0.5 > column.high[1])
        and sum(bool(one.low > 0) for one in unlearned.values()) == len(unlearned) - 1,
        "share of variance between classes, %",
        (1, 2),
        ["of `mnist`", "share of variance between classes", "control: untrained",
         "less that of the couplings, points", "runs"],
        rows,
        [one.path],
        f"Of the couplings' variance between classes, {percent(column[0])} lies in the column of "
        f"the class itself (at most 90 %), and {percent(column[untrained])} in the untrained "
        f"network. With shuffled labels {percent(with_class(result.shuffled))} of their mean "
        f"square goes with the class, instead of {percent(with_class(result.shares[0]))}.",
        [search("more of another part's variance is between classes", "a larger share", more,
                lambda low: low > 0),
         search("less than half of the couplings' mean square goes with the class",
                "less than half", known, lambda one: with_class(one.shares[0]).high < 0.5),
         search("less than half of the variance between classes is in the column of the class",
                "in other columns", measured, lambda one: one.own_column.high[0] < 0.5),
         search("untrained, more of the couplings' variance is between classes than of the votes'",
                "except in `cifar10-resnet`", unlearned, lambda less: less.high < 0)],
    )  # fmt: skip


def with_class(shares: Estimate) -> Estimate:
    """Return the share of a mean square that depends on the class, from shares (7,) of one run.

    It is the sum of two components. Their intervals are added, which is conservative.
    """
    both = shares[4:6]
    return Estimate(both.value.sum(), both.ci95.sum(0), shares.n)


OWN = "own matrices"
NARROW = {"own": OWN, "type": "a matrix for each type", "shared": "one matrix for all"}


def stays() -> Finding:
    """Compare couplings of a shifted digit, and accuracy, by sharing of matrices over positions."""
    each = {
        f"narrow stem, {label}": over_runs(f"mnist-matrices-{kind}", "parse-tree")
        for kind, label in NARROW.items()
    } | {
        f"`mnist`, {OWN}": shipped("parse-tree-mnist-*-images.json"),
        f"`mnist-10-epochs`, {OWN}": over_runs("mnist-10-epochs", "parse-tree"),
        f"`digits-paper-stem`, {OWN}": over_runs("digits-paper-stem", "parse-tree"),
    }  # fmt: skip
    accuracy = {
        f"narrow stem, {label}": _affine(f"mnist-matrices-{kind}") for kind, label in NARROW.items()
    }
    drawn = {}
    own, tied = {}, {}  # networks whose positions have their own matrices, or share them
    for name, one in each.items():
        found = {name: (OWN not in name, one.result.correlation[0])}
        controls, controlled = one.result.controls or (), one.result.controlled or ()
        for control, values in zip(controls, controlled, strict=True):
            if control == UNTRAINED:
                found[f"{name}, untrained"] = OWN not in name, values
            elif name == f"`mnist`, {OWN}":  # random matrices are shown for one network
                found[f"`mnist`, {control}"] = control.endswith("shared"), values
        for label, (shares, (moved, same, other)) in found.items():
            (tied if shares else own)[label] = (same, moved)
            numbers = [plain(k, ".3f") for k in (same, moved, other)]
            both = map(percent, accuracy[label]) if label in accuracy else (NONE, NONE)
            drawn[label] = [label, *numbers, *both, str(one.runs)]
    inside, outside = _sharing()
    tied_type = each[f"narrow stem, {NARROW['type']}"].result
    untrained = [plain(k, ".3f") for k in tied_type.controlled[tied_type.controls.index(UNTRAINED)]]
    return Finding(
        all(same.low > moved.high for same, moved in own.values())
        and all(moved.low > same.high for same, moved in tied.values())
        and all(one.difference.high < 0 for one in list(inside.values())[:2])
        and all(one.difference.low > 0 for one in list(outside.values())[:2]),
        "correlation of couplings before and after a shift",
        (1, 2, 3),
        ["network", "correlation at the same position", "at the digit's new position",
         "control: opposite position", "accuracy inside", "accuracy outside", "runs"],
        [row for label, row in drawn.items() if label in accuracy or "random" in label],
        [*(one.path for one in each.values())],
        f"Untrained, a matrix for each type gives {untrained[1]} at the same position, "
        f"{untrained[0]} at the new one and {untrained[2]} opposite. "
        "Two of six comparisons are of nearly one recipe. "
        "The narrow stem is that of `digits`, trained on 10,000 images of MNIST. Accuracy with "
        "shared matrices less that with own ones, in points, paired by seed: "
        + "; ".join(
            f"{label}, inside {gain(inside[label])}, outside {gain(outside[label])}"
            for label in list(NARROW.values())[1:]
        ) + ".",
        [
            search("couplings follow the digit although each position has its own matrices",
                   "follow although", own, lambda one: one[1].low > one[0].high),
            search("couplings stay at their position although positions share matrices",
                   "stay although", tied,
                   lambda one: one[0].low > one[1].high),
            search("sharing is not shown to cost accuracy inside", "five of six", inside,
                   lambda one: one.difference.high >= 0),
            search("sharing is shown to gain accuracy inside", "gains accuracy inside", inside,
                   lambda one: one.difference.low > 0),
            search("sharing is shown to cost accuracy outside", "costs accuracy outside", outside,
                   lambda one: one.difference.high < 0),
        ],
        list(drawn.values()),
    )  # fmt: skip


def _affine(recipe: str) -> list[Estimate]:
    """Return the accuracies of a recipe inside and outside the training shift range."""
    result = over_runs(recipe, "affine").result
    return [result.accuracy[0, place] for place in (1, 2)]


def _sharing() -> list[dict[str, Paired]]:
    """Test the effect of sharing on the accuracy inside and outside, in all pairs of recipes."""
    pairs = {
        NARROW[kind]: ("mnist-matrices-own", f"mnist-matrices-{kind}") for kind in list(NARROW)[1:]
    }
    for folder in sorted(SEEDS.glob("mnist-narrow-*-own*")):
        other = folder.name.replace("-own", "-shared")
        pairs[f"`{other}`"] = folder.name, other
    each = {name: [_affine(one) for one in both] for name, both in pairs.items()}
    return [
        {
            name: _paired(shared[place].runs, own[place].runs, AFFINE_MARGIN)
            for name, (own, shared) in each.items()
        }
        for place in (0, 1)
    ]


SLIM, EPOCHS = "mnist-slim-", "-10-epochs"
# Routings that train by cross-entropy, as networks without capsules do.
WITH_CROSS_ENTROPY = ("inverted_attention", "self_routing", "variational")
POOLED = "pooled"  # the stem without capsules


def _slim(name: str) -> str:
    """Return the ten-epoch recipe of a routing, or of pooling, on the slim stem."""
    return f"{SLIM}{name}{EPOCHS}"


def _nine() -> list[str]:
    """Return the routings whose runs on the slim stem are shipped."""
    return [one for one in routings.available() if (SEEDS / _slim(one)).is_dir()]


def sharpness() -> Finding:
    """Compare sharpness and accuracy of nine routings."""
    networks = {row.network.name: row.network for row in leaderboard.table()}
    known = {name: networks[_slim(name)] for name in _nine()}
    pooled = networks[_slim(POOLED)]
    parents = {}
    for name in known:
        ((_, parents[name]),) = columns.parents(over_runs(_slim(name), "routing").result)
    runs = {name: one.accuracy.runs for name, one in known.items()}
    less_pooling = {
        name: _paired(one, pooled.accuracy.runs, MARGIN, ONE_IMAGE) for name, one in runs.items()
    }
    even = runs.pop("uniform")
    best = max(runs, key=lambda name: float(np.mean(runs[name])))
    sharpest = min(known, key=lambda name: float(parents[name].value))
    tests = {name: _paired(one, even, MARGIN, ONE_IMAGE) for name, one in runs.items()}
    six = {name: _after_training(f"{SLIM}{name.replace('_', '-')}-decoder") for name in known}
    four = {name: _after_four_epochs(name) for name in known}
    shorter = {
        f"{_label(name)}, after {epochs} epochs": _paired(one, short["uniform"], MARGIN, ONE_IMAGE)
        for epochs, short in (("six", six), ("four", four))
        for name, one in short.items()
        if name != "uniform"
    }
    every = tests | shorter
    if len({tuple(one.seeds) for one in (*known.values(), pooled)}) > 1:
        raise ValueError("the runs of the nine routings and of pooling have different seeds")

    def rank_correlation(names: Iterable[str]):
        each = [(float(parents[name].value), float(known[name].accuracy.value)) for name in names]
        return stats.spearmanr(*zip(*each, strict=True))

    correlation = rank_correlation(known)
    without = rank_correlation(name for name in known if name != "variational")
    above = sum(one.accuracy.value > pooled.accuracy.value for one in known.values())
    cifar10 = {
        _label(name): less(_cifar10(name), _cifar10("uniform"))
        for name in (*known, POOLED)
        if name != "uniform"
    }
    table = []
    for name in dict.fromkeys((sharpest, best, "dynamic", "uniform", POOLED)):
        network = pooled if name == POOLED else known[name]
        share = NONE if name == POOLED else percent(parents[name], 0)
        less_uniform = gain(tests[name]) if name in tests else NONE
        accuracy = percent(network.accuracy, 2)
        table.append([_label(name), share, accuracy, less_uniform, str(len(network.seeds))])
    return Finding(
        not any(one.difference.low > 0 for one in tests.values())
        and min(correlation.pvalue, without.pvalue) > 0.05
        and above == len(known) == 9,
        "accuracy, %; in brackets: effective number of parents, share of all",
        (2,),
        ["routing", "effective number of parents, share of all", "accuracy",
         "accuracy less that of uniform, points", "runs"],
        table,
        sorted(f"trained/seeds/{one.name}" for one in (*known.values(), pooled)),
        "Rank correlation of accuracy and effective parents over nine means: "
        f"{correlation.statistic:+.2f} (p = {correlation.pvalue:.2f}), without variational "
        f"{without.statistic:+.2f} (p = {without.pvalue:.2f}). "
        f"Of {len(tests)} routings against uniform, "
        f"{_verdicts(tests)}. Of {len(less_pooling)} routings against pooling, "
        f"{_verdicts(less_pooling)}. Six or four epochs are of 10,000 images.",
        [search("more accurate than uniform couplings, three pairs", "routing is more accurate",
                every, lambda one: one.difference.low > 0),
         search("less accurate than uniform couplings, three pairs", "max-min and k-means",
                every, lambda one: one.difference.high < 0),
         search("on CIFAR-10, one run each, more accurate than uniform couplings",
                "is more accurate on CIFAR-10", cifar10, lambda one: one.low > 0),
         search("on CIFAR-10, one run each, less accurate than uniform couplings",
                "On CIFAR-10 (one run each) four are less accurate", cifar10,
                lambda one: one.high < 0)],
        drawn=[
            *([f"{_label(name)} ({100 * float(parents[name].value):.0f} %)", "",
               percent(known[name].accuracy, 2)]
              for name in sorted(known, key=lambda name: float(parents[name].value))),
            table[-1],
        ],
    )  # fmt: skip


def _after_training(recipe: str) -> np.ndarray:
    """Return the accuracies of the first three runs of a recipe: six epochs of 10,000 images."""
    same = {f"{SLIM}dynamic-decoder": "mnist-capsules-decoder"}  # same recipe, with ten runs
    return np.array(list(accuracies(same.get(recipe, recipe)).values())[:3]) / 100


def _after_four_epochs(routing: str) -> np.ndarray:
    """Return the accuracies of three runs of a routing: four epochs of 10,000 images."""
    runs = (REPRODUCED / f"4-epochs/{SLIM}{routing}-{seed}.json" for seed in range(3))
    return np.array([*map(_accuracy, runs)])


def _cifar10(routing: str) -> Estimate:
    """Return the accuracy of one run on CIFAR-10, with its interval over test images."""
    name = "cifar10-resnet" if routing == "dynamic" else f"cifar10-resnet-{routing}"
    card = json.loads((REPRODUCED / f"15-epochs/{name}-0.json").read_text(encoding="utf-8"))
    test = card["results"]["test"]
    return Estimate(test["accuracy"], test["accuracy_ci95"], test["n"])


def _paired(one: np.ndarray, other: np.ndarray, margin: float, resolution: float = 0.0) -> Paired:
    """Test the difference of two recipes' shares, in percentage points, paired by seed."""
    return equivalence.paired(100 * one, 100 * other, margin, resolution=resolution)


def _label(name: str) -> str:
    return "pooling, no capsules" if name == POOLED else name.replace("_", "-")


def maps() -> Finding:
    """Evaluate routing maps by pixels and by positions."""
    stem = "faithfulness-{}-100-images.json"
    pixels = shipped(stem.format("mnist-pixels"))
    each = {
        "`mnist`": shipped(stem.format("mnist-positions")),
        "`multimnist`": shipped(stem.format("multimnist-positions-two-digits")),
        "`cifar10-resnet`": shipped(stem.format("cifar10-resnet-cifar10-positions")),
    }
    routed, uniform, effect = "routing map", "routing map, uniform", "removal effect"
    chance = {
        "routing map, permuted": "control: routing map, positions permuted",
        "another image's map": "control: another image's routing map",
        "random map": "control: random map",
    }
    labels = {routed: routed, uniform: "control: routing map, uniform couplings", **chance,
              effect: "measured effect of each unit"}  # fmt: skip
    del labels["another image's map"]

    def of(source: Source, name: str, field: str = "gap") -> Estimate:
        return _of_map(source.result, name, field)

    attention = shipped(stem.format("mnist-attention-mnist-capsules"))
    clutter = shipped(stem.format("mnist-positions-cluttered"))
    sources = [pixels, *each.values(), attention]
    rows = [
        [label, *(plain(of(one, name), ".3f") for one in sources),
         plain(of(each["`multimnist`"], name, "apart")), str(pixels.runs)]
        for name, label in labels.items()
    ]  # fmt: skip

    apart = ", ".join(
        f"{plain(of(one, uniform, 'routed_less'), '+.3f')} in {label}"
        for label, one in each.items()
    )
    even = {name: of(pixels, f"{name}, evenly") for name in (routed, "random map", uniform)}
    evenly = [plain(one, ".3f") for one in even.values()]
    less = of(pixels, "random map, evenly", "routed_less")
    digit = plain(of(clutter, routed, "apart"))
    return Finding(
        all(of(one, name, "routed_less").low > 0 for one in sources[1:] for name in chance)
        and all(of(one, uniform, "routed_less").high < 0.01 for one in each.values())
        and bool(of(attention, uniform, "routed_less").low > 0)
        and all(of(pixels, name, "routed_less").low <= 0 for name in (*chance, effect))
        and bool(less.high < 0 and even[uniform].high < even["random map"].low),
        "area between insertion and deletion",
        (2, 1, 5),
        ["map", "`mnist`, pixels", *(f"{name}, positions" for name in each),
         "`mnist-attention`, capsules", "AUROC of the first digit's positions, `multimnist`",
         "runs"],
        rows,
        [one.path for one in (*sources, clutter)],
        f"Routing map less the same with uniform couplings, paired: {apart}. With a position's "
        "value divided evenly among its pixels, not by their brightness, the routing map has "
        f"{evenly[0]}, a random map {evenly[1]} (difference {plain(less, '+.3f')}) and the routing "
        f"map with uniform couplings {evenly[2]}. For a digit among clutter, the AUROC of the "
        f"routing map is {digit} (`mnist`).",
        searches=_against_maps(),
    )  # fmt: skip


def _of_map(result, name: str, field: str) -> Estimate:
    return getattr(result, field)[result.names.index(name)]


def _against_maps() -> list[Search]:
    units = {
        f"{name}, {one.scene} {one.over}": one
        for name, one in everywhere("faithfulness-*", "Units")
        if one.routed_less is not None
    }

    def less(one, name: str) -> Estimate:
        return _of_map(one, name, "routed_less")

    live = {name: one for name, one in units.items() if one.over != "pixels"}
    pixels = {name: one for name, one in units.items() if one.over == "pixels"}
    return [
        search("ranks positions or capsules no better than the map of another image",
               "no better than that of another", live,
               lambda one: less(one, "another image's map").low <= 0),
        search("ranks them better than with uniform couplings",
               "shown in either direction", live,
               lambda one: less(one, "routing map, uniform").low > 0),
        search("ranks them better than couplings alone", "shown in either direction", live,
               lambda one: less(one, "couplings").low > 0),
        search("ranks them worse than with uniform couplings", "shown in either direction", live,
               lambda one: less(one, "routing map, uniform").high < 0),
        search("ranks them worse than couplings alone", "shown in either direction", live,
               lambda one: less(one, "couplings").high < 0),
        search("ranks them worse than couplings alone by accuracy, intervals apart",
               "By accuracy, couplings alone are clearly better", live,
               lambda one: (_of_map(one, "couplings", "accuracy_gap").low
                            > _of_map(one, "routing map", "accuracy_gap").high)),
        search("ranks them worse than the gradient", "than the routing map in three", live,
               lambda one: less(one, "gradient").high < 0),
        search("ranks them better than the gradient", "worse in two", live,
               lambda one: less(one, "gradient").low > 0),
        search("a test in pixels ranks it above a random map", "above a random map in pixels",
               pixels, lambda one: less(one, "random map").low > 0),
        search("a test in pixels ranks it above uniform couplings", "uniform couplings below it",
               pixels, lambda one: less(one, "routing map, uniform").low > 0),
    ]  # fmt: skip


def lawful() -> Finding:
    """Test whether poses of rotated digits follow an affine map."""
    one = shipped(LAWS)
    result = one.result
    turn, names = result.warps.index("rotation"), result.sources
    control = untrained_of(names)[0]
    labels = {
        0: "`mnist`, pose of the true class",
        control: "control: the same network, untrained",
        names.index("pixels"): "control: 16 principal components of the pixels",
        names.index(
            "pixels along random directions"
        ): "control: 16 random directions of the pixels",
        names.index("mnist-resnet"): "`mnist-resnet`, last features",
    }
    mean = result.mean[:, turn]
    rows = [[label, plain(mean[k]), str(one.runs)] for k, label in labels.items()]
    gains = {}
    for name in _nine():
        result_of = over_runs(_slim(name), "equivariance").result
        ((_, gains[name]),) = columns.over_untrained(result_of)
    higher = all(gain.low > 0 for gain in gains.values())
    known = everywhere("equivariance-*", "Result")
    other = {  # trained on other data than MNIST
        name: gain
        for name, one in known
        for _, gain in columns.over_untrained(one)
        if not name.startswith("`mnist")
    }
    return Finding(
        bool(mean[control].high < mean[0].low and mean[0].high < mean[names.index("pixels")].low)
        and higher
        and (len(other), sum(bool(gain.low > 0) for gain in other.values())) == (11, 5),
        "R² of an affine map under rotation",
        (1,),
        ["vector", "R² under rotation", "runs"],
        rows,
        [one.path],
        searches=_against_lawful(),
    )


def _against_lawful() -> list[Search]:
    """Search networks whose first source is the pose of the true class."""
    known = dict(everywhere("equivariance-*", "Result"))
    gains = {name: gain for name, one in known.items() for _, gain in columns.over_untrained(one)}
    pixels, directions = (
        {
            name: (one.mean[0, turn], one.mean[one.sources.index(source), turn])
            for name, one in known.items()
            for turn in [one.warps.index("rotation")]
        }
        for source in ("pixels", "pixels along random directions")
    )
    return [
        search("the untrained network is predicted better", "`digits-matrix` the opposite", gains,
               lambda one: one.high < 0),
        search("neither is shown to be predicted better",
               "in five no difference to the untrained", gains,
               lambda one: one.low <= 0 <= one.high),
        search("poses are predicted better than principal components of the pixels",
               "better than components", pixels, lambda both: both[0].low > both[1].high),
        search("poses are predicted worse than random directions of the pixels",
               "in nine networks", directions, lambda both: both[0].high < both[1].low),
        search("neither poses nor random directions are shown to be predicted better",
               "in six neither is shown", directions,
               lambda both: both[0].low <= both[1].high and both[1].low <= both[0].high),
    ]  # fmt: skip


def affine() -> Finding:
    """Compare accuracies inside and outside the training shift range."""
    inside, outside = {}, {}
    for name in (POOLED, *_nine()):
        inside[name], outside[name] = _affine(_slim(name))
    gains, losses = (
        {
            name: _paired(one.runs, where[POOLED].runs, AFFINE_MARGIN)
            for name, one in where.items()
            if name != POOLED
        }
        for where in (inside, outside)
    )
    routed = [  # minus uniform couplings, inside and outside
        {
            _label(name): _paired(one.runs, where["uniform"].runs, AFFINE_MARGIN)
            for name, one in where.items()
            if name not in (POOLED, "uniform")
        }
        for where in (inside, outside)
    ]
    pooled, capsules, resnet, entropic = map(
        _affine, ("mnist-pooling-plain", CAPSULES, RESNET, CROSS_ENTROPY)
    )
    longer = [
        gain(_paired(where.runs, place[POOLED].runs, AFFINE_MARGIN))
        for where, place in zip(_affine("mnist-attention"), (inside, outside), strict=True)
    ]
    (better, worse), ahead, behind, same_loss, behind_too = (
        [_paired(a.runs, b.runs, AFFINE_MARGIN) for a, b in zip(*both, strict=True)]
        for both in ((capsules, pooled), (resnet, pooled), (capsules, resnet), (entropic, pooled),
                     (entropic, resnet))
    )  # fmt: skip
    decoded = _paired(_affine(WITH_DECODER)[0].runs, resnet[0].runs, AFFINE_MARGIN)
    equal = "equal parameters, 10,000 images"
    rows = [
        [label, percent(within), apart[0], percent(beyond), apart[1], str(len(within.runs))]
        for label, within, beyond, *apart in (
            ("slim stem, dynamic", inside["dynamic"], outside["dynamic"],
             *(gain(where["dynamic"]) for where in (gains, losses))),
            (f"{equal}: dynamic", *capsules,
             *map(gain, (better, worse))),
            (f"{equal}: ResNet", *resnet, *map(gain, ahead)),
        )
    ]  # fmt: skip
    shifted = shipped("affnist.json")
    protocol = shifted.result
    for name, label in (("average", "ConvNet with pooling"), ("capsnet", "CapsNet")):
        k = protocol.networks.index(name)
        within, beyond = (percent(part[k]) for part in (protocol.inside, protocol.outside))
        count = str(len(protocol.seeds[k]))
        rows.append([f"affNIST protocol, {label}", within, NONE, beyond, NONE, count])
    return Finding(
        all(one.difference.value > 0 for one in gains.values())
        and sum(one.difference.low > 0 for one in gains.values()) > len(gains) / 2
        and all(gains[name].difference.low > 0 for name in WITH_CROSS_ENTROPY)
        and all(one.difference.high < 0 for one in (*losses.values(), worse))
        and better.difference.low > 0
        and behind[0].difference.low <= 0 <= behind[0].difference.high
        and behind[1].difference.high < 0
        and same_loss[0].difference.low > 0
        and max(one.difference.high for one in (same_loss[1], *behind_too)) < 0,
        "accuracy on affine digits, %",
        (1, 3),
        ["network", "inside", "less pooling, points", "outside", "less pooling, points", "runs"],
        rows,
        [shifted.path, *(f"trained/seeds/{_slim(name)}" for name in inside)],
        f"All {len(gains)} routings less pooling: {_range(gains)} points inside, "
        f"{_range(losses)} outside. Outside, dynamic routing less uniform couplings: "
        f"{gain(routed[1]['dynamic'])}. Self-attention after 30 epochs, less pooling after 10: "
        f"{longer[0]} inside, {longer[1]} outside. With equal parameters, dynamic less ResNet: "
        f"{gain(behind[0])} inside, {gain(behind[1])} outside; with cross-entropy, less ResNet: "
        f"{gain(behind_too[0])} inside, {gain(behind_too[1])} outside, less pooling: "
        f"{gain(same_loss[0])} inside, {gain(same_loss[1])} outside. "
        f"Inside, {_verdicts(gains)}. Outside, {_verdicts(losses)}.",
        [search("less accurate than pooling inside, three pairs", "behind pooling inside", gains,
                lambda one: one.difference.high < 0),
         search("more accurate than pooling outside, three pairs", "some are ahead outside", losses,
                lambda one: one.difference.low > 0),
         *(search(f"more accurate than uniform couplings {place}, three pairs",
                  "some are ahead of uniform couplings", some, lambda one: one.difference.low > 0)
           for place, some in zip(("inside", "outside"), routed, strict=True)),
         search("less accurate than uniform couplings inside, three pairs", "two are behind inside",
                routed[0], lambda one: one.difference.high < 0),
         search("less accurate than uniform couplings outside, three pairs",
                "six of eight are behind outside", routed[1], lambda one: one.difference.high < 0),
         search("less accurate than the small ResNet inside, ten pairs",
                "ahead of capsules with a decoder",
                {"dynamic": behind[0], "dynamic with decoder": decoded,
                 "dynamic with cross-entropy": behind_too[0]},
                lambda one: one.difference.high < 0),
         search("more accurate than the small ResNet outside, ten pairs",
                "ahead of a ResNet outside",
                {"dynamic": behind[1], "dynamic with cross-entropy": behind_too[1]},
                lambda one: one.difference.low > 0)],
        drawn=[
            ["slim stem, pooling", percent(inside[POOLED]), "", percent(outside[POOLED])],
            rows[0],
            [f"{equal}: pooling", percent(pooled[0]), "", percent(pooled[1])],
            *rows[1:],
        ],
    )  # fmt: skip


def _range(differences: dict[str, Paired]) -> str:
    values = [float(one.difference.value) for one in differences.values()]
    return f"{min(values):+.1f} to {max(values):+.1f}"


EXCHANGED, ANOTHER = "quarters exchanged", "lower half of another class"
SHIFTED, WHOLE = "lower half shifted", "control: whole digit shifted"
BROKEN = {  # kind in a result -> label on the page
    "quarters exchanged": EXCHANGED,
    "halves of two classes": ANOTHER,
    "lower half shifted": SHIFTED,
    "halves of one class": "control: lower half of the same class",
    "whole shifted": WHOLE,
}


CAPSULES, WITH_DECODER = "mnist-capsules-plain", "mnist-capsules-decoder"
CROSS_ENTROPY = "mnist-capsules-cross-entropy"  # capsules with the loss of networks without them
RESNET = "mnist-resnet-small-fp32"
SAME_LOSS = " (both with cross-entropy)"
ENTROPIC_POOLING, ENTROPIC_RESNET = f"pooling{SAME_LOSS}", f"a ResNet{SAME_LOSS}"
# label -> (network, capsule network with as many parameters), both trained on 10,000 images
WITHOUT_CAPSULES = {
    "pooling": ("mnist-pooling-plain", CAPSULES),
    "wider pooling (capsules with a decoder)": ("mnist-pooling-decoder", WITH_DECODER),
    "a ResNet": (RESNET, CAPSULES),
    ENTROPIC_POOLING: ("mnist-pooling-plain", CROSS_ENTROPY),
    ENTROPIC_RESNET: (RESNET, CROSS_ENTROPY),
}
SERIES = "mnist-slim-max-min-decoder-fp32"  # three runs, attacked with a detector in place
NEAREST = "pixels: nearest image"
LENGTH, SHARE = "length", "share"  # scores of capsules
Leads = dict[tuple[str, str], dict[str, Estimate]]  # (network, score) -> change -> lead


def broken() -> Finding:
    """Compare the detection of digits with exchanged or shifted parts."""
    one = shipped("parts-mnist-*-images.json")
    resnet = one.result.scores.index("mnist-resnet: largest score")
    runs = {
        name: over_runs(name, "parts").result.auroc
        for name in dict.fromkeys(name for both in WITHOUT_CAPSULES.values() for name in both)
    }
    shares = [[each["auroc"][kind] for kind in BROKEN] for each in read("broken")[CROSS_ENTROPY]]

    def leads_of(own, without: str) -> dict[str, Estimate]:
        pairs = zip(np.transpose(own), runs[without].runs[:, 0].T, strict=True)
        return dict(zip(BROKEN.values(), (lead(*pair) for pair in pairs), strict=True))

    leads: Leads = {
        (other, LENGTH): leads_of(runs[capsules].runs[:, 0], without)
        for other, (without, capsules) in WITHOUT_CAPSULES.items()
    } | {
        (other, SHARE): leads_of(shares, without)
        for other, (without, capsules) in WITHOUT_CAPSULES.items()
        if capsules == CROSS_ENTROPY
    }
    single = dict(zip(BROKEN.values(), one.result.auroc.difference[resnet] * -1, strict=True))
    entropic, by_share = leads[ENTROPIC_RESNET, LENGTH], leads[ENTROPIC_RESNET, SHARE]
    shown = {
        "less pooling": leads["pooling", LENGTH],
        "less a ResNet": leads["a ResNet", LENGTH],
        "cross-entropy: less a ResNet, share": by_share,
        "cross-entropy: less a ResNet, length": entropic,
        "`mnist` less `mnist-resnet`, one run": single,
    }
    rows = []
    for k, label in enumerate(BROKEN.values()):
        own, nearest = runs[CAPSULES][0, k], runs[CAPSULES][-1, k]
        numbers = [own, *(some[label] for some in shown.values()), nearest]
        forms = [".3f", *["+.3f"] * len(shown), ".3f"]
        rows.append([label, *map(plain, numbers, forms), "10"])
    against_pooling = ", ".join(
        f"{label} {plain(leads[ENTROPIC_POOLING, SHARE][label], '+.3f')}"
        for label in (EXCHANGED, ANOTHER, SHIFTED)
    )
    cost = lead(*(np.array(list(accuracies(name).values())) for name in (CROSS_ENTROPY, CAPSULES)))
    as_trained = [  # with the score that the loss trains
        some
        for (other, score), some in leads.items()
        if (score == SHARE) == other.endswith(SAME_LOSS)
    ]
    by_length = [some for (_, score), some in leads.items() if score == LENGTH]
    return Finding(
        all(some[label].low > 0 for some in as_trained for label in (EXCHANGED, ANOTHER, WHOLE))
        and all(some[SHIFTED].high < 0 for some in by_length)
        and by_share[SHIFTED].low > 0
        and max(leads[name, LENGTH][ANOTHER].high for name in (ENTROPIC_POOLING, ENTROPIC_RESNET))
        < 0,
        "AUROC of capsules less that of networks without",
        (2, 3, 4, 5),
        ["change", "AUROC, capsules", *shown, "control: AUROC, nearest intact image", "runs"],
        rows,
        [one.path, *(over_runs(name, "parts").path for name in runs)],
        "Except for `mnist` and `mnist-resnet`, networks have equal parameters and ten runs of "
        "equal seeds on 10,000 images. Capsules were trained with the margin loss unless the "
        "column says cross-entropy; pooling and capsules with the margin loss in bfloat16, the "
        "rest in float32. Length: that of the longest class capsule. Share: its part of the sum of "
        "all lengths (`python -m benchmarks.broken mnist-capsules-cross-entropy "
        "runs/mnist-capsules-cross-entropy-*`). By share, capsules less pooling, both with "
        "cross-entropy: "
        f"{against_pooling}. Accuracy of capsules with cross-entropy less that with the margin "
        f"loss: {plain(cost, '+.2f')} points.",
        _against_broken(leads, single),
    )  # fmt: skip


def lead(one: np.ndarray, other: np.ndarray) -> Estimate:
    """Return the mean difference of two recipes, paired by seed."""
    return equivalence.paired(one, other, MARGIN).difference


def difference(one: Estimate, other: Estimate) -> Estimate:
    """Return one minus the other, paired by run; for too few runs, by the ends of the intervals."""
    if one.training_runs < equivalence.FEWEST:
        ends = np.array([one.low - other.high, one.high - other.low])
        return Estimate(one.value - other.value, ends)
    return lead(one.runs, other.runs)


def _against_broken(leads: Leads, single: dict[str, Estimate]) -> list[Search]:
    """Search networks without capsules, and compare the nearest intact image with all others."""
    exchanged = {
        f"{label}, {other}, by {score}": (some[label], lead(some[label].runs, some[WHOLE].runs))
        for (other, score), some in leads.items()
        for label in (EXCHANGED, ANOTHER)
    }
    shifted = {f"{other}, by {score}": some[SHIFTED] for (other, score), some in leads.items()}
    areas = {
        f"{name}, {BROKEN[kind]}": one.auroc[[0, one.scores.index(NEAREST)], k]
        for name, one in everywhere("parts-*", "Result")
        for k, kind in enumerate(one.kinds)
    }
    return [
        search("capsules are behind for exchanged parts", "worse for the half of another class",
               exchanged, lambda both: both[0].high < 0),
        search("the lead is smaller than for a digit shifted as a whole",
               "over the ResNet is larger", exchanged, lambda both: both[1].high < 0),
        search("capsules are ahead for the shifted lower half",
               "by share they are better than the ResNet", shifted, lambda one: one.low > 0),
        search("`mnist` is ahead of `mnist-resnet` for the shifted lower half",
               "ahead of its ResNet for", {SHIFTED: single[SHIFTED]}, lambda one: one.low > 0),
        search("`mnist` is not ahead of `mnist-resnet` for exchanged parts", "not for quarters",
               {label: single[label] for label in (EXCHANGED, ANOTHER)}, lambda one: one.low <= 0),
        search("the nearest intact image is ahead of capsule length",
               "the nearest other intact image does better", areas,
               lambda both: both[1].low > both[0].high),
    ]  # fmt: skip


def detection() -> Finding:
    """Evaluate the detection of attacks by reconstruction."""
    sources = {
        "mnist": shipped("detect-mnist-*.json"),
        "mnist-attention": shipped("leaderboard/mnist-attention/detect-*.json"),
        SERIES: over_runs(SERIES, "detect"),
    }
    rows, evaded = [], []
    for name, attack in (
        *(("mnist", attack) for attack in ("APGD 0.1", "adaptive 0.1", "adaptive 0.3")),
        ("mnist-attention", "adaptive 0.3"),
        (SERIES, "adaptive 0.3"),
    ):
        result = sources[name].result
        k, average = result.sets.index(attack), result.scores.index("class average")
        areas = [plain(result.auroc[k - 1, score]) for score in (0, average)]
        share = result.undetected[k]
        if attack == "adaptive 0.3":
            evaded.append(share)
        rows.append([f"`{name}`", attack, percent(share), *areas, str(sources[name].runs)])
    attacked = {
        attack: {
            name: one.undetected[one.sets.index(attack)]
            for name, one in everywhere("detect-*", "Result")
        }
        for attack in ("APGD 0.1", "APGD 0.3", "adaptive 0.3")
    }
    averages = {
        name: one.auroc[one.sets.index("APGD 0.1") - 1][[0, one.scores.index("class average")]]
        for name, one in everywhere("detect-*", "Result")
    }
    flagged = sources["mnist"].result.flagged[0]
    return Finding(
        all(one.low > 0.5 for one in (*evaded, *attacked["adaptive 0.3"].values()))
        and bool(attacked["APGD 0.1"]["`mnist`"].high < 0.1),
        "images misclassified and not flagged, %",
        (2,),
        ["network", "attack, ε", "misclassified and not flagged", "AUROC, winning capsule",
         "control: AUROC, class average", "runs"],
        rows,
        [one.path for one in sources.values()],
        f"Flagged of unchanged images: {percent(flagged)} (`mnist`).",
        [search("fewer than half evade by the adaptive attack at 0.3", "holds against it",
                attacked["adaptive 0.3"], lambda one: one.high < 0.5),
         *(search(f"more than {100 * share:g} % evade by {attack}, which ignores the detector",
                  said, attacked[attack], lambda one, share=share: one.low > share)
           for attack, share, said in (
               ("APGD 0.1", 0.1, "in most other networks more than a tenth"),
               ("APGD 0.1", 0.5, "in some more than half"),
               ("APGD 0.3", 0.1, "still more than a tenth in some"),
           )),
         search("the class average separates APGD 0.1 as well", "as well in seven", averages,
                lambda one: one[1].value >= one[0].value)],
    )  # fmt: skip


def binding() -> Finding:
    """Score couplings by the true assignment of parts to wholes."""
    every, rows = bound(), {}
    known = {label: one.result for label, one in every.items()}
    for label, result in known.items():
        areas = [plain(_area(result, score)) for score in (COUPLING, ALONE, EVIDENCE, UNIFORM)]
        follow = [percent(result.follows[k, -1]) for k in (0, 1)]
        rows[label] = [label, *areas, *follow, str(result.viewpoint.training_runs)]
    dynamic = known["dynamic"]
    return Finding(
        10 * sum(_less(one, COUPLING, ALONE).low > 0 for one in known.values()) < len(known)
        and bool(dynamic.follows.low[0, -1] > 0.9 > dynamic.follows.high[1, -1]),
        "AUROC: to which whole does a position belong?",
        (1, 2),
        ["routing", "coupling", "control: probe of the position alone", "evidence",
         "evidence, uniform couplings", "couplings follow the unseen part",
         "control: couplings of a distractor follow", "runs"],
        [rows[name] for name in ("dynamic", "em", "variational, shared matrices", "self-routing",
                                 "uniform")],
        [one.path for one in every.values()],
        searches=[
            search("couplings are ahead of the probe", "better only with", known,
                   lambda one: _less(one, COUPLING, ALONE).low > 0),
            search("couplings are behind the probe", "mostly assign positions to wholes less well",
                   known, lambda one: _less(one, COUPLING, ALONE).high < 0),
            search("couplings are not shown to be behind the probe, between classes of the same "
                   "parts", "between classes of the same parts in", known,
                   lambda one: _less(one, COUPLING, ALONE, SAME_PARTS).high >= 0),
            search("couplings of a distractor follow in 90 % as many pairs or more",
                   "in about as many pairs", known,
                   lambda one: one.follows.value[1, -1] >= 0.9 * one.follows.value[0, -1] > 0.45),
            search("couplings follow the unseen part in no more than half of the pairs",
                   "not shown with k-means", known, lambda one: one.follows.low[0, -1] <= 0.5),
            search("evidence is behind with uniform couplings", "a little worse", known,
                   lambda one: _less(one, EVIDENCE, UNIFORM).low > 0),
            search("evidence is ahead with uniform couplings", "a little worse or better", known,
                   lambda one: _less(one, EVIDENCE, UNIFORM).high < 0),
        ],
        drawn=list(rows.values()),
    )  # fmt: skip


ALL_PARTS, SAME_PARTS = 0, 2  # index of the subset of positions of an AUROC


def _less(result, score: str, other: str, where: int = ALL_PARTS) -> Estimate:
    """Return the AUROC of a score minus that of another."""
    return difference(_area(result, score, where), _area(result, other, where))


def _area(result, name: str, where: int = ALL_PARTS) -> Estimate:
    """Return the AUROC of a score for the assignment of positions to wholes."""
    return result.assignment[result.scored.index(name), where]


FINDINGS: dict[str, Callable[[], Finding]] = {
    "transplant": transplant, "iterations": iterations, "by-class": by_class, "stays": stays,
    "sharpness": sharpness, "maps": maps, "lawful": lawful, "affine": affine, "broken": broken,
    "detection": detection, "binding": binding,
}  # fmt: skip


def table(name: str) -> str:
    """Return the table of a finding, for docs/findings.md."""
    return FINDINGS[name]().table()


def titles() -> str:
    """Return the headings of docs/findings.md as a list, for README."""
    headings = re.findall(r"^## (\d+\. .+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return "\n".join(f"{heading}." for heading in headings)


def write() -> None:
    """Write the pictures of docs/findings.md."""
    for name, finding in FINDINGS.items():
        write_text(FOLDER / f"{name}.svg", finding().picture())


if __name__ == "__main__":
    write()
