"""Columns of a leaderboard: which number of a network comes from which kind of result.

Each function yields (network, estimate) pairs from a result. The network is a name, or `FIRST` for
the first network of the result, or the training runs of its recipe.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from capsviz.statistics.estimate import Estimate, less
from capsviz.statistics.words import untrained_of

FIRST = None
STEP = 15  # largest step between rotations, degrees
STEPS, QUERIES = 50, 100  # fewest of attacks; weaker attacks overestimate the accuracy
BOUNDS = (0.1, 8 / 255)  # of attacks on grey images, and on colour images

DETECTED, DETECTED_STEPS = 0.3, 40  # largest bound, and fewest steps, of attacks to be detected


class Column(NamedTuple):
    """One number of each network."""

    title: str
    meaning: str
    kinds: Mapping[tuple[str, str], Callable[[Any], Iterator[tuple[str | None, Estimate]]]]
    # (analysis, kind of its result) -> function that yields the numbers
    form: str = ".1%"
    unit: str = "%"
    higher: bool | None = True  # whether higher is better; None: neither
    level: float | None = None  # reference level in the drawing
    only: Mapping[str, tuple] = MappingProxyType({})  # option -> values, besides its default, with
    # which results are used
    drawn: str = ""  # title of its panel; "": the title

    @property
    def analyses(self) -> set[str]:
        """The analyses that the number comes from."""
        return {analysis for analysis, _ in self.kinds}


def corruption(result):
    """Yield the mean error over all corruptions of MNIST-C, or of ImageNet-C in colour."""
    yield from zip(_names(result.networks), result.mean, strict=True)


def rotation(result):
    """Yield the mean accuracy over rotations from -90° to 90°, at most 15° apart."""
    whole = (result.sizes.min(), result.sizes.max()) == (-90, 90)
    if result.warp == "rotation" and whole and np.diff(result.sizes).max() <= STEP:
        yield from zip(_names(result.names), result.area, strict=True)


def attack(result):
    """Yield the worst accuracy over all attacks, at the first of `BOUNDS` that was tried."""
    tried = [result.eps.index(eps) for eps in BOUNDS if eps in result.eps]
    if result.norm == "linf" and tried and result.steps >= STEPS and result.queries >= QUERIES:
        yield from zip(_names(result.networks), result.worst[:, tried[0]], strict=True)


def detection(result):
    """Yield the share of images that the adaptive attack makes misclassified and undetected."""
    strong = max(result.eps) == DETECTED and result.steps >= DETECTED_STEPS
    if "adaptive" in result.kinds and strong:
        yield FIRST, result.undetected[strongest(result)]


def strongest(result) -> int:
    """Return the index of the adaptive attack with the largest bound."""
    adaptive = [a for a, kind in enumerate(result.kinds) if kind == "adaptive"]
    return adaptive[int(np.argmax(result.eps))]


def over_untrained(result):
    """Yield R² of affine maps of the pose under rotation, minus that of the untrained network."""
    if (untrained := untrained_of(result.sources)) and "rotation" in result.warps:
        apart = result.mean.difference[untrained[0], result.warps.index("rotation")]
        ends = -apart.ci95[..., ::-1]
        runs = None if apart.runs is None else -apart.runs
        yield FIRST, Estimate(-apart.value, ends, result.n, runs=runs)


def transplant(result):
    """Yield the share of images predicted as the class of the donor of their couplings."""
    yield FIRST, result.as_partner[1]  # couplings of a donor of another class


def parents(result):
    """Yield the effective number of parents of a capsule, as a share of all."""
    yield FIRST, result.effective_parents[-1] * (1 / len(result.classes))


def instead(control: str, result):
    """Yield the accuracy with a control's couplings minus that with the network's own.

    A result stores both as differences to one iteration. The interval is the narrower of two
    conservative ones: from the ends of both differences, and from both accuracies as if they were
    independent.
    """
    if control in result.controls:
        other = result.control_accuracy[result.controls.index(control)]
        change, own = other.difference, result.accuracy.difference
        if change is not None and own is not None:
            last = len(result.entropy_nats) - 1
            gain, right = own[last], result.accuracy[last]
            runs = None if change.runs is None or gain.runs is None else change.runs - gain.runs
            ends = np.array([change.low - gain.high, change.high - gain.low])
            ends = min(ends, less(other, right).ci95, key=np.ptp)
            ends = ends.clip(-right.value, 1 - right.value)  # an accuracy is within 0 and 1
            yield FIRST, Estimate(change.value - gain.value, ends, change.n, runs=runs)


def faithfulness(result):
    """Yield insertion minus deletion of the routing map, minus that of pixels by brightness."""
    if result.routed_less is not None and "brightness" in result.names:
        yield FIRST, result.routed_less[result.names.index("brightness")]


def affine(place: int, result):
    """Yield accuracies of `affine`; place 0, 1, 2: untransformed, inside, outside."""
    yield from zip(_names(result.networks), result.accuracy[:, place], strict=True)


def _names(names) -> list[str | None]:
    """Replace the first name by `FIRST`."""
    return [FIRST, *names[1:]]


ROUTING = ("routing", "Statistics")
OWN: Any = {"only": {"iterations": ()}, "higher": None}  # only with the network's own iterations
COLUMNS = (
    Column("inside", "accuracy on affine variants inside the training shift range",
           {("affine", "Result"): partial(affine, 1)}, only={"trained_px": ()},
           drawn="accuracy inside\ntraining shifts"),
    Column("outside", "accuracy on affine variants outside the training shift range",
           {("affine", "Result"): partial(affine, 2)}, only={"trained_px": ()},
           drawn="accuracy outside\ntraining shifts"),
    Column("corrupted", "mean error over the corruptions of MNIST-C, or of ImageNet-C in colour",
           {("corrupt", "Result"): corruption}, unit="error, %", higher=False,
           only={"severity": (3,), "only": ()},
           drawn="error under\ncorruptions"),
    Column("rotated", "mean accuracy over rotations from -90° to 90°",
           {("sweep", "Result"): rotation}, drawn="accuracy,\nrotated"),
    Column("attacked", "accuracy under the worst of all attacks within 0.1 (L∞; colour: 8/255)",
           {("attack", "Result"): attack}, only={"only": ()},
           drawn="accuracy\nunder attack"),
    Column("undetected", "share of images that the adaptive attack within 0.3 "
           "makes misclassified and not flagged", {("detect", "Result"): detection}, higher=False,
           drawn="attacks not\ndetected"),
    Column("equivariance", "R² of an affine map of the pose under rotation, less that of the "
           "untrained network (over several seeds)",
           {("equivariance", "Result"): over_untrained}, form=".2f", unit="R²", higher=None,
           level=0.0, drawn="R² above\nuntrained poses"),
    Column("donor's class", "share of images predicted as the class of the image whose couplings "
           "they were given", {("transplant", "Statistics"): transplant}, level=0.5,
           drawn="follow the\ndonor's couplings", **OWN),
    Column("effective parents", "effective number of parents of a capsule, as a share of all "
           "(negative couplings are ignored)", {ROUTING: parents}, level=0.9,
           drawn="effective\nparents", **OWN),
    Column("uniform couplings", "change of accuracy with uniform couplings",
           {ROUTING: partial(instead, "uniform")}, unit="points",
           drawn="accuracy with\nuniform couplings", **OWN),
    Column("shuffled", "change of accuracy if its couplings are shuffled among the capsules",
           {ROUTING: partial(instead, "shuffled")}, unit="points",
           drawn="accuracy with\nshuffled couplings", **OWN),
    Column("matched", "change of accuracy with random couplings of the same standard deviation",
           {ROUTING: partial(instead, "matched")}, unit="points",
           drawn="accuracy with\nrandom couplings", **OWN),
    Column("faithfulness", "area between insertion and deletion for the routing map, less that of "
           "pixels by brightness", {("faithfulness", "Statistics"): faithfulness},
           form=".2f", unit="area", level=0.0, only={"target": ("predicted",), "scene": ("clean",)},
           drawn="faithfulness of\nthe routing map"),
)  # fmt: skip
