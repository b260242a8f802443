"""What a network says under other couplings, or of other children: children are made once.

A network whose `encode` gives its children, and whose `capsules` route them, is asked for these
once a chunk of images, and routed as often as there are couplings, or children left out. Any other
is traced anew for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from capsviz.nn.images import check_images
from capsviz.nn.routing import Parents
from capsviz.tracing.finite import require_finite_parts
from capsviz.tracing.forward import images_at_a_time, trace
from capsviz.tracing.interventions import of_some
from capsviz.tracing.modes import inference
from capsviz.tracing.needs import require
from capsviz.tracing.places import grids
from capsviz.tracing.requests import check_layer


def routes_again(model) -> bool:
    """Whether a network's children can be routed again without its stem."""
    capsules = getattr(model, "capsules", None)
    return hasattr(model, "encode") and hasattr(capsules, "route_votes")


def parents_under(
    model,
    images: Tensor,
    several: Sequence[Tensor | None],
    *,
    iterations: int | None = None,
    progress=iter,
) -> Parents:
    """Poses (K, N, J, E) and activations (K, N, J) of the classes under K couplings.

    Parameters
    ----------
    images      (N, C, H, W).
    several     couplings (N, I, J), or (I, J) for all images, in every iteration; None routes.
    iterations  of routing, instead of the network's own.
    progress    wraps the chunks of images.

    Raises
    ------
    ValueError  for a network whose couplings cannot be replaced.
    """
    check_images(images)
    _check(several)
    if not routes_again(model):
        traced = [
            trace(model, images, keep=("poses", "lengths"), couplings=one, iterations=iterations)
            for one in progress(several)
        ]
        pairs = [(one.poses, one.lengths) for one in traced]
        kept = [(poses[-1], lengths) for poses, lengths in pairs if poses is not None]
        return Parents(*(torch.stack(part) for part in zip(*kept, strict=True)))
    chunked = []
    for rows, primary, active in chunks(model, images, progress):
        votes = model.capsules.votes(primary)
        pairs = []
        for one in several:
            chosen = one
            if one is not None:
                chosen = of_some(one, rows, len(images), votes.shape[1:3]).to(votes)
            routed = model.capsules.route_votes(
                votes, primary, activations=active, couplings=chosen, iterations=iterations
            )
            pairs.append((routed.poses[-1].cpu(), routed.activations[-1].cpu()))
        chunked.append([torch.stack(part) for part in zip(*pairs, strict=True)])
    poses, activations = (torch.cat(part, 1) for part in zip(*chunked, strict=True))
    require_finite_parts({"poses": poses, "activations": activations}, model)
    return Parents(poses, activations)


def _check(several: Sequence[Tensor | None]) -> None:
    """ValueError for no couplings, or some that are not finite; TypeError for what is no tensor."""
    if len(several) == 0:
        raise ValueError("expected couplings, or None where the network routes: got an empty list")
    for one in several:
        if not (one is None or isinstance(one, Tensor)):
            raise TypeError(f"expected couplings as tensors or None, got {type(one).__name__}")
        if one is not None and not one.isfinite().all():
            raise ValueError("expected couplings that are numbers, got some that are not finite")


def under_couplings(
    model,
    images: Tensor,
    several: Sequence[Tensor | None],
    *,
    iterations: int | None = None,
    progress=iter,
) -> Tensor:
    """Activations (K, N, J) alone, as `parents_under` has them; poses are not asked for."""
    if routes_again(model):
        routed = parents_under(model, images, several, iterations=iterations, progress=progress)
        return routed.activations
    check_images(images)
    _check(several)
    traced = [
        trace(model, images, keep=("lengths",), couplings=one, iterations=iterations)
        for one in progress(several)
    ]
    return torch.stack([one.lengths for one in traced if one.lengths is not None])


def from_children(
    model,
    children: Tensor,
    activations: Tensor | None = None,
    *,
    layer: int = -1,
    couplings: Tensor | Sequence[Tensor | None] | None = None,
) -> Tensor:
    """Activations (N, J) of the classes, of children that need not be those of an image.

    Parameters
    ----------
    children     (N, I, D) of a routed layer, on any device.
    activations  (N, I) of the children; None: their lengths.
    layer        number of the layer, as an index.
    couplings    (N, I, J) of that layer in place of its own, in every iteration; or a list, of one
                 for each iteration, None where it routes by itself.

    Raises
    ------
    ValueError  for a network without `from_children`, a layer that it does not have, or children,
                activations or couplings of another shape.
    """
    require(model, ("from_children",), "an exchange of children")
    layer = -1 if layer == len(grids(model)) - 1 else layer
    check_layer(model, layer, model.from_children)
    if children.dim() != 3 or not (activations is None or activations.shape == children.shape[:2]):
        form = None if activations is None else tuple(activations.shape)
        raise ValueError(
            f"expected children (N, I, D) and activations (N, I), got {tuple(children.shape)} and "
            f"{form}"
        )
    each: list[Tensor | None] = [None]
    if couplings is not None:
        each = [couplings] if isinstance(couplings, Tensor) else list(couplings)
    _check(each)
    for one in each:
        if one is not None and (one.dim() < 3 or len(one) != len(children)):
            raise ValueError(f"expected couplings ({len(children)}, I, J), got {tuple(one.shape)}")
    like, parts = next(model.parameters(), children), []
    more: dict[str, Any] = {} if layer == -1 else {"layer": layer}
    with inference(model):
        for rows in torch.arange(len(children)).split(images_at_a_time(model)):
            if isinstance(couplings, Tensor):
                more["couplings"] = couplings[rows].to(like)
            elif couplings is not None:
                more["couplings"] = [None if one is None else one[rows].to(like) for one in each]
            active = None if activations is None else activations[rows].to(like)
            _, classes = model.from_children(children[rows].to(like), active, **more)
            parts.append(classes.cpu())
    classes = torch.cat(parts)
    require_finite_parts({"last": classes}, model)
    return classes


def chunks(
    model, images: Tensor, progress: Callable = iter
) -> Iterator[tuple[slice, Tensor, Tensor | None]]:
    """Rows, children (B, I, D) and their activations (B, I) or None, a chunk after the other."""
    like, size = next(model.parameters()), images_at_a_time(model)
    with inference(model):
        for start in progress(range(0, len(images), size)):
            rows = slice(start, start + size)
            yield rows, *model.encode(images[rows].to(like))
