"""What is unlike a CapsNet of 2017, as measured; and the attribute that sets its iterations."""

from __future__ import annotations

import re

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from capsviz.foreign.network import Wrapped
from capsviz.foreign.recorder import record
from capsviz.foreign.report import Fact

CLOSE = 1e-3


def put_peculiarities(wrapped: Wrapped, images: Tensor, routed) -> None:
    """What is unlike the CapsNet of 2017, as measured: said, so that it is no alarm."""
    traced = wrapped.look(images, keep=("poses", "votes", "couplings", "weights"))
    if "poses" in traced:
        norms = traced["poses"][-1].norm(dim=-1)
        if float((norms - traced["lengths"]).abs().max()) > CLOSE:
            wrapped.peculiar["norms"] = "scores are not the norms of the poses"
    if "couplings" in traced:
        sums = traced["couplings"].sum(3)
        low, high = float(sums.min()), float(sums.max())
        if float((sums - 1).abs().max()) > CLOSE and "sums" not in wrapped.peculiar:
            over = traced["couplings"].sum(2)
            children = float((over - 1).abs().max()) <= CLOSE
            wrapped.peculiar["sums"] = (
                "couplings sum to 1 over children, not over parents"
                if children
                else f"couplings of a child sum to {low:.3g} to {high:.3g}"
            )
    if {"poses", "votes", "couplings"} <= set(traced):
        weights = traced.get("weights", traced["couplings"])[-1]
        total = torch.einsum("bij,bije->bje", weights, traced["votes"])
        if float((1 - cosine_similarity(total, traced["poses"][-1], dim=-1)).max()) > CLOSE:
            wrapped.peculiar["votes"] = "poses do not point along the weighted sum of the votes"
    wrapped.facts.extend(Fact("told", reason) for reason in wrapped.peculiar.values())


def put_iterations(wrapped: Wrapped, images: Tensor, routed) -> None:
    """The attribute that sets the number of passes: one that, raised by 1, makes one more."""
    if routed is None:
        return
    layer = routed[0]
    passes, sites = len(layer.rounds), {turn.event.site for turn in layer.rounds}
    if passes < 2:
        return
    fits = []
    for name, module in wrapped.network.named_modules():
        for attribute, value in list(vars(module).items()):
            named = re.search(r"iter|rout|^r$|^n_?r$", attribute, re.IGNORECASE)
            if not named or type(value) is not int or not passes - 1 <= value <= passes:
                continue
            setattr(module, attribute, value + 1)
            try:
                run = record(wrapped.network, lambda: wrapped.passed(images[:2]))
                count = sum(event.site in sites for event in run.events)
            except Exception:  # somebody's code, with a number it was not made for
                count = 0
            finally:
                setattr(module, attribute, value)
            if count == passes + 1:
                fits.append((module, attribute, value - passes, f"{name}.{attribute}".strip(".")))
    if len(fits) == 1:
        wrapped.recipe.iterations = fits[0][:3]
        wrapped.facts.append(Fact("iterations", f"{passes}, set by {fits[0][3]}"))
    else:
        names = ", ".join(fit[3] for fit in fits) or "no attribute found that sets them"
        wrapped.facts.append(Fact("iterations", f"{passes}, fixed: {names}"))
