"""Route children again: with other couplings, with other children, or with gradients.

If a network has `encode` and `capsules`, the children of a chunk of images are computed once, and
routed with each of the couplings. Any other network is traced again for each.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from capsviz.nn.routing import Parents
from capsviz.tracing.forward import fit_at_a_time, images_at_a_time, trace
from capsviz.tracing.interventions import of_some
from capsviz.tracing.needs import require
from capsviz.tracing.network import abilities, check_layer, inference, inputs_of
from capsviz.tracing.record import require_finite_parts
from capsviz.tracing.verification import verify_once


def parents(model, images: Tensor) -> Parents:
    """Return poses (N, J, E) and activations (N, J) of the classes, after the last iteration.

    They equal those of a trace within rounding. Votes are not computed if the routing does not need
    them. NotFiniteError for poses or activations that are NaN or infinite.
    """
    if not abilities(model).routes_again:
        traced = trace(model, images, keep=("poses", "lengths"))
        return Parents(traced.require("poses")[-1], traced.require("lengths"))
    images = inputs_of(model, images)
    verify_once(model, images)
    each = [model.capsules.couple(*children) for _, *children in chunks(model, images)]
    joined = Parents(*(torch.cat(part).cpu() for part in zip(*each, strict=True)))
    require_finite_parts(joined._asdict(), abilities(model).name)
    return joined


def parents_under(
    model,
    images: Tensor,
    several: Sequence[Tensor | None],
    *,
    iterations: int | None = None,
    progress=iter,
    with_poses: bool = True,
) -> Parents:
    """Return poses (K, N, J, E) and activations (K, N, J) of the classes under K couplings.

    Parameters
    ----------
    images      (N, C, H, W) in [0, 1].
    several     K times couplings for every iteration: (N, I, J), (I, J) for all images, or None
                (the network routes).
    iterations  number of routing iterations. By default the network's own.
    progress    wraps the loop over chunks of images, or over `several`.
    with_poses  False: poses may be empty, so that networks without poses are supported.

    Raises
    ------
    ValueError  if couplings cannot be replaced.
    """
    images = inputs_of(model, images)
    _require_couplings(several)
    if not abilities(model).routes_again:
        keep = ("poses", "lengths") if with_poses else ("lengths",)
        traced = [
            trace(model, images, keep=keep, couplings=one, iterations=iterations)
            for one in progress(several)
        ]
        lengths = torch.stack([one.require("lengths") for one in traced])
        ends = [one.require("poses")[-1] for one in traced] if with_poses else []
        return Parents(torch.stack(ends) if with_poses else lengths.new_empty(0), lengths)
    chunked = []
    for rows, primary, active in chunks(model, images, progress, votes=True):
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
    require_finite_parts({"poses": poses, "activations": activations}, abilities(model).name)
    return Parents(poses, activations)


def under_couplings(model, images: Tensor, several: Sequence[Tensor | None], **options) -> Tensor:
    """Return the activations (K, N, J) of `parents_under`, also for networks without poses."""
    return parents_under(model, images, several, with_poses=False, **options).activations


def _require_couplings(several: Sequence[Tensor | None]) -> None:
    """Raise ValueError if there are none, or some are not finite; TypeError if not tensors."""
    if len(several) == 0:
        raise ValueError("expected couplings, or None where the network routes: got an empty list")
    for one in several:
        if not (one is None or isinstance(one, Tensor)):
            raise TypeError(f"expected couplings as tensors or None, got {type(one).__name__}")
        if one is not None and not one.isfinite().all():
            raise ValueError("expected finite couplings, got some that are not finite")


def from_children(
    model,
    children: Tensor,
    activations: Tensor | None = None,
    *,
    layer: int = -1,
    couplings: Tensor | Sequence[Tensor | None] | None = None,
) -> Tensor:
    """Return activations (N, J) of the classes, for children that need not come from an image.

    Parameters
    ----------
    children     (N, I, D) of a routed layer, on any device.
    activations  (N, I) of the children; None: their lengths.
    layer        index of the layer.
    couplings    (N, I, J) of that layer for every iteration, or a list with one entry for each
                 iteration: couplings, or None if the network routes.

    Raises
    ------
    ValueError  if the network has no `from_children` or no such layer, or if children, activations
                or couplings have a wrong shape.
    """
    require(model, ("from_children",), "an exchange of children")
    layer = -1 if layer == len(abilities(model).grids) - 1 else layer
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
    _require_couplings(each)
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
    require_finite_parts({"last": classes}, abilities(model).name)
    return classes


def chunks(
    model, images: Tensor, progress: Callable = iter, *, votes: bool = False
) -> Iterator[tuple[slice, Tensor, Tensor | None]]:
    """Yield rows, children (B, I, D), and their activations (B, I) or None, chunk by chunk.

    With `votes`, the votes of a chunk fit into `CHUNK_BYTES`.
    """
    like, size = next(model.parameters()), images_at_a_time(model, votes)
    few = None  # images in a chunk
    with inference(model):
        for start in progress(range(0, len(images), size)):
            children, active = model.encode(images[start : start + size].to(like))
            if few is None:
                few = fit_at_a_time(model.capsules.votes(children[:1])) if votes else size
            parts = children.split(few)
            each = [None] * len(parts) if active is None else active.split(few)
            for own, its in zip(parts, each, strict=True):
                yield slice(start, start + len(own)), own, its
                start += len(own)
