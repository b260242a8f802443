"""Tables and pictures of docs/findings.md, from the shipped results.

`make readme` fills in the tables and draws the pictures. Sentences are written by hand in the page;
each finding here says whether its intervals support them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import dots
from benchmarks.dots import Number
from benchmarks.shipped import LAWS, ROOT, Source, over_runs, shipped
from capsviz import checkpoint, discovery
from capsviz.analyses.transplant.pairs_by_dose import DONOR, SHUFFLED, dose_text
from capsviz.files import write_text
from capsviz.nn import routing as routings
from capsviz.results import leaderboard, paired
from capsviz.results.leaderboard import columns
from capsviz.results.tables import markdown
from capsviz.statistics import equivalence
from capsviz.statistics.equivalence import Paired
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import mean_interval

PAGE = ROOT / "docs/findings.md"
FOLDER = ROOT / "docs/findings"  # of the pictures
NONE = "–"
BY_DOSE = "couplings-by-dose-*-images.json"


class Finding(NamedTuple):
    """The table and the picture of a finding, and whether they support its sentence."""

    holds: bool  # whether the intervals support it
    axis: str  # of the picture: what the plotted columns are
    plotted: tuple[int, ...]  # columns of the table
    header: list[str]
    rows: list[list[str]]
    sources: list[str]  # files, from the root of the checkout
    note: str = ""  # below the table

    def table(self) -> str:
        """Return the table, with a warning above it if the sentence no longer holds."""
        warning = "" if self.holds else "**The shipped results no longer support this.**\n\n"
        note = f"\n\n{self.note}" if self.note else ""
        return f"{warning}{markdown(self.header, self.rows).rstrip()}{note}"

    def picture(self) -> str:
        """Return the picture, an SVG of the plotted columns."""
        names = [self.header[k].replace("`", "") for k in self.plotted]
        alike = len({row[0] for row in self.rows}) < len(self.rows)
        rows = [
            (", ".join(row[: 1 + alike]).replace("`", ""), [row[k] for k in self.plotted])
            for row in self.rows
        ]
        return dots.draw(self.axis, names, rows)


def percent(estimate: Estimate, digits: int = 1) -> Number:
    """Return a share and its interval with one sign of percent: 93.7 [92.0, 95.0] %."""
    return _number(estimate, 100, f".{digits}f", " %")


def points(estimate: Estimate) -> Number:
    """Return a difference of shares in percentage points, with its sign."""
    return _number(estimate, 100, "+.2f")


def plain(estimate: Estimate, form: str = ".2f") -> Number:
    """Return a number and its interval: 0.89 [0.89, 0.90]."""
    return _number(estimate, 1, form)


def _number(estimate: Estimate, scale: float, form: str, unit: str = "") -> Number:
    value, low, high = (scale * float(end) for end in (estimate.value, estimate.low, estimate.high))
    return Number(f"{value:{form}} [{low:{form}}, {high:{form}}]{unit}", (value, low, high))


def transplant() -> Finding:
    """Couplings can carry the class, and the dose at which they do."""
    mnist = shipped("transplant-mnist-1000-images.json")
    two = "mnist-2-iterations-10-epochs"
    each = {
        ("`mnist`", "3"): mnist,
        ("`mnist`, trained with 2 iterations", "2"): over_runs(two, "transplant", iterations=None),
        ("the same", "3"): over_runs(two, "transplant", iterations=3),
        ("the same", "5"): over_runs(two, "transplant", iterations=5),
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

    def share(one: Source, condition: str) -> Estimate:
        return one.result.as_partner[one.result.conditions.index(condition)]

    donor, shuffled = "of an unlike image", "unlike's, shuffled"
    rows = []
    for (network, iterations), one in each.items():
        control, halves = NONE, [NONE, NONE, NONE]
        if shuffled in one.result.conditions:
            control = percent(share(one, shuffled))
        if network in dosed:
            result = dosed[network].result
            halves = [dose_text(result, kind) for kind in (DONOR, SHUFFLED)]
            halves.append(percent(result.at(DONOR, -1)))
        rows.append(
            [
                network,
                f"{iterations} iterations",
                f"{float(one.result.coupling_sd.value[0]):.4f}",
                percent(share(one, donor)),
                control,
                *halves,
                str(one.runs),
            ]
        )
    more = [share(one, donor) for one in list(each.values())[1:4]]
    noise = mnist.result.as_own[mnist.result.conditions.index("noise, equal sd")]
    first, *others = (one.result for one in dosed.values())
    at_half = float(first.half.high[first.conditions.index(DONOR)])
    return Finding(
        bool(share(mnist, donor).low > 0.5 > share(mnist, shuffled).high and noise.low > 0.9)
        and bool(more[0].high < more[1].low)
        and at_half < 1
        and first.at(DONOR, -1).low > 0.5
        and all(one.at(DONOR, 1).high < 0.5 for one in others)
        and all(one.half.value[one.conditions.index(DONOR)] > 1 for one in others),
        "images predicted as the donor's class, %",
        (3, 4),
        ["network", "routing", "s.d. of couplings", "predicted as the donor's class",
         "control: donor's couplings, shuffled", "dose at which 50 % follow", "the same, shuffled",
         "predicted as the donor's class at dose -1", "runs"],
        rows,
        [one.path for one in (*each.values(), *dosed.values())],
        "Dose: factor of the deviation of the donor's couplings from uniform.",
    )  # fmt: skip


def iterations() -> Finding:
    """Iterations at test time and in training."""
    each = {
        "mnist": shipped("routing-mnist-*-images.json"),
        "mnist-10-epochs": over_runs("mnist-10-epochs", "routing"),
        "digits-dynamic": over_runs("digits-dynamic", "routing"),
        "cifar10": over_runs("cifar10", "routing"),
    }
    rows = []
    for name, one in each.items():
        last = len(one.result.entropy_nats) - 1
        changed, gain = one.result.changed[last], one.result.accuracy.difference[last]
        rows.append([f"`{name}`", "at test time", percent(changed, 2), points(gain), str(one.runs)])
    pairs = iteration_pairs()
    means = np.array([np.mean(gains) for gains in pairs.values()])
    over_recipes = equivalence.paired(100 * means, np.zeros(len(means)), MARGIN)
    gain = over_recipes.difference * 0.01
    each_recipe = {
        name: equivalence.paired(
            100 * np.array(gains), np.zeros(len(gains)), MARGIN, resolution=0.01
        )
        for name, gains in pairs.items()
        if len(gains) >= equivalence.FEWEST
    }
    count = sum(map(len, pairs.values()))
    rows.append(
        [
            f"{len(pairs)} recipes on MNIST, in training",
            "in training",
            NONE,
            points(gain),
            f"{count} pairs",
        ]
    )
    mnist = each["mnist"].result
    return Finding(
        bool(mnist.changed[len(mnist.entropy_nats) - 1].high < 0.01 and gain.low > 0),
        "accuracy gained by three iterations, points",
        (3,),
        ["network", "three iterations instead of one", "predictions changed",
         "accuracy gained, points", "runs"],
        rows,
        [*(one.path for one in each.values()), *map(str, _cards())],
        f"In training, over the means of {len(means)} recipes, the verdict is "
        f"{paired.verdict(over_recipes, 'the accuracy with three iterations', 'with one')}. "
        f"Of the {len(each_recipe)} recipes with three pairs, {_verdicts(each_recipe, MARGIN)}.",
    )  # fmt: skip


MARGIN = paired.MARGIN  # points of accuracy
ONE_IMAGE = 0.01  # points, of 10,000
AFFINE_MARGIN = 1.0  # points of accuracy on affine digits


def _verdicts(tested: dict[str, Paired], margin: float) -> str:
    """Return how many of several comparisons have each verdict, and what they could have shown."""
    verdicts = [one.verdict for one in tested.values()]
    different, equivalent, open_ = map(
        verdicts.count, (equivalence.DIFFERENT, equivalence.EQUIVALENT, equivalence.NOT_SETTLED)
    )
    could = [one.detectable for one in tested.values()]
    return (
        f"{different} are different, {equivalent} equivalent within ±{margin:g} points and {open_} "
        f"not settled; the smallest detectable difference is {np.median(could):.2f} points "
        f"(median; {min(could):.2f} to {max(could):.2f}, 80 % power)"
    )


ONE_ITERATION = {"routing-1": "routing-3", "uniform": "dynamic"}  # one and three iterations


def iteration_pairs() -> dict[str, list[float]]:
    """Return, by recipe, the accuracy gained by training with three iterations, for each seed."""
    result = defaultdict(list)
    for one, three in _card_pairs():
        recipe = f"{one.parent.name}/{one.stem.rpartition('-')[0]}"
        result[recipe].append(_accuracy(three) - _accuracy(one))
    return dict(result)


def _card_pairs() -> list[tuple[Path, Path]]:
    folder = discovery.folder(checkpoint.SHIPPED) / "reproduce"
    return [
        (path, other)
        for path in sorted(folder.glob("*-epochs/mnist-*.json"))
        for one, three in ONE_ITERATION.items()
        if (other := path.with_name(path.name.replace(one, three))) != path and other.is_file()
    ]


def _cards() -> list[str]:
    root = discovery.folder(checkpoint.SHIPPED)
    return [f"trained/{card.relative_to(root)}" for pair in _card_pairs() for card in pair]


def _accuracy(path: Path) -> float:
    return json.loads(path.read_text(encoding="utf-8"))["results"]["test"]["accuracy"]


def by_class() -> Finding:
    """Variance of couplings with the class."""
    mnist = shipped("parse-tree-mnist-*-images.json")
    others = ("mnist-10-epochs", "mnist-attention", "digits-self-attention",
              "digits-slim-inverted_attention")  # fmt: skip
    each = {"mnist": mnist} | {name: over_runs(name, "parse-tree") for name in others}
    rows, shares = [], []
    for name, one in each.items():
        share, fresh = with_class(one.result.shares[0]), "freshly initialised"
        shares.append(share)
        untrained = NONE
        if fresh in one.result.networks:
            untrained = percent(with_class(one.result.shares[one.result.networks.index(fresh)]))
        controls = [untrained, percent(with_class(one.result.shuffled))]
        rows.append([f"`{name}`", percent(share), *controls, str(one.runs)])
    return Finding(
        bool(shares[0].low > 0.5) and sum(one.low > 0.5 for one in shares) > len(shares) / 2,
        "variance of couplings that goes with the class, %",
        (1, 2, 3),
        ["network", "variance that goes with the class", "control: untrained",
         "control: labels shuffled", "runs"],
        rows,
        [one.path for one in each.values()],
    )  # fmt: skip


def with_class(shares: Estimate) -> Estimate:
    """Return the share of variance that goes with the class, of shares (7,).

    It is the sum of two components. The ends of their intervals are added, which is wider than
    need be; over runs the margins over images are added to that of the runs' sums in squares.
    """
    both = shares[4:6]
    value = both.value.sum()
    if both.runs is None:
        return Estimate(value, both.ci95.sum(0), shares.n)
    each, whole = (mean_interval(runs)[1] for runs in (both.runs, both.runs.sum(-1)))
    of_runs, margins = (np.abs(ends - both.value[:, None]) for ends in (each, both.ci95))
    images = np.sqrt(np.maximum(margins**2 - of_runs**2, 0)).sum(0)
    low, high = np.hypot(images, np.abs(whole - value))
    return Estimate(value, np.stack([value - low, value + high]), shares.n)


def stays() -> Finding:
    """Couplings of a shifted digit."""
    each = {
        "mnist": shipped("parse-tree-mnist-*-images.json"),
        "mnist-10-epochs": over_runs("mnist-10-epochs", "parse-tree"),
        "digits-paper-stem": over_runs("digits-paper-stem", "parse-tree"),
    }
    rows, stay = [], []
    for name, one in each.items():
        moved, same, other = one.result.correlation[one.result.trees.index("whole tree")][:3]
        stay.append(bool(same.low > moved.high))
        numbers = [plain(k) for k in (same, moved, other)]
        rows.append([f"`{name}`", *numbers, str(one.runs)])
    return Finding(
        all(stay),
        "correlation of couplings before and after a shift",
        (1, 2, 3),
        ["network", "correlation at the same position", "at the position the digit moved to",
         "control: opposite position", "runs"],
        rows,
        [one.path for one in each.values()],
    )  # fmt: skip


SLIM, EPOCHS = "mnist-slim-", "-10-epochs"
POOLED = "pooled"  # the stem without capsules


def sharpness() -> Finding:
    """Sharpness and accuracy of nine routings."""
    rows = {row.network.name: row for row in leaderboard.table()}
    known = {
        name: rows[f"{SLIM}{name}{EPOCHS}"]
        for name in (*routings.available(), POOLED)
        if f"{SLIM}{name}{EPOCHS}" in rows
    }
    pooled, uniform = known.pop(POOLED, None), known.get("uniform")
    if pooled is None or uniform is None:
        raise FileNotFoundError(f"trained/seeds/{SLIM}*")
    parents = {}
    for name in known:
        ((_, parents[name]),) = columns.parents(
            over_runs(f"{SLIM}{name}{EPOCHS}", "routing").result
        )
    runs = {name: row.network.accuracy.runs for name, row in known.items()}
    even = runs.pop("uniform")
    best = max(runs, key=lambda name: float(np.mean(runs[name])))
    sharpest = min(known, key=lambda name: float(parents[name].value))
    tests = {name: _paired(one, even, MARGIN, ONE_IMAGE) for name, one in runs.items()}
    less_pooling = {
        name: _paired(row.network.accuracy.runs, pooled.network.accuracy.runs, MARGIN, ONE_IMAGE)
        for name, row in known.items()
    }
    if len({tuple(row.network.seeds) for row in (*known.values(), pooled)}) > 1:
        raise ValueError("the runs of the nine routings and of pooling have different seeds")
    above = sum(
        row.network.accuracy.value > pooled.network.accuracy.value for row in known.values()
    )
    table = []
    for name in dict.fromkeys((sharpest, best, "dynamic", "uniform", POOLED)):
        row = pooled if name == POOLED else known[name]
        share = NONE if name == POOLED else percent(parents[name], 0)
        gain = points(tests[name].difference * 0.01) if name in tests else NONE
        accuracy = percent(row.network.accuracy, 2)
        table.append([_label(name), share, accuracy, gain, str(len(row.network.seeds))])
    return Finding(
        not any(one.difference.low > 0 for one in tests.values())
        and above == len(known) == 9,
        "accuracy, %",
        (2,),
        ["routing", "effective number of parents, share of all", "accuracy",
         "accuracy less that of uniform, points", "runs"],
        table,
        sorted(
            f"trained/seeds/{row.network.name}" for row in (*known.values(), pooled)
        ),
        f"Differences are paired by seed. Of {len(tests)} routings against uniform, "
        f"{_verdicts(tests, MARGIN)}. Of {len(less_pooling)} routings against pooling, "
        f"{_verdicts(less_pooling, MARGIN)}. Nothing is corrected for the number of comparisons.",
    )  # fmt: skip


def _paired(one: np.ndarray, other: np.ndarray, margin: float, resolution: float = 0.0) -> Paired:
    """Return the test of two recipes' shares over runs of equal seed, in percentage points."""
    return equivalence.paired(100 * one, 100 * other, margin, resolution=resolution)


def _label(name: str) -> str:
    return "pooling, no capsules" if name == POOLED else name.replace("_", "-")


def maps() -> Finding:
    """Maps of routing, judged in pixels and at positions."""
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

    def of(source: Source, name: str, field: str = "gap") -> Estimate:
        return getattr(source.result, field)[source.result.names.index(name)]

    attention = shipped(stem.format("mnist-attention-mnist-capsules"))
    clutter, single = (
        shipped(stem.format(f"mnist-{kind}")) for kind in ("positions-cluttered", "capsules")
    )
    sources = [pixels, *each.values(), attention]
    rows = [
        [label, *(plain(of(one, name), ".3f") for one in sources),
         plain(of(each["`multimnist`"], name, "apart")), str(pixels.runs)]
        for name, label in labels.items()
    ]  # fmt: skip

    def apart(name: str, sign: int) -> str:
        less = {label: of(one, name, "routed_less") * sign for label, one in each.items()}
        return ", ".join(f"{plain(one, '+.3f')} in {label}" for label, one in less.items())

    alone = [plain(of(single, name), ".3f") for name in (routed, uniform, effect)]
    evenly = [plain(of(pixels, f"{name}, evenly"), ".3f") for name in (routed, "random map")]
    digit = plain(of(clutter, routed, "apart"))
    return Finding(
        all(of(one, name, "routed_less").low > 0 for one in sources[1:] for name in chance)
        and all(of(one, uniform, "routed_less").high < 0.01 for one in each.values())
        and bool(of(attention, uniform, "routed_less").low > 0)
        and all(of(pixels, name, "routed_less").low <= 0 for name in (*chance, effect)),
        "area between insertion and deletion",
        (2, 1, 5),
        ["map", "`mnist`, pixels", *(f"{name}, positions" for name in each),
         "`mnist-attention`, capsules", "AUROC of the first digit's positions, `multimnist`",
         "runs"],
        rows,
        [one.path for one in (*sources, clutter, single)],
        f"Routing map less the same with uniform couplings, paired: {apart(uniform, 1)}. Gradient "
        f"less routing map: {apart('gradient', -1)}. Divided evenly among pixels, the routing map "
        f"has {evenly[0]} and a random one {evenly[1]}. For a digit among clutter, the AUROC of "
        f"the routing map is {digit} (`mnist`). Over single primary capsules of `mnist` the "
        f"routing map has {alone[0]}, with uniform couplings {alone[1]}, and the removal effect "
        f"{alone[2]}.",
    )  # fmt: skip


def lawful() -> Finding:
    """Poses of rotated digits."""
    one = shipped(LAWS)
    result = one.result
    turn, names = result.warps.index("rotation"), result.sources
    fresh = next(k for k, name in enumerate(names) if "freshly initialised" in name)
    labels = {
        0: "`mnist`, pose of the true class",
        fresh: "control: the same network, untrained",
        names.index("pixels"): "control: 16 principal components of the pixels",
        names.index(
            "pixels along random directions"
        ): "control: 16 random directions of the pixels",
        names.index("mnist-resnet"): "`mnist-resnet`, last features",
    }
    mean = result.mean[:, turn]
    rows = [[label, plain(mean[k]), str(one.runs)] for k, label in labels.items()]
    gains = {}
    for name in routings.available():
        ((_, gain),) = columns.over_fresh(over_runs(f"{SLIM}{name}{EPOCHS}", "equivariance").result)
        gains[name] = gain
    higher = all(gain.low > 0 for gain in gains.values())
    small = [
        next(gain for _, gain in columns.over_fresh(over_runs(name, "equivariance").result))
        for name in ("digits-dynamic", "digits-self-attention")
    ]
    return Finding(
        bool(mean[fresh].high < mean[0].low and mean[0].high < mean[names.index("pixels")].low)
        and higher
        and all(gain.low <= 0 <= gain.high for gain in small),
        "R² of an affine map under rotation",
        (1,),
        ["vector", "R² under rotation", "runs"],
        rows,
        [one.path],
    )


def affine() -> Finding:
    """Inside and outside the training shift range."""
    inside, outside, runs, files = {}, {}, {}, []
    for name in (POOLED, *routings.available()):
        one = over_runs(f"{SLIM}{name}{EPOCHS}", "affine")
        ((_, inside[name]),), ((_, outside[name]),) = (
            list(columns.affine(place, one.result)) for place in (1, 2)
        )
        runs[name] = one.runs
        files.append(one.path)
    gains, losses = (
        {
            name: _paired(one.runs, where[POOLED].runs, AFFINE_MARGIN)
            for name, one in where.items()
            if name != POOLED
        }
        for where in (inside, outside)
    )
    rows = []
    for name in (POOLED, "uniform", "dynamic"):
        apart = points(losses[name].difference * 0.01) if name in losses else NONE
        better = points(gains[name].difference * 0.01) if name in gains else NONE
        numbers = [percent(inside[name]), better, percent(outside[name]), apart]
        rows.append([f"slim stem, {_label(name)}", *numbers, str(runs[name])])
    shifted = shipped("affnist.json")
    for name, label in (("average", "ConvNet with pooling"), ("capsnet", "CapsNet")):
        k = shifted.result.networks.index(name)
        numbers = [percent(shifted.result.within[k]), NONE, percent(shifted.result.beyond[k]), NONE]
        rows.append([f"affNIST protocol, {label}", *numbers, str(len(shifted.result.seeds[k]))])
    return Finding(
        all(one.difference.value > 0 for one in gains.values())
        and sum(one.difference.low > 0 for one in gains.values()) > len(gains) / 2
        and all(one.difference.high < 0 for one in losses.values()),
        "accuracy on affine digits, %",
        (1, 3),
        ["network", "inside", "less pooling, points", "outside", "less pooling, points", "runs"],
        rows,
        [shifted.path, *files],
        f"All nine routings less pooling: {_range(gains)} points inside, {_range(losses)} outside. "
        f"Differences are paired by seed. Inside, {_verdicts(gains, AFFINE_MARGIN)}. "
        f"Outside, {_verdicts(losses, AFFINE_MARGIN)}. "
        "Nothing is corrected for the number of comparisons.",
    )


def _range(differences: dict[str, Paired]) -> str:
    values = [float(one.difference.value) for one in differences.values()]
    return f"{min(values):+.1f} to {max(values):+.1f}"


def broken() -> Finding:
    """Digits with exchanged or shifted parts."""
    one = shipped("parts-mnist-*-images.json")
    result = one.result
    other, nearest = map(
        result.scores.index, ("mnist-resnet: largest score", "pixels: nearest image")
    )
    labels = {
        "quarters exchanged": "quarters exchanged",
        "halves of two classes": "lower half of another class",
        "lower half moved": "lower half shifted",
        "halves of one class": "control: lower half of the same class",
        "whole moved": "control: whole digit shifted",
    }
    rows, apart, pixels = [], [], []
    for kind, label in labels.items():
        area = result.auroc[:, result.kinds.index(kind)]
        gain = area.difference[other] * -1
        pixels.append(area[nearest].low > max(area[0].high, area[other].high))
        apart.append(gain)
        numbers = [plain(area[k], ".3f") for k in (0, other)]
        rows.append([label, *numbers, plain(gain, "+.3f"), plain(area[nearest], ".3f"), "1"])
    return Finding(
        bool(apart[0].low <= 0 <= apart[0].high)
        and all(gain.low > 0 for gain in apart[1:])
        and any(pixels),
        "AUROC for changed against intact digits",
        (1, 2, 4),
        ["change", "capsule length (`mnist`)", "largest score (`mnist-resnet`)",
         "difference, paired", "control: nearest training image", "runs"],
        rows,
        [one.path],
    )  # fmt: skip


def detection() -> Finding:
    """Detection of attacks by reconstruction."""
    one = shipped("detect-mnist-*-images.json")
    repeated = over_runs("mnist-10-epochs", "detect")
    rows, evaded = [], {}
    for name, source, sets in (
        ("mnist", one, ("FGSM 0.3", "PGD 0.3", "R-PGD 0.1", "R-PGD 0.3")),
        ("mnist-10-epochs", repeated, ("R-PGD 0.3",)),
    ):
        result = source.result
        average = result.scores.index("class average")
        for attack in sets:
            k = result.sets.index(attack)
            evaded[name, attack] = result.undetected[k]
            areas = [plain(result.auroc[k - 1, score]) for score in (0, average)]
            rows.append(
                [f"`{name}`", attack, percent(evaded[name, attack]), *areas, str(source.runs)]
            )
    adaptive = [area for (_, attack), area in evaded.items() if attack == "R-PGD 0.3"]
    return Finding(
        all(area.low > 0.5 for area in adaptive) and bool(evaded["mnist", "PGD 0.3"].high < 0.1),
        "images misclassified and not flagged, %",
        (2,),
        ["network", "attack, ε", "misclassified and not flagged", "AUROC, winning capsule",
         "control: AUROC, class average", "runs"],
        rows,
        [one.path, repeated.path],
        f"Flagged of unchanged images: {percent(one.result.flagged[0])}.",
    )  # fmt: skip


FINDINGS: dict[str, Callable[[], Finding]] = {
    "transplant": transplant, "iterations": iterations, "by-class": by_class, "stays": stays,
    "sharpness": sharpness, "maps": maps, "lawful": lawful, "affine": affine, "broken": broken,
    "detection": detection,
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
