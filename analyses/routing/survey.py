"""Measure the effect of routing on each of many images, and average."""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capsviz import tracing
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.intervals import RunningMean, paired_each, require_two, wilson_each
from capsviz.tracing import DRAWN_IMAGES, INTERVENTIONS, fit_at_a_time, trace
from capsviz.tracing.many import winners
from capsviz.tracing.measures import INSIDE, agreement, by_type, entropy

PIECE = 16  # images measured at a time; each step copies their votes
PREFIX_IMAGES, PREFIX_TOLERANCE = 4, 1e-4  # to test if pass r of M is the result of r


def survey(
    model, images: Tensor, labels: Tensor, *, iterations: int | None, most: int, seed: int,
    progress=iter,
) -> dict[str, Any]:  # fmt: skip
    """Return the fields of `Statistics` that are measured in N images.

    M is the larger of `most` and the number of iterations R. If the network accepts only its own
    number, M is R, so a routing of one pass has M = 1. One image decides which case holds.

    If pass r of M is the result of r iterations, one trace gives all r; otherwise each r is run
    alone. Differences of accuracy are from one iteration, on the same images.
    """
    require_two(len(images))
    few = images[:PREFIX_IMAGES]
    one = trace(model, few[:1], keep=("poses", "votes"), iterations=iterations)
    R = len(one.require("poses"))
    at_once = fit_at_a_time(one.require("votes"))
    M = R  # unless the network accepts more
    if most > R:
        with suppress(ValueError):
            _result(model, few[:1], most)
            M = most
    prefix, generator = _is_prefix(model, few, M, R), torch.Generator().manual_seed(seed)
    activations_of_chunks: list[Tensor] = []  # activations (M + K, b, J) of each chunk
    means: defaultdict[str, RunningMean] = defaultdict(RunningMean)
    of_class = {int(k): (RunningMean(), RunningMean()) for k in labels.unique()}  # types, all types

    def measure_chunk(rows):  # a function, so that each chunk's votes are freed before the next
        batch, true = images[rows], labels[rows]
        count = M if prefix else R
        traced = trace(model, batch, keep=("child_activations", *INSIDE), iterations=count)
        activations = traced.require("activations")
        if not prefix:
            activations = torch.stack([_result(model, batch, r) for r in range(1, M + 1)])
        own, votes = traced.require("couplings")[:R], traced.require("votes")
        controls = (  # those of the last iteration; "shuffled" draws for each one
            tracing.control_couplings(kind, own[-1:] if kind == "matched" else own, generator)[-1:]
            for kind in INTERVENTIONS
        )
        stacked = torch.cat([own, *controls])
        replaced = tracing.parents_under(model, batch, [*stacked[R:]], iterations=iterations)
        poses = torch.cat([traced.require("poses")[:R], replaced.poses])
        pieces = votes.split(PIECE), stacked.split(PIECE, 1), poses.split(PIECE, 1)
        for some, *piece in zip(true.split(PIECE), *pieces, strict=True):
            for name, values in _measures(*piece, some).items():
                means[name].add(values[:, :R].numpy())
                means[f"control_{name}"].add(values[:, R:].numpy())
        means["child_activation"].add(traced.require("child_activations").numpy())
        activations_of_chunks.append(torch.cat([activations, replaced.activations]))
        types = by_type(own[-1], traced.grid)
        for k in true.unique():
            each, together = of_class[int(k)]
            own_types = types[true == k]
            each.add(own_types.numpy())
            together.add(own_types.double().mean(1).numpy())

    for rows in progress(torch.arange(len(images)).split(min(at_once, DRAWN_IMAGES))):
        measure_chunk(rows)
    fields = {name: estimate(one, share="polarisation" in name) for name, one in means.items()}
    types, together = zip(*of_class.values(), strict=True)
    return {
        **fields,
        **_outcomes(torch.cat(activations_of_chunks, 1).movedim(1, 0), labels),
        "control_sd": fields["control_coupling_sd"],
        "controls": list(INTERVENTIONS),
        "true_classes": np.array(list(of_class)),
        "images_of_class": np.array([one.n for one in types]),
        "coupling": _stacked(together),
        "type_coupling": _stacked(types),
        "largest_activation": means["child_activation"].highest,
        "prefix": prefix,
    }


def _outcomes(activations: Tensor, labels: Tensor) -> dict[str, Any]:
    """Compare the predictions with the labels (N,) and with those of one iteration.

    Predictions come from activations (N, M + K, J). A tie predicts no class.
    """
    n, K = len(labels), len(INTERVENTIONS)
    predicted = winners(activations).numpy().T
    right, changed = predicted == labels.numpy(), predicted != predicted[0]
    more, less = (right & ~right[0]).sum(1), (~right & right[0]).sum(1)
    gain = Estimate((more - less) / n, paired_each(more, less, n), n)
    shares = [Estimate(one.mean(1), wilson_each(one.sum(1), n), n) for one in (right, changed)]
    gain.ci95[0] = shares[1].ci95[0] = 0  # r = 1 compared with itself
    true = RunningMean(activations[torch.arange(n), :, labels].numpy())
    fields: dict[str, Any] = {}
    for name, one in (
        ("accuracy", replace(shares[0], difference=gain)),
        ("changed", shares[1]),
        ("true_activation", estimate(true, share=True)),
    ):
        fields |= {name: one[:-K], f"control_{name}": one[-K:]}
    return fields | {"to_right": more[:-K], "to_wrong": less[:-K]}


def estimate(one: RunningMean, *, share: bool = False) -> Estimate:
    """Return the mean over images with Student's interval, which is NaN for one image.

    With `share`, the interval is clipped to [0, 1] if all values lie in [0, 1].
    """
    ends = one.interval()
    if share and one.lowest.min() >= 0 and one.highest.max() <= 1:
        ends = np.clip(ends, 0, 1)
    return Estimate(one.mean, ends, one.n)


def _stacked(of_classes: Iterable[RunningMean]) -> Estimate:
    """Stack the means of the classes; `n` is None, as classes differ in their number of images."""
    return replace(stack(estimate(one, share=True) for one in of_classes), n=None)


def _is_prefix(model, few: Tensor, most: int, iterations: int) -> bool:
    """Return whether pass r of M is, or has to serve as, the result of r iterations."""
    if most == iterations == 1:
        return True
    whole = trace(model, few, keep=("activations",), iterations=most)
    try:
        singly = torch.stack([_result(model, few, r) for r in range(1, most + 1)])
    except ValueError:  # no other number of iterations: only the passes exist
        return True
    return torch.allclose(whole.require("activations"), singly, rtol=0, atol=PREFIX_TOLERANCE)


def _result(model, images: Tensor, r: int) -> Tensor:
    """Return the activations (B, J) after r iterations."""
    return trace(model, images, keep=("lengths",), iterations=r).require("lengths")


def _measures(votes, couplings, poses, labels: Tensor) -> dict[str, Tensor]:
    """Return measures (B, R, ...) of couplings (R, B, I, J) and of the poses after them."""
    each = [(entropy(one), tracing.coupling_sd(one)) for one in couplings]  # float64: one at a time
    nats, deviations = map(torch.stack, zip(*each, strict=True))
    agreed = agreement(votes, couplings, poses).movedim(0, 1)  # (B, R, J)
    true = agreed.gather(2, labels[:, None, None].expand(-1, agreed.shape[1], 1))[..., 0]
    others = (agreed.sum(2) - true) / (agreed.shape[2] - 1)
    return {
        "entropy_nats": nats.mean(2).T,
        "effective_parents": nats.exp().mean(2).T,
        "polarisation": couplings.amax(3).mean(2).T,
        "agreement": torch.stack([true, others], 2),
        "coupling_sd": deviations.T,
    }
