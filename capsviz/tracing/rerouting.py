"""What a network says under other couplings, or without some children: children are made once.

A network whose `encode` gives its children, and whose `capsules` route them, is asked for these
once a chunk of images, and routed as often as there are couplings, or children left out. Any other
is traced anew for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from capsviz.tracing.forward import images_at_a_time, trace
from capsviz.tracing.interventions import of_some
from capsviz.tracing.modes import inference
from capsviz.tracing.requests import check_images


def routes_again(model) -> bool:
    """Whether a network's children can be routed again without its stem."""
    capsules = getattr(model, "capsules", None)
    return hasattr(model, "encode") and hasattr(capsules, "route_votes")


def under_couplings(
    model, images: Tensor, several: Sequence[Tensor | None], *, progress=iter
) -> Tensor:
    """Activations (K, N, J) of images (N, C, H, W) under K couplings, in every iteration.

    Parameters
    ----------
    several   couplings (N, I, J), or (I, J) for all images; None routes.
    progress  wraps the chunks of images.

    Raises
    ------
    ValueError  for a network whose couplings cannot be replaced.
    """
    check_images(images)
    if not routes_again(model):
        traced = [
            trace(model, images, keep=("lengths",), couplings=one) for one in progress(several)
        ]
        return torch.stack([one.lengths for one in traced if one.lengths is not None])
    parts = []
    for rows, primary, active in chunks(model, images, progress):
        votes = model.capsules.votes(primary)
        activations = []
        for one in several:
            chosen = one
            if one is not None:
                chosen = of_some(one, rows, len(images), votes.shape[1:3]).to(votes)
            routed = model.capsules.route_votes(
                votes, primary, activations=active, couplings=chosen
            )
            activations.append(routed.activations[-1].cpu())
        parts.append(torch.stack(activations))
    return torch.cat(parts, 1)


def chunks(
    model, images: Tensor, progress: Callable = iter
) -> Iterator[tuple[slice, Tensor, Tensor | None]]:
    """Rows, children (B, I, D) and their activations (B, I) or None, a chunk after the other."""
    like, size = next(model.parameters()), images_at_a_time(model)
    with inference(model):
        for start in progress(range(0, len(images), size)):
            rows = slice(start, start + size)
            yield rows, *model.encode(images[rows].to(like))
