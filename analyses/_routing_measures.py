"""Measures of routing for `routing`: pure functions of a trace, and their sums over a test set.

Shapes as in `capsviz.tracing`: votes (B,I,J,E), couplings (R,B,I,J), poses (R,B,J,E).
"""

from __future__ import annotations

from collections import defaultdict
from math import log

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from capsviz.functional import lengths, predict, random_couplings
from capsviz.intervals import Z, paired_each, wilson_each
from capsviz.tracing import given_away, trace

INSIDE = ("votes", "couplings", "poses", "lengths")


def entropy(couplings: Tensor) -> Tensor:
    """Entropy in nats of each child's couplings over parents, H_i: (..., I, J) -> (..., I).

    Of how a child spreads what it gives to parents: what leaky routing withholds does not count.
    """
    shares = couplings.double()
    shares = shares / shares.sum(-1, keepdim=True).clamp_min(torch.finfo(shares.dtype).tiny)
    most = log(couplings.shape[-1])  # rounding can pass it
    return torch.special.entr(shares).sum(-1).clamp_max(most)


def by_type(couplings: Tensor, grid: tuple[int, int, int]) -> Tensor:
    """Mean over the places of each capsule type: (..., I, J) -> (..., types, J)."""
    return couplings.unflatten(-2, grid).mean((-3, -2))


def agreement(votes: Tensor, couplings: Tensor, poses: Tensor) -> Tensor:
    """Mean over children of cos(û_ij, v_j), weighted by c_ij: (R, B, J) in [-1, 1]."""
    tiny = torch.finfo(votes.dtype).tiny
    along = torch.einsum("bije,rbje->rbij", votes, normalize(poses, dim=-1))
    cosine = along / votes.norm(dim=-1).clamp_min(tiny)
    return (couplings * cosine).sum(2) / couplings.sum(2).clamp_min(tiny)


def additive_map(
    votes: Tensor, couplings: Tensor, poses: Tensor, grid: tuple[int, int, int]
) -> Tensor:
    """What each place adds to each parent: Σ over types of c_ij (û_ij · v̂_j), in float64.

    Parameters
    ----------
    votes      (B, I, J, E).
    couplings  (B, I, J) of one iteration.
    poses      (B, J, E) after it; v̂_j is v_j / |v_j|.
    grid       (types, rows, columns).

    Returns
    -------
    (B, J, rows, columns). The sum over places is (Σ_i c_ij û_ij) · v̂_j exactly, by linearity.
    """
    direction = normalize(poses.double(), dim=-1)
    parts = couplings.double() * torch.einsum("bije,bje->bij", votes.double(), direction)
    return parts.unflatten(1, grid).sum(1).movedim(-1, 1)


def total_input(votes: Tensor, couplings: Tensor) -> Tensor:
    """Σ_i c_ij û_ij in float64, what a parent gets before any bias: (B, J, E)."""
    return torch.einsum("bij,bije->bje", couplings.double(), votes.double())


def extent(model) -> list[float]:
    """Where the grid lies on the image: left, right, bottom and top in pixels, for `imshow`.

    Each place is drawn at the centre of its receptive field, the size of the step to the next.
    Where there is no step (one place, or all see the same), the field is divided evenly.
    """
    _, rows, columns = model.grid
    first, last = model.receptive_field(0, 0), model.receptive_field(rows - 1, columns - 1)
    edges = []
    for a, b, count in zip(first, last, (rows, columns), strict=True):
        low, high = (a.start + a.stop - 1) / 2, (b.start + b.stop - 1) / 2
        half = (high - low) / (count - 1) / 2 if high > low else (a.stop - a.start) / 2
        edges.append((low - half, high + half))
    (top, bottom), (left, right) = edges
    return [left, right, bottom, top]


class Mean:
    """Running mean and 95 % interval of what has one value, or one array, for each image."""

    def __init__(self):
        self.n, self.sum, self.squares = 0, 0.0, 0.0

    def add(self, values: Tensor) -> None:
        """Add images: values (B, ...)."""
        values = values.double()
        self.n += len(values)
        self.sum = self.sum + values.sum(0)
        self.squares = self.squares + values.square().sum(0)

    @property
    def mean(self) -> np.ndarray:
        """(...)."""
        return (self.sum / self.n).numpy()

    @property
    def variance(self) -> np.ndarray:
        """Sample variance (...), of 2 images at least."""
        return np.maximum(self.squares.numpy() - self.n * self.mean**2, 0) / (self.n - 1)

    def ci95(self, low: float, high: float) -> np.ndarray:
        """(..., 2) by the normal approximation, within low ... high, what is possible at all.

        One image alone leaves everything possible.
        """
        if self.n == 1:
            return np.broadcast_to([low, high], (*self.mean.shape, 2)).astype(float)
        half = Z * np.sqrt(self.variance / self.n)
        return np.stack([self.mean - half, self.mean + half], -1).clip(low, high)

    def named(self, name: str, low: float, high: float) -> dict[str, np.ndarray]:
        """The mean and its interval as two fields."""
        return {name: self.mean, f"{name}_ci95": self.ci95(low, high)}


class Survey:
    """What routing did on many images, as sums: memory does not grow with their number.

    Counts and lengths are those of r = 1 ... M iterations, then those of the controls. The poses
    after iteration r of M are the result of r iterations, so one trace has them all.

    Parameters
    ----------
    iterations  R, of which the couplings are measured.
    most        M, at least R.
    seed        of the random control.
    """

    CONTROLS = ("uniform", "random")

    def __init__(self, iterations: int, most: int, seed: int):
        self.iterations, self.most = iterations, most
        self.means = defaultdict(Mean)
        self.of_class = defaultdict(lambda: defaultdict(Mean))  # mean couplings of a true class
        self.counts = defaultdict(int)  # images (M + 2,)
        self.generator = torch.Generator().manual_seed(seed)

    def add(self, model, images: Tensor, labels: Tensor) -> None:
        """Trace images (B, C, H, W) with labels (B,): with M iterations, and with the controls."""
        seen = trace(model, images, keep=("primary", *INSIDE), iterations=self.most)
        drawn = random_couplings(tuple(seen.couplings.shape[1:]), generator=self.generator)
        drawn = (drawn * given_away(seen.couplings)).float()  # as `trace` scales its controls
        controls = torch.stack(
            [
                trace(model, images, keep=("poses",), couplings=given).poses[-1]
                for given in ("uniform", drawn)
            ]
        )
        R = self.iterations
        self._measure("", seen.votes, seen.couplings[:R], seen.poses[:R], labels)
        self._measure("random_", seen.votes, drawn[None], controls[1:], labels)
        for k in labels.unique().tolist():
            types = by_type(seen.couplings[R - 1, labels == k], seen.grid)
            self.of_class[k]["types"].add(types)
            self.of_class[k]["all"].add(types.mean(1))
        self.means["norm"].add(seen.primary.norm(dim=-1))
        self.means["primary"].add(seen.primary)
        self._count(lengths(torch.cat([seen.poses, controls])), labels)

    def _count(self, lengths: Tensor, labels: Tensor) -> None:
        """Compare predictions with the labels and with those of one iteration: (M + 2, B, J)."""
        predicted = torch.stack([predict(one) for one in lengths]).numpy()
        right = predicted == labels.numpy()
        self.counts["right"] += right.sum(1)
        self.counts["changed"] += (predicted != predicted[0]).sum(1)
        self.counts["to_right"] += (right & ~right[0]).sum(1)
        self.counts["to_wrong"] += (~right & right[0]).sum(1)
        self.means["length"].add(lengths[:, torch.arange(len(labels)), labels].T)

    def _measure(self, kind: str, votes, couplings, poses, labels: Tensor) -> None:
        """Add to the means whose names begin with `kind`."""
        means, nats = self.means, entropy(couplings)
        means[f"{kind}entropy"].add(nats.mean(2).T)
        means[f"{kind}effective"].add(nats.exp().mean(2).T)
        means[f"{kind}polarisation"].add(couplings.amax(3).mean(2).T)
        agreed = agreement(votes, couplings, poses).movedim(0, 1)  # (B, R, J)
        true = agreed.gather(2, labels[:, None, None].expand(-1, agreed.shape[1], 1))[..., 0]
        others = (agreed.sum(2) - true) / (agreed.shape[2] - 1)
        means[f"{kind}agreement"].add(torch.stack([true, others], 2))

    def by_class(self, what: str, name: str) -> dict[str, np.ndarray]:
        """A mean of each true class, (K, ...), and its intervals, under `name`."""
        named = [self.of_class[k][what].named(name, 0, 1) for k in sorted(self.of_class)]
        return {key: np.stack([values[key] for values in named]) for key in named[0]}

    def by_rounds(self) -> dict[str, np.ndarray]:
        """Accuracy, its gain, changes and true lengths with intervals, controls apart."""
        n, controls = self.means["length"].n, len(self.CONTROLS)
        more, less = self.counts["to_right"], self.counts["to_wrong"]
        both = {
            **_proportion("accuracy", self.counts["right"], n),
            "gain": (more - less) / n,
            "gain_ci95": paired_each(more, less, n),
            **_proportion("changed", self.counts["changed"], n),
            **self.means["length"].named("true_length", 0, 1),
        }
        both["gain_ci95"][0] = both["changed_ci95"][0] = 0  # of r = 1 against itself
        routed = {name: values[:-controls] for name, values in both.items()}
        return routed | {f"control_{name}": values[-controls:] for name, values in both.items()}


def _proportion(name: str, counts: np.ndarray, n: int) -> dict[str, np.ndarray]:
    return {name: counts / n, f"{name}_ci95": wilson_each(counts, n)}
