"""What routing does on many images, for `routing`: sums over a test set, chunk by chunk."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capsviz import tracing
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.intervals import paired_each, require_two, student, wilson_each
from capsviz.tracing import CHUNK_IMAGES, INTERVENTIONS, trace
from capsviz.tracing.many import winners
from capsviz.tracing.measures import INSIDE, agreement, by_type, entropy

PREFIX_IMAGES, PREFIX_TOLERANCE = 4, 1e-4  # of the test that pass r of M is the result of r


class Mean:
    """Running mean and 95 % interval of what has one value, or one array, for each image."""

    def __init__(self):
        self.n, self.sum, self.squares = 0, torch.zeros(()), torch.zeros(())
        self.low, self.high = float("inf"), float("-inf")

    def add(self, values: Tensor) -> None:
        """Add images: values (B, ...)."""
        values = values.double()
        self.n += len(values)
        self.low = min(self.low, float(values.min()))
        self.high = max(self.high, float(values.max()))
        self.sum = self.sum + values.sum(0)
        self.squares = self.squares + values.square().sum(0)

    @property
    def estimate(self) -> Estimate:
        """The mean (...), its interval by Student's t; NaN ends of one image alone."""
        n, mean = self.n, (self.sum / self.n).numpy()
        if n == 1:
            return Estimate(mean, np.full((*mean.shape, 2), np.nan), 1)
        variance = np.maximum(self.squares.numpy() - n * mean**2, 0) / (n - 1)
        half = student(n) * np.sqrt(variance / n)
        return Estimate(mean, np.stack([mean - half, mean + half], -1), n)

    @property
    def within_one(self) -> Estimate:
        """The same of what lies in [0, 1] in every image: its interval does too."""
        one = self.estimate
        inside = self.low >= 0 and self.high <= 1
        return replace(one, ci95=np.clip(one.ci95, 0, 1)) if inside else one


def survey(
    model, images: Tensor, labels: Tensor, *, iterations: int | None, most: int, seed: int,
    progress=iter,
) -> dict[str, Any]:  # fmt: skip
    """Return the fields of `Statistics` that are measured in N images; see `Survey`."""
    require_two(len(images))
    sums = Survey(model, images, iterations=iterations, most=most, seed=seed)
    rows = torch.arange(len(images)).split(CHUNK_IMAGES)
    for part in progress(rows):
        sums.add(images[part], labels[part])
    return sums.fields()


class Survey:
    """Sums over images, so that memory does not grow with their number.

    Counts and activations are those of r = 1 ... M iterations, then those of the controls. Where
    the poses after iteration r of M are the result of r iterations, one trace has them all; where
    they are not, each r is run by itself. M is `most`, or the number of iterations R if that is
    larger; a routing of one pass has M = 1. How many iterations there can be is tried with a few
    images.
    """

    def __init__(self, model, images: Tensor, *, iterations: int | None, most: int, seed: int):
        self.model, self.requested = model, iterations
        few = images[:PREFIX_IMAGES]
        first = trace(model, few[:1], keep=("poses",), iterations=iterations)
        self.iterations = len(first.require("poses"))
        self.most = self._largest_number(few[:1], most)
        self.prefix = self._is_prefix(few)
        self.means: dict[str, Mean] = defaultdict(Mean)
        # mean couplings of the images of a true class
        self.of_class: dict[int, dict[str, Mean]] = defaultdict(lambda: defaultdict(Mean))
        self.counts: dict[str, np.ndarray] = {}  # images (M + controls,)
        self.largest = torch.zeros(())  # (I,) child activations
        self.generator = torch.Generator().manual_seed(seed)

    def _largest_number(self, image: Tensor, most: int) -> int:
        """M; R where the network takes no other number."""
        if most > self.iterations:
            with suppress(ValueError):
                self._result(image, most)
                return most
        return self.iterations

    def _is_prefix(self, few: Tensor) -> bool:
        """Whether pass r of M is, or must stand for, the result of r iterations."""
        if self.most == self.iterations == 1:
            return True
        whole = trace(self.model, few, keep=("activations",), iterations=self.most)
        try:
            singly = torch.stack([self._result(few, r) for r in range(1, self.most + 1)])
        except ValueError:  # it takes its own number alone: what its passes give is all there is
            return True
        return torch.allclose(whole.require("activations"), singly, rtol=0, atol=PREFIX_TOLERANCE)

    def _result(self, images: Tensor, r: int) -> Tensor:
        """Activations (B, J) after r iterations."""
        return trace(self.model, images, keep=("lengths",), iterations=r).require("lengths")

    def add(self, images: Tensor, labels: Tensor) -> None:
        """Trace images (B, C, H, W) with labels (B,): by r = 1 ... M, and with the controls."""
        model, R = self.model, self.iterations
        count = self.most if self.prefix else R
        traced = trace(model, images, keep=("child_activations", *INSIDE), iterations=count)
        activations = traced.require("activations")
        if not self.prefix:
            activations = torch.stack([self._result(images, r) for r in range(1, self.most + 1)])
        own, votes = traced.require("couplings")[:R], traced.require("votes")
        measured = _measures(votes, own, traced.require("poses")[:R], labels)
        controls = [
            tracing.control_couplings(kind, own, self.generator)[-1] for kind in INTERVENTIONS
        ]
        replaced = tracing.parents_under(model, images, controls, iterations=self.requested)
        of_controls = [
            _measures(votes, drawn[None], poses[None], labels)
            for drawn, poses in zip(controls, replaced.poses, strict=True)
        ]
        for name, values in measured.items():
            self.means[name].add(values)
            self.means[f"control_{name}"].add(torch.cat([one[name] for one in of_controls], 1))
        self.means["control_sd"] = self.means["control_coupling_sd"]
        for k in labels.unique().tolist():
            types = by_type(own[-1, labels == k], traced.grid)
            self.of_class[k]["types"].add(types)
            self.of_class[k]["all"].add(types.mean(1))
        active = traced.require("child_activations")
        self.means["child_activation"].add(active)
        self.largest = torch.maximum(self.largest, active.amax(0))
        self._count(torch.cat([activations, replaced.activations]), labels)

    def _count(self, activations: Tensor, labels: Tensor) -> None:
        """Compare predictions with the labels and with those of one iteration: (M + K, B, J).

        Where no class is ahead of all others none is predicted.
        """
        predicted = winners(activations).numpy()
        right = predicted == labels.numpy()
        for name, some in (
            ("right", right),
            ("tied", predicted < 0),
            ("changed", predicted != predicted[0]),
            ("to_right", right & ~right[0]),
            ("to_wrong", ~right & right[0]),
        ):
            self.counts[name] = self.counts.get(name, 0) + some.sum(1)
        self.means["true"].add(activations[:, torch.arange(len(labels)), labels].T)

    def fields(self) -> dict[str, Any]:
        """Return the fields of `Statistics` that are measured.

        The difference of an accuracy is to that of one iteration, on the same images.
        """
        n, K, counts = self.means["true"].n, len(INTERVENTIONS), self.counts
        more, less = counts["to_right"], counts["to_wrong"]
        gain = Estimate((more - less) / n, paired_each(more, less, n), n)
        right, changed = (
            Estimate(counts[name] / n, wilson_each(counts[name], n), n)
            for name in ("right", "changed")
        )
        gain.ci95[0] = changed.ci95[0] = 0  # of r = 1 against itself
        fields = {
            name: mean.within_one if "polarisation" in name else mean.estimate
            for name, mean in self.means.items()
        }
        for name, one in (
            ("accuracy", replace(right, difference=gain)),
            ("changed", changed),
            ("true_activation", self.means["true"].within_one),
        ):
            fields |= {name: one[:-K], f"control_{name}": one[-K:]}
        each = [self.of_class[k] for k in sorted(self.of_class)]
        coupling, types = ([one[what].within_one for one in each] for what in ("all", "types"))
        return fields | {
            "to_right": more[:-K],
            "to_wrong": less[:-K],
            "controls": list(INTERVENTIONS),
            "true_classes": np.array(sorted(self.of_class)),
            "images_of_class": np.array([one["all"].n for one in each]),
            "coupling": replace(stack(coupling), n=None),
            "type_coupling": replace(stack(types), n=None),
            "largest_activation": self.largest.numpy(),
            "tied": counts["tied"],
            "prefix": self.prefix,
        }


def _measures(votes, couplings, poses, labels: Tensor) -> dict[str, Tensor]:
    """Of couplings (R, B, I, J) and the poses after them, image by image: (B, R, ...)."""
    nats = entropy(couplings)
    agreed = agreement(votes, couplings, poses).movedim(0, 1)  # (B, R, J)
    true = agreed.gather(2, labels[:, None, None].expand(-1, agreed.shape[1], 1))[..., 0]
    others = (agreed.sum(2) - true) / (agreed.shape[2] - 1)
    return {
        "entropy_nats": nats.mean(2).T,
        "effective_parents": nats.exp().mean(2).T,
        "polarisation": couplings.amax(3).mean(2).T,
        "agreement": torch.stack([true, others], 2),
        "coupling_sd": tracing.coupling_sd(couplings).T,
    }
