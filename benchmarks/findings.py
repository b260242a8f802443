"""Write docs/findings.md: ten findings, with numbers from the shipped results.

`python -m benchmarks.findings` writes the page; `make readme` does too. The sentences are written
by hand, every number comes from a result file, and a finding whose intervals no longer support it
moves to the end of the page.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import dots
from benchmarks.dots import Number
from benchmarks.shipped import LAWS, ROOT, shipped
from capsviz import checkpoint, discovery
from capsviz.files import write_text
from capsviz.nn import routing as routings
from capsviz.results import leaderboard, read_result
from capsviz.results.leaderboard import columns
from capsviz.results.tables import markdown
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import mean_interval

PAGE = ROOT / "docs/findings.md"
FOLDER = ROOT / "docs/findings"  # of the pictures
NONE = "–"
HEAD = """# What we found

From the results that come with capsviz. `mnist` is the network of the CapsNet paper, trained on
MNIST. All intervals are 95 %. With one training run ("runs") an interval is over test images only,
and another run may differ. [The gallery](gallery.md) explains the whole figures.
"""


class Finding(NamedTuple):
    """A sentence, and what supports it."""

    title: str  # a plain sentence without numbers
    holds: bool  # whether the intervals support it
    text: str
    picture: str  # the whole figure: a file in figures/ without its suffix
    axis: str  # of the picture: what the plotted columns are
    plotted: tuple[int, ...]  # columns of the table
    header: list[str]
    rows: list[list[str]]
    command: str  # that reproduces it
    refuted: str  # a result that would refute it
    sources: list[str]  # files, from the root of the checkout

    def markdown(self, number: int) -> str:
        """Return the finding as a section of the page."""
        return "\n\n".join(
            [
                f"## {number}. {self.title}",
                f"![{self.axis}](findings/{number}.svg)",
                self.text,
                markdown(self.header, self.rows).rstrip(),
                f"```\n{self.command}\n```",
                f"[Whole figure](../figures/{self.picture}.png). "
                f"**It would be refuted by** {self.refuted}.",
            ]
        )

    def drawing(self) -> str:
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


class Source(NamedTuple):
    """A shipped result, how many training runs it is over, and its file."""

    result: NamedTuple
    runs: int
    path: str


def figure(pattern: str) -> Source:
    """Return the result in figures/ that a pattern names; FileNotFoundError if there is none."""
    one = shipped(pattern)
    if one is None:
        raise FileNotFoundError(f"figures/{pattern}")
    return Source(one.result, 1, one.source)


def over_runs(recipe: str, analysis: str, **fields) -> Source:
    """Return statistics over the training runs of a recipe, where the result has these fields."""
    for one in _statistics(recipe, analysis):
        if all(getattr(one.result, name, None) == value for name, value in fields.items()):
            return one
    raise FileNotFoundError(f"trained/seeds/{recipe}/{analysis}-*.json")


def _statistics(recipe: str, analysis: str) -> Iterator[Source]:
    folder = discovery.folder(checkpoint.SHIPPED) / "seeds" / recipe
    for path in sorted(folder.glob(f"{analysis}-*.json")):
        result, about = read_result(path)
        if about["kind"] in ("Statistics", "Result"):
            runs = len(about["runs"]["seeds"])
            yield Source(result, runs, f"trained/seeds/{recipe}/{path.name}")


def transplant() -> Finding:
    """Couplings can carry the class."""
    mnist = figure("transplant-mnist-*-images.json")
    two = "mnist-2-iterations-10-epochs"
    each = {
        ("`mnist`", "3"): mnist,
        ("`mnist`, trained with 2 iterations", "2"): over_runs(two, "transplant", iterations=None),
        ("the same", "3"): over_runs(two, "transplant", iterations=3),
        ("the same", "5"): over_runs(two, "transplant", iterations=5),
        ("`cifar10-resnet`", "3"): figure("transplant-cifar10-resnet-*-images.json"),
    }

    def share(one: Source, condition: str) -> Estimate:
        return one.result.as_partner[one.result.conditions.index(condition)]

    donor, shuffled = "of an unlike image", "unlike's, shuffled"
    rows = []
    for (network, iterations), one in each.items():
        sd = f"{float(one.result.coupling_sd.value[0]):.4f}"
        known = shuffled in one.result.conditions
        control = percent(share(one, shuffled)) if known else NONE
        rows.append(
            [
                network,
                f"{iterations} iterations",
                sd,
                percent(share(one, donor)),
                control,
                str(one.runs),
            ]
        )
    more = [share(one, donor) for one in list(each.values())[1:4]]
    noise = mnist.result.as_own[mnist.result.conditions.index("noise, equal sd")]
    return Finding(
        "Routing coefficients that deviate little from uniform can carry the class",
        bool(share(mnist, donor).low > 0.5 > share(mnist, shuffled).high and noise.low > 0.9)
        and bool(more[0].high < more[1].low),
        "An image keeps its own votes and gets the routing coefficients of a donor image of "
        "another class. In `mnist` these deviate from 1/10 by a few thousandths, and yet nearly "
        "every image is then predicted as the donor's class. Noise of the same size, or the "
        "donor's coefficients shuffled among the capsules, changes almost no prediction. More "
        "routing iterations enlarge the deviations, and more images follow the donor; these "
        "results do not separate the number of iterations from the size of the deviations. In "
        "`cifar10-resnet` most images keep their class. In some networks with sharper "
        "coefficients, shuffled donor coefficients move as many images. It does not follow that "
        "routing helps (finding 2).",
        Path(mnist.path).stem,
        "images predicted as the donor's class, %",
        (3, 4),
        ["network", "routing", "s.d. of couplings", "predicted as the donor's class",
         "control: donor's couplings, shuffled", "runs"],
        rows,
        "capsviz transplant --n 1000",
        "shuffled donor coefficients that move as many images of `mnist`",
        [one.path for one in each.values()],
    )  # fmt: skip


def iterations() -> Finding:
    """Iterations at test time and in training."""
    each = {
        "mnist": figure("routing-mnist-*-images.json"),
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
    gain = Estimate(*mean_interval(means))
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
        "Iterations at test time change few predictions; training with them helps slightly",
        bool(mnist.changed[len(mnist.entropy_nats) - 1].high < 0.01 and gain.low > 0),
        "Trained networks are evaluated with one routing iteration, that is uniform coefficients, "
        "and with all three. On digits almost no prediction changes, although the true capsule "
        "becomes longer; on CIFAR-10 some do, without a gain that could be shown. Networks that "
        "were trained with three iterations make slightly fewer errors than networks that were "
        "trained with one: the last row is the mean over related recipes, paired by seed.",
        Path(each["mnist"].path).stem,
        "accuracy gained by three iterations, points",
        (3,),
        ["network", "three iterations instead of one", "predictions changed",
         "accuracy gained, points", "runs"],
        rows,
        "capsviz routing --n 1000",
        "a data set on which iterations at test time correct predictions, or more training runs "
        "without a gain",
        [*(one.path for one in each.values()), *map(str, _cards())],
    )  # fmt: skip


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
    mnist = figure("parse-tree-mnist-*-images.json")
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
        "In most networks, couplings vary more between classes than between images of one class",
        bool(shares[0].low > 0.5) and sum(one.low > 0.5 for one in shares) > len(shares) / 2,
        "The variance of the routing coefficients is divided into a part that is the same in all "
        "images, a part that goes with the predicted class and a part that differs between images "
        "of one class. In most networks the part that goes with the class is the largest, far "
        "above the same network before training and above shuffled labels. The shipped results "
        "hold no such share for pixels, primary capsules or votes. So the finding describes the "
        "coefficients; it does not show that routing adds the class to them.",
        Path(mnist.path).stem,
        "variance of couplings that goes with the class, %",
        (1, 2, 3),
        ["network", "variance that goes with the class", "control: untrained",
         "control: labels shuffled", "runs"],
        rows,
        "capsviz parse-tree --n 1000",
        "couplings that vary more within a class than between classes in most networks",
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
        "mnist": figure("parse-tree-mnist-*-images.json"),
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
        "Couplings stay at their position when the digit moves, if each position has matrices of "
        "its own",
        all(stay),
        "A digit is shifted by one position of the feature grid. If couplings followed its parts, "
        "those at the new position would equal those at the old one. Instead they resemble the "
        "couplings that were at the same position before. All three networks have separate "
        "transformation matrices for each position, so nothing ties one position to the next. The "
        "finding does not extend to networks that share them (`--option transform=type`), of which "
        "no result is shipped.",
        f"{Path(each['mnist'].path).stem}-moved",
        "correlation of couplings before and after a shift",
        (1, 2, 3),
        ["network", "correlation at the same position", "at the position the digit moved to",
         "control: opposite position", "runs"],
        rows,
        "capsviz parse-tree --n 1000",
        "a network with separate matrices whose couplings move with the digit",
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
    tests = {name: welch(one, even) for name, one in runs.items()}
    above = sum(
        row.network.accuracy.value > pooled.network.accuracy.value for row in known.values()
    )
    table = []
    for name in dict.fromkeys((sharpest, best, "dynamic", "uniform", POOLED)):
        row = pooled if name == POOLED else known[name]
        share = NONE if name == POOLED else percent(parents[name], 0)
        gain = points(tests[name][0]) if name in tests else NONE
        accuracy = percent(row.network.accuracy, 2)
        table.append([_label(name), share, accuracy, gain, str(len(row.network.seeds))])
    least = min(p for _, p in tests.values())
    margin = np.median([(gain.high - gain.low) / 2 for gain, _ in tests.values()])
    return Finding(
        "Over nine routings, sharper couplings are not shown to go with higher accuracy",
        least > 0.05 and above == len(known) == 9,
        "Nine routings were trained on one stem for ten epochs. No routing with sharper "
        f"couplings is shown to be more accurate than uniform couplings: the smallest p-value is "
        f"{least:.2f} (Welch's one-sided test, not corrected for {len(tests)} comparisons). This "
        "is weak evidence, because three runs could not have shown a difference of less than about "
        f"{100 * margin:.1f} points. All nine have a higher mean accuracy than the same stem with "
        "pooling instead of capsules.",
        "compare-routings",
        "accuracy, %",
        (2,),
        ["routing", "effective number of parents, share of all", "accuracy",
         "accuracy less that of uniform, points", "runs"],
        table,
        "capsviz compare trained/seeds/mnist-slim-*-10-epochs    # from shipped statistics",
        "accuracies that rise with sharpness over more training runs",
        sorted(
            f"trained/seeds/{row.network.name}" for row in (*known.values(), pooled)
        ),
    )  # fmt: skip


def welch(one: np.ndarray, other: np.ndarray) -> tuple[Estimate, float]:
    """Return the difference of two means over runs, and p that the first is not higher."""
    from scipy.stats import t

    counts = np.array([len(one), len(other)])
    squares = np.array([np.var(one, ddof=1), np.var(other, ddof=1)]) / counts
    error = np.sqrt(squares.sum())
    freedom = squares.sum() ** 2 / (squares**2 / (counts - 1)).sum()
    gain, margin = np.mean(one) - np.mean(other), t.ppf(0.975, freedom) * error
    return Estimate(gain, np.array([gain - margin, gain + margin])), float(
        t.sf(gain / error, freedom)
    )


def _label(name: str) -> str:
    return "pooling, no capsules" if name == POOLED else name.replace("_", "-")


def maps() -> Finding:
    """Deletion and insertion of pixels."""
    one = figure("faithfulness-mnist-*-images.json")
    result = one.result
    labels = {
        "routing map": "routing map",
        "ink": "control: brightness of the pixels",
        "|u| map": "control: length of primary capsules",
        "routing map, uniform": "control: routing map, uniform couplings",
        "random order": "control: random order",
    }
    rows = []
    for name, label in labels.items():
        k = result.names.index(name)
        apart = NONE if name == "routing map" else plain(result.routed_less[k], "+.3f")
        numbers = [plain(result.gap[k], ".3f"), apart, plain(result.infidelity[k], ".3f")]
        rows.append([label, *numbers, str(one.runs)])
    ink = result.routed_less[result.names.index("ink")]
    return Finding(
        "Deletion and insertion of pixels rank a routing map no higher than the brightness of the "
        "pixels",
        bool(ink.low <= 0),
        "Pixels are removed from a digit, or shown alone, in the order of a map. The area between "
        "the two curves is no larger for the routing map than for the digit itself, which holds "
        "nothing of routing; it is larger than for the map with uniform couplings. To be compared "
        "in pixels, the evidence at each position is divided "
        "among the pixels in proportion to their brightness, so every such map ranks strokes above "
        "background. So the test can neither show nor refute that a routing map is faithful.",
        Path(one.path).stem,
        "area between insertion and deletion",
        (1,),
        ["map (`mnist`)", "insertion less deletion, area (higher is better)",
         "routing map less this, paired", "infidelity (lower is better)", "runs"],
        rows,
        "capsviz faithfulness --n 100",
        "a routing map that ranks above brightness, for example where the object is a small part "
        "of the image",
        [one.path],
    )  # fmt: skip


def lawful() -> Finding:
    """Poses of rotated digits."""
    one = figure(LAWS)
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
        "An affine map predicts the pose of a rotated digit better than before training, but worse "
        "than principal components of the pixels",
        bool(mean[fresh].high < mean[0].low and mean[0].high < mean[names.index("pixels")].low)
        and higher
        and all(gain.low <= 0 <= gain.high for gain in small),
        "For each class an affine map is fitted that predicts the pose after a rotation of up to "
        "30° from the pose before. The table gives the explained variance within a class (R²) on "
        "test images. Training makes poses more predictable, and principal components of the "
        "pixels are more predictable still. On one small stem all nine routings are shown to gain "
        "from training, over three runs each. For `digits-dynamic` and "
        "`digits-self-attention` the interval includes zero, which shows neither a gain nor its "
        "absence.",
        Path(one.path).stem,
        "R² of an affine map under rotation",
        (1,),
        ["vector", "R² under rotation", "runs"],
        rows,
        "capsviz equivariance --checkpoint mnist --checkpoint mnist-resnet --n 1000 "
        "--warp rotation --warp shift-x",
        "poses that are predicted better than principal components of the pixels",
        [one.path],
    )


def affine() -> Finding:
    """Inside and outside the training shift range."""
    inside, outside, runs, files = {}, {}, {}, []
    for name in (POOLED, *routings.available()):
        one = over_runs(f"{SLIM}{name}{EPOCHS}", "affine")
        ((_, inside[name]),), ((_, outside[name]),) = (
            list(column(one.result)) for column in (columns.within, columns.beyond)
        )
        runs[name] = one.runs
        files.append(one.path)
    gains, losses = (
        {
            name: welch(one.runs, where[POOLED].runs)[0]
            for name, one in where.items()
            if name != POOLED
        }
        for where in (inside, outside)
    )
    rows = []
    for name in (POOLED, "uniform", "dynamic"):
        apart = points(losses[name]) if name in losses else NONE
        better = points(gains[name]) if name in gains else NONE
        numbers = [percent(inside[name]), better, percent(outside[name]), apart]
        rows.append([f"slim stem, {_label(name)}", *numbers, str(runs[name])])
    shifted = figure("affnist.json")
    for name, label in (("average", "ConvNet with pooling"), ("capsnet", "CapsNet")):
        k = shifted.result.networks.index(name)
        numbers = [percent(shifted.result.within[k]), NONE, percent(shifted.result.beyond[k]), NONE]
        rows.append([f"affNIST protocol, {label}", *numbers, str(len(shifted.result.seeds[k]))])
    return Finding(
        "On one small stem, capsules beat pooling inside the training shift range and lose outside "
        "it",
        all(gain.low > 0 for gain in gains.values())
        and all(one.high < 0 for one in losses.values()),
        "Test digits are rotated, sheared, scaled and shifted. On the slim stem, with equal "
        "training, all nine routings are more accurate than pooling as long as the shift stays "
        f"inside the training range ({_range(gains)} points), and less accurate outside it "
        f"({_range(losses)} points). Uniform couplings behave like the others. In the protocol of "
        "the CapsNet paper, which stops networks at the same accuracy, CapsNet and pooling are "
        "about equal inside, and pooling is far ahead outside. Networks differ in size, so this is "
        "no result about capsules in general. Intervals of differences are over runs (Welch's t).",
        "affnist",
        "accuracy on affine digits, %",
        (1, 3),
        ["network", "inside", "less pooling, points", "outside", "less pooling, points", "runs"],
        rows,
        "capsviz compare trained/seeds/mnist-slim-*-10-epochs    # from shipped statistics\n"
        "capsviz affnist --run                                   # trains for hours on a GPU",
        "capsule networks that are ahead outside the training shift range, over several runs",
        [shifted.path, *files],
    )


def _range(differences: dict[str, Estimate]) -> str:
    values = [100 * float(one.value) for one in differences.values()]
    return f"{min(values):+.1f} to {max(values):+.1f}"


def broken() -> Finding:
    """Digits with exchanged or shifted parts."""
    one = figure("parts-mnist-*-images.json")
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
        "Capsules and a ResNet notice exchanged quarters alike; capsules notice the four other "
        "changes better",
        bool(apart[0].low <= 0 <= apart[0].high)
        and all(gain.low > 0 for gain in apart[1:])
        and any(pixels),
        "A digit is broken, and the largest score of the network should fall. The table gives the "
        "AUROC for changed against intact digits (0.5 is chance). Capsule length and the largest "
        "logit of a ResNet separate exchanged quarters equally well; in the other rows the "
        "capsules are ahead of the ResNet. The distance to the nearest training image, from pixels "
        "alone, is ahead of both in some rows. Two rows are controls in which the digit stays "
        "whole, so higher sensitivity does not show that capsules represent how parts are "
        "arranged.",
        Path(one.path).stem,
        "AUROC for changed against intact digits",
        (1, 2, 4),
        ["change", "capsule length (`mnist`)", "largest score (`mnist-resnet`)",
         "difference, paired", "control: nearest training image", "runs"],
        rows,
        "capsviz parts mnist mnist-resnet --n 1000",
        "more training runs in which the ResNet notices these changes as well",
        [one.path],
    )  # fmt: skip


def detection() -> Finding:
    """Detection of attacks by reconstruction."""
    one = figure("detect-mnist-*-images.json")
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
        "An attack that also minimises the reconstruction distance evades the detector",
        all(area.low > 0.5 for area in adaptive) and bool(evaded["mnist", "PGD 0.3"].high < 0.1),
        "The detector flags an image if the reconstruction from the winning capsule lies far from "
        f"it; {float(one.result.flagged[0].value):.0%} of unchanged images are flagged. It catches "
        "FGSM and PGD. R-PGD minimises the reconstruction distance as well, and at ε = 0.3 nearly "
        "all images are misclassified and not flagged. The share depends on ε, and a longer or "
        "better tuned attack may raise it.",
        Path(one.path).stem,
        "images misclassified and not flagged, %",
        (2,),
        ["network", "attack, ε", "misclassified and not flagged", "AUROC, winning capsule",
         "control: AUROC, class average", "runs"],
        rows,
        "capsviz detect --n 100 --eps 0.1 --eps 0.3 --steps 15",
        "a detector that holds against attacks that minimise its own score",
        [one.path, repeated.path],
    )  # fmt: skip


FINDINGS = (
    transplant, iterations, by_class, stays, sharpness, maps, lawful, affine, broken, detection,
)  # fmt: skip


def findings() -> tuple[list[Finding], list[str]]:
    """Return the findings that the shipped results support, and a line for each other one."""
    holding, without = [], []
    for source in FINDINGS:
        try:
            finding = source()
        except FileNotFoundError as error:
            without.append(f"{source.__doc__.rstrip('.')}: no result is shipped (`{error}`)")
            continue
        if finding.holds:
            holding.append(finding)
        else:
            without.append(f"{finding.title}: the shipped results do not support it")
    return holding, without


def page(holding: list[Finding], without: list[str]) -> str:
    """Return docs/findings.md."""
    parts = [HEAD, *(f"{one.markdown(k)}\n" for k, one in enumerate(holding, 1))]
    if without:
        parts.append("## Not supported\n\n" + "\n".join(f"- {line}." for line in without) + "\n")
    return "\n".join(parts)


def titles() -> str:
    """Return the findings as a list, for README."""
    holding, _ = findings()
    return "\n".join(f"{k}. {one.title}." for k, one in enumerate(holding, 1))


def write() -> None:
    """Write docs/findings.md and its pictures."""
    holding, without = findings()
    for k, finding in enumerate(holding, 1):
        write_text(FOLDER / f"{k}.svg", finding.drawing())
    write_text(PAGE, page(holding, without))


if __name__ == "__main__":
    write()
