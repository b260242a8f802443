"""Columns of a leaderboard: what is taken of which analysis's results.

Of a result a column yields (network, estimate): the network by its name, or `FIRST` for the one, or
the training runs of one, that the result is of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from capsviz import discovery
from capsviz.statistics.estimate import Estimate, less

FIRST = None
# of MNIST-C, without those of plugins
CORRUPTIONS = {p.stem for p in discovery.folder("capsviz.transforms.corruptions").glob("[a-z]*.py")}


class Column(NamedTuple):
    """One number of each network."""

    title: str
    meaning: str
    analyses: tuple[str, ...]  # whose results it is taken from
    take: Callable[[NamedTuple], Iterator[tuple[str | None, Estimate]]]
    form: str = ".1%"
    higher: bool | None = True  # whether that is better; None: neither is
    level: float | None = None  # that a claim compares it with
    above: str = ""  # what it means that it lies above, in every run's interval
    below: str = ""
    points: bool = False  # a difference of shares
    ranked: bool = True  # whether networks compare by it, each one's own control left out of it
    alike: tuple[str, ...] = ()  # fields of results that must be equal, to compare them
    unset: tuple[str, ...] = ()  # options that would make it another number


def corruption(result):
    """Mean error over MNIST-C's corruptions."""
    if set(result.corruptions) == CORRUPTIONS:
        yield from zip(_names(result.networks), result.mean, strict=True)


def rotation(result):
    """Mean accuracy over the sizes of a rotation from -90° to 90°."""
    if result.warp == "rotation" and (result.sizes.min(), result.sizes.max()) == (-90, 90):
        yield from zip(_names(result.names), result.area, strict=True)


def detection(result):
    """Share of images that the attack which knows the detector gets misread and not flagged."""
    if "adaptive" in result.kinds:
        yield FIRST, result.undetected[strongest(result)]


def strongest(result) -> int:
    """Number of the set of the attack that knows the detector, at the largest bound."""
    adaptive = [a for a, kind in enumerate(result.kinds) if kind == "adaptive"]
    return adaptive[int(np.argmax(result.eps))]


def over_fresh(result):
    """R2 of affine maps under rotation, less that of the network freshly initialised."""
    if not hasattr(result, "mean"):  # of the law of a warp
        return
    fresh = [s for s, name in enumerate(result.sources) if "freshly initialised" in name]
    if fresh and "rotation" in result.warps:
        apart = result.mean.difference[fresh[0], result.warps.index("rotation")]
        ends = -apart.ci95[..., ::-1]
        yield (
            FIRST,
            Estimate(
                -apart.value, ends, result.n, runs=None if apart.runs is None else -apart.runs
            ),
        )


def transplant(result):
    """Share of pairs read as the image whose couplings they got."""
    if not hasattr(result, "couples") or not hasattr(result, "as_partner"):
        return  # of parts, or of iterations one by one
    if result.iterations is None:  # but as often as the network routes by itself
        yield FIRST, result.as_partner[result.conditions.index("of an unlike image")]


def parents(result):
    """Effective parents of a capsule, as a share of all."""
    if hasattr(result, "effective_parents"):
        yield FIRST, result.effective_parents[-1] * (1 / len(result.classes))


def even(result):
    """Accuracy with uniform couplings, less that with its own."""
    yield from _instead("uniform", result)


def shuffled(result):
    """Accuracy with its own couplings shuffled among capsules, less that likewise."""
    yield from _instead("shuffled", result)


def matched(result):
    """Accuracy with random couplings of equal standard deviation, less that likewise."""
    yield from _instead("matched", result)


def _instead(control: str, result):
    """A control's accuracy less the network's own, each by its difference to one iteration.

    Its interval is the narrower of two that are wider than need be: the ends of both differences,
    or the margins of both accuracies in squares, as if they were of other images.
    """
    if hasattr(result, "control_accuracy") and control in result.controls:
        instead = result.control_accuracy[result.controls.index(control)]
        change, own = instead.difference, result.accuracy.difference
        if change is not None and own is not None:
            last = len(result.entropy_nats) - 1
            gain, right = own[last], result.accuracy[last]
            runs = None if change.runs is None or gain.runs is None else change.runs - gain.runs
            ends = np.array([change.low - gain.high, change.high - gain.low])
            ends = min(ends, less(instead, right).ci95, key=np.ptp)
            ends = ends.clip(-right.value, 1 - right.value)  # none reads more than all, or none
            yield FIRST, Estimate(change.value - gain.value, ends, change.n, runs=runs)


def faithfulness(result):
    """Insertion less deletion of the routing map, less that of pixels in random order."""
    if hasattr(result, "gap") and "routing map" in result.names:
        k = result.names.index("routing map")
        if result.gap.difference is not None:
            yield FIRST, result.gap.difference[k]


def within(result):
    """Accuracy of affine variants within the trained places."""
    yield from _affine(result, "within")


def beyond(result):
    """Accuracy of affine variants beyond the trained places."""
    yield from _affine(result, "beyond")


def _affine(result, place: str):
    """Of `capsviz affine`, or of the networks that `capsviz affnist` trained."""
    if hasattr(result, "gap"):
        accuracy = result.accuracy[:, ("as they are", "within", "beyond").index(place)]
        yield from zip(_names(result.networks), accuracy, strict=True)
    elif getattr(result, place, None) is not None:
        yield from zip(affine_names(result), getattr(result, place), strict=True)


def affine_names(result) -> list[str]:
    """Names of the rows of a result of `capsviz affnist`."""
    return [f"affnist {n}, {s}" for n, s in zip(result.networks, result.states, strict=True)]


def _names(names) -> list[str | None]:
    """The first network as `FIRST`, the others by their names."""
    return [FIRST, *names[1:]]


AFFINE: Any = {"alike": ("trained_px", "variants"), "unset": ("trained_px",)}
OWN: Any = {"unset": ("iterations",)}  # the network's own
COLUMNS = (
    Column("affine, within", "affine variants moved by no more than in training, read right",
           ("affine", "affnist"), within, **AFFINE),
    Column("affine, beyond", "those moved further", ("affine", "affnist"), beyond,
           **AFFINE),
    Column("corrupted", "mean error over MNIST-C's corruptions", ("corrupt",), corruption,
           higher=False, alike=("source",)),
    Column("turned", "mean accuracy over rotations from -90° to 90°", ("sweep",), rotation,
           alike=("sizes",)),
    Column("undetected", "misread and not flagged under R-PGD, the attack that knows the detector, "
           "at its largest bound", ("detect",), detection, higher=False, alike=("eps", "steps")),
    Column("equivariance", "R² of affine maps of the pose under rotation, less that of the same "
           "network freshly initialised (several seeds), which differs from network to network",
           ("equivariance",), over_fresh, form=".2f", higher=None, level=0.0, ranked=False,
           above="its pose follows a rotation more lawfully than those of fresh networks",
           below="its pose follows a rotation less lawfully than those of fresh networks"),
    Column("transplant", "read as the image whose couplings they got, by its own iterations",
           ("transplant",), transplant, higher=None, level=0.5,
           above="images with another's couplings are mostly read as that other's class",
           below="images with another's couplings are mostly not read as that other's class"),
    Column("parents", "effective parents of a capsule, of all, by its couplings above 0",
           ("routing",), parents, higher=None, level=0.9, **OWN,
           above="its couplings lie near uniform, at 90 % of all parents or more",
           below="its couplings are not near uniform, at fewer than 90 % of all parents"),
    Column("even", "change of accuracy by uniform couplings in place of its own",
           ("routing",), even, higher=None, points=True, **OWN),
    Column("shuffled", "the same by its own, shuffled among its capsules",
           ("routing",), shuffled, higher=None, points=True, **OWN),
    Column("matched", "the same by random couplings of equal standard deviation",
           ("routing",), matched, higher=None, points=True, **OWN),
    Column("faithfulness", "area of insertion less deletion of the routing map, less that of "
           "pixels in random order", ("faithfulness",), faithfulness, form=".2f", level=0.0,
           alike=("shares", "target"),
           above="its routing map is more faithful than pixels in random order",
           below="its routing map is less faithful than pixels in random order"),
)  # fmt: skip


def number_of_runs(estimate: Estimate) -> int:
    """Training runs behind an estimate."""
    return 1 if estimate.runs is None else len(np.asarray(estimate.runs))
