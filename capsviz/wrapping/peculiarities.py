"""What is unlike a CapsNet of 2017, as measured; and what sets its iterations."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from capsviz.tracing.verification import allowed
from capsviz.wrapping.iterations import setters
from capsviz.wrapping.network import Wrapped
from capsviz.wrapping.recorder import record
from capsviz.wrapping.report import Fact
from capsviz.wrapping.trial import Trial

TINY = 1e-30


def put_peculiarities(wrapped: Wrapped, images: Tensor) -> None:
    """What is unlike the CapsNet of 2017, as measured: said, so that it is no alarm."""
    traced = wrapped.look(images, keep=("poses", "votes", "couplings", "weights"))
    close = allowed(traced.values())
    if "poses" in traced:
        norms = traced["poses"][-1].norm(dim=-1)
        if float((norms - traced["lengths"]).abs().max()) > close:
            wrapped.peculiar["norms"] = (
                "scores are not the norms of the poses; of passes before the last there are these "
                "norms alone"
            )
    if "couplings" in traced:
        sums = traced["couplings"].sum(3)
        low, high = float(sums.min()), float(sums.max())
        if float((sums - 1).abs().max()) > close and "sums" not in wrapped.peculiar:
            over = traced["couplings"].sum(2)
            children = float((over - 1).abs().max()) <= close
            wrapped.peculiar["sums"] = (
                "couplings sum to 1 over children, not over parents"
                if children
                else f"couplings of a child sum to {low:.3g} to {high:.3g}"
            )
    if {"poses", "votes", "couplings"} <= set(traced):
        weights = traced.get("weights", traced["couplings"])[-1]
        total = torch.einsum("bij,bije->bje", weights.double(), traced["votes"].double())
        poses = traced["poses"][-1]
        if total.shape != poses.shape:
            numbers = f"poses have {poses.shape[-1]} numbers, votes {total.shape[-1]}"
            wrapped.peculiar["votes"] = numbers
        elif float((1 - _alike(total, poses)).max()) > close:
            wrapped.peculiar["votes"] = "poses do not point along the weighted sum of the votes"
    wrapped.facts.extend(Fact("told", reason) for reason in wrapped.peculiar.values())


def _alike(a: Tensor, b: Tensor) -> Tensor:
    """Cosines of vectors (..., E); 1 where one is zero: its direction says nothing."""
    a, b = (x.double() / x.double().abs().amax(-1, keepdim=True).clamp_min(TINY) for x in (a, b))
    cosines = cosine_similarity(a, b, dim=-1)
    return torch.where((a == 0).all(-1) | (b == 0).all(-1), 1.0, cosines)


def put_iterations(wrapped: Wrapped, trial: Trial) -> None:
    """The attribute that sets the number of passes: one that, raised by 1, makes one more."""
    layer = trial.layer
    if layer is None:
        return
    passes, sites = len(layer.rounds), {turn.event.site for turn in layer.rounds}
    wrapped.recipe.passes = passes
    if passes < 2:
        return

    def count() -> int:
        run = record(wrapped.network, lambda: wrapped.passed(trial.images[:2]))
        return sum(event.site in sites for event in run.events)

    fits = setters(wrapped.network, range(passes - 1, passes + 1), passes, count)
    if len(fits) == 1:
        only = fits[0]
        wrapped.recipe.iterations = only.module, only.attribute, only.value - passes
        wrapped.facts.append(Fact("iterations", f"{passes}, set by {only.name}"))
    else:
        names = ", ".join(fit.name for fit in fits) or "no attribute found that sets them"
        wrapped.facts.append(Fact("iterations", f"{passes}, fixed: {names}"))
