"""Link parents to the children that they see, as in a convolution, and route over the links."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from capsviz.discovery import parameters
from capsviz.nn.computation import CPU, cached
from capsviz.nn.routing import Parents, Routing, like_logits


class Links(NamedTuple):
    """Children seen from Q positions with I slots each; votes are (B, Q, I, J, E)."""

    child: Tensor  # (Q, I) int64: number of the child in each slot, -1 for none
    count: int  # type: ignore[assignment]  # number of children; shadows `tuple.count`


@cached
def convolution_links(
    grid: tuple[int, int, int], kernel: int, stride: int = 1, device: torch.device = CPU
) -> tuple[Links, tuple[int, int]]:
    """Return the links of a convolution without padding, and (rows, columns) of its positions.

    Child (type * rows + row) * columns + column has that type and position. Slot
    (type * kernel + y) * kernel + x of a position sees the child y rows below and x columns right
    of the corner of its window.

    Parameters
    ----------
    grid    (types, rows, columns) of the children.
    kernel  K, positions of children that a parent sees in each direction; ValueError if it does
            not fit into the grid.
    stride  positions of children from one parent to the next.
    """
    types, rows, columns = grid
    if min(kernel, stride) < 1 or kernel > min(rows, columns):
        raise ValueError(
            f"expected kernel and stride of at least 1, and a kernel that fits into {rows} x "
            f"{columns} positions, got kernel {kernel} and stride {stride}"
        )
    child = torch.arange(types * rows * columns, device=device).view(types, rows, columns)
    windows = child.unfold(1, kernel, stride).unfold(2, kernel, stride)  # types, q, q, K, K
    places = (windows.shape[1], windows.shape[2])
    child = windows.permute(1, 2, 0, 3, 4).reshape(places[0] * places[1], types * kernel**2)
    return Links(child.contiguous(), types * rows * columns), places


def softmax(logits: Tensor, links: Links | None) -> Tensor:
    """Return the couplings of each child over all parents that see it.

    Logits and couplings are (B, I, J), or (B, Q, I, J) with `links`. Parents of all positions and
    types compete. Slots without a child have couplings 0.
    """
    if links is None:
        return logits.softmax(-1)
    B, Q, I, J = logits.shape
    mask, child = _slots(links)
    flat = logits.reshape(B, Q * I, J)
    peaks = flat.detach().amax(2).masked_fill(~mask, -torch.inf)
    highest = flat.new_full((B, links.count), -torch.inf).scatter_reduce(
        1, child.expand(B, -1), peaks, "amax"
    )
    shifted = flat - highest[:, child].clamp_min(torch.finfo(flat.dtype).min)[:, :, None]
    exponentials = torch.where(mask[:, None], shifted, 0).exp() * mask[:, None]
    total = flat.new_zeros(B, links.count).index_add(1, child, exponentials.sum(2))
    total = torch.where(mask, total[:, child], 1)
    return (exponentials / total[:, :, None]).view(B, Q, I, J)


def of_slots(values: Tensor, links: Links | None) -> Tensor:
    """Gather values of children (B, count, ...) by slot (B, Q, I, ...), 0 without a child."""
    if links is None:
        return values
    if values.shape[1] != links.count:
        raise ValueError(f"expected {links.count} children, got the shape {tuple(values.shape)}")
    mask, child = _slots(links)
    mask = mask.view(-1, *(1 for _ in values.shape[2:]))
    return (values[:, child] * mask).unflatten(1, links.child.shape)


def of_places(parents: Parents, links: Links | None) -> Parents:
    """Unfold positions from the batch of parents: (B * Q, J, ...) to (B, Q, J, ...)."""
    if links is None:
        return parents
    return Parents(*(part.unflatten(0, (-1, len(links.child))) for part in parents))


def _slots(links: Links) -> tuple[Tensor, Tensor]:
    """Return whether each slot (Q * I) sees a child, and its number, or 0."""
    child = links.child.flatten()
    return child >= 0, child.clamp_min(0)


def route_places(
    route: Callable[..., Routing],
    votes: Tensor,
    *,
    links: Links | None,
    couplings: Tensor | Sequence[Tensor | None] | None = None,
    **options,
) -> Routing:
    """Apply any routing to the votes (B, Q, I, J, E) of positions; results have Q after B.

    If `route` takes `links`, positions compete for children. Otherwise Q is folded into the batch,
    so that each position is routed like an image, and values of children are gathered by slot.

    Parameters
    ----------
    route      of a routing.
    links      None: each parent sees all children, and there is no Q.
    couplings  (B, Q, I, J), or a shape that broadcasts to it; or a list with one per iteration.
    options    of its `route`; `activations` (B, count) and `children` (B, count, D).
    """
    own = {"links": links} if "links" in parameters(route) else {}
    if links is not None:
        check_links(votes, links)
    if links is None or own:
        return route(votes, couplings=couplings, **own, **options)
    B, Q, I = votes.shape[:3]
    mask, _ = _slots(links)
    votes = votes * mask.view(Q, I, 1, 1)
    for name in {"activations", "children"} & options.keys():
        options[name] = of_slots(options[name], links).flatten(0, 1)

    def folded(one: Tensor | None) -> Tensor | None:
        return None if one is None else like_logits(one, votes[..., 0]).flatten(0, 1)

    if couplings is None or isinstance(couplings, Tensor):
        options["couplings"] = folded(couplings)
    else:
        options["couplings"] = [folded(one) for one in couplings]
    result = route(votes.flatten(0, 1), **options)
    return Routing(*(part.unflatten(1, (B, Q)) for part in result))


def fuse_places(
    fused: Callable[..., Parents],
    children: Tensor,
    matrices: Tensor,
    links: Links | None,
    **options,
) -> Parents:
    """Apply the `fused` function of a routing to positions, like `route_places`.

    Takes children (B, count, D), matrices (I, J, E, D) of the slots of a position, and `options` of
    `fused`, such as `activations` (B, count). Returns Parents (B, Q, J, E). If `links` is None,
    each parent sees all children, and there is no Q.
    """
    own = {"links": links} if "links" in parameters(fused) else {}
    if links is None or own:
        return fused(children, matrices, **own, **options)
    if "activations" in options:
        options["activations"] = of_slots(options["activations"], links).flatten(0, 1)
    slots = of_slots(children, links).flatten(0, 1)
    return of_places(fused(slots, matrices, **options), links)


def check_links(votes: Tensor, links: Links) -> None:
    """Raise ValueError for votes that are not (B, Q, I, J, E) of the links."""
    if votes.dim() != 5 or votes.shape[1:3] != links.child.shape:
        raise ValueError(
            f"with links, votes must be (B, Q, I, J, E) with (Q, I) = {tuple(links.child.shape)}, "
            f"got the shape {tuple(votes.shape)}"
        )
