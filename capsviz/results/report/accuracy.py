"""How often networks are right on the same images, each beside the first one."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from capsviz.statistics.intervals import paired_interval, wilson
from capsviz.tracing import scores
from capsviz.transforms.augment import to_float


class Accuracy(NamedTuple):
    """Shares in percent, with 95 % intervals."""

    value: float
    low: float
    high: float
    n: int
    apart: tuple[float, float, float] | None  # from the first network, paired, in points


def measure(one, first, n: int) -> Accuracy:
    """The accuracy of a network on n images; one of several things is right if all are."""
    hits = right(one, n)
    low, high = wilson(int(hits.sum()), n)
    apart = None
    if one is not first:
        reference = right(first, n)
        wins, losses = int((hits & ~reference).sum()), int((~hits & reference).sum())
        ends = paired_interval(wins, losses, n)
        apart = (100 * (wins - losses) / n, 100 * float(ends[0]), 100 * float(ends[1]))
    return Accuracy(
        100 * float(hits.double().mean()), 100 * float(low), 100 * float(high), n, apart
    )


def right(one, n: int) -> Tensor:
    """Which of n images a network reads right, (n,) bool."""
    part = one.sample(n)
    lengths = scores(one.model, to_float(part.images))
    if part.parts is None:
        return lengths.argmax(1) == part.labels
    count = part.labels.shape[1]
    return (lengths.topk(count).indices.sort(1).values == part.labels.sort(1).values).all(1)
