"""Interventions on routing: couplings that replace a network's own, and how far they spread.

    "uniform"   each child gives all parents the same: 1/J
    "random"    uniform on the simplex over parents, another draw for each image
    "shuffled"  the image's own couplings, exchanged among its children
    "matched"   random, with each child's total and the standard deviation of the image's own

The first two ask whether routing differs from none. A child's couplings then sum to what they sum
to in the first iteration; later sums are the same, except for max-min (smaller) and leaky routing.
If the last iteration has one sum for all children and images, and the first another, as where
responsibilities begin at 1, the last one's is used. Random couplings spread far wider than those of
most networks (less wide than those of self-attention), so that what they spoil says little;
"matched" and "shuffled" spread as widely as the network's own and give as much: only to which
parents is changed.
"""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from capsviz.discovery import require_known
from capsviz.nn.functional import random_couplings

INTERVENTIONS = ("uniform", "random", "shuffled", "matched")
SAME = 1e-4  # of what children give
OF_OWN = ("shuffled", "matched")  # those that need each image's own couplings


def coupling_totals(couplings: Tensor) -> Tensor:
    """Return what each child's couplings sum to over parents: (R, N, I, J) -> (I, 1) double.

    The sums are those of the first iteration, exactly 1 for couplings of 1/J; those of the last if
    all children and images have one sum there, not of zeros and ones, and another in the first.
    """
    first, shares = couplings[0, 0].cpu(), couplings[-1].cpu().double()
    last, hard = shares.sum(-1), ((shares == 0) | (shares == 1)).all()
    usual, begun = last.mean(), first.double().sum(-1)
    near, begun_near = ((t - usual).abs() <= SAME * usual.abs() for t in (last, begun))
    if near.all() and not begun_near.all() and not hard:
        return usual.expand(*first.shape[:-1], 1).clone()
    even = torch.full_like(first, 1 / first.shape[-1])
    return (first.double() / even.double()).mean(-1, keepdim=True)


def even_couplings(own: Tensor) -> Tensor:
    """Return uniform couplings (I, J): each child gives all parents the same (`coupling_totals`).

    `own` are the network's, (R, N, I, J): 1/J but for routings in which children give less;
    in their type.
    """
    shape = own.shape[2:]
    return (torch.full(shape, 1 / shape[-1], dtype=own.dtype) * coupling_totals(own)).to(own.dtype)


def coupling_sd(couplings: Tensor) -> Tensor:
    """Return how far couplings deviate from uniform ones: (..., I, J) -> (...) double.

    It is the standard deviation over children and parents, 0 where each child gives all parents the
    same.
    """
    own = couplings.double()
    return (own - own.mean(-1, keepdim=True)).square().mean((-2, -1)).sqrt()


def control_couplings(kind: str, own: Tensor, generator: torch.Generator) -> Tensor:
    """Return couplings that replace those of B images.

    Parameters
    ----------
    kind       one of `INTERVENTIONS`.
    own        (R, B, I, J) the network's; "uniform" and "random" look at the first image's alone.
    generator  of the draws, the same number for each image.

    Returns
    -------
    (R, B, I, J) for "shuffled" and "matched", iteration by iteration; (1, B, I, J) for the others.

    Raises
    ------
    ValueError  for another kind, or any but "uniform" for a layer that is not fully connected.
    """
    require_known("couplings", kind, INTERVENTIONS)
    if kind == "uniform":
        return even_couplings(own).expand(1, *own.shape[1:])
    if own.dim() != 4:
        raise ValueError(
            f'couplings="{kind}" needs a layer in which all parents see all children, '
            'expected couplings="uniform" for this one'
        )
    R, B, I, J = own.shape
    if kind == "shuffled":
        keys = torch.stack([torch.rand(R, I, generator=generator) for _ in range(B)], 1)
        return own.cpu().gather(2, keys.argsort(2)[..., None].expand(R, B, I, J))
    draws = torch.cat([random_couplings((1, I, J), generator=generator) for _ in range(B)])
    if kind == "random":
        return (draws * coupling_totals(own))[None].float()
    return _matched(own.cpu().double(), draws).float()


def _matched(own: Tensor, draws: Tensor) -> Tensor:
    """Return draws (B, I, J), moved towards uniform or one-hot ones until their standard
    deviation is that of `own` (R, B, I, J), exactly; each child gives what it gives in `own`.
    """
    even = own.mean(-1, keepdim=True)
    draws = draws * own.sum(-1, keepdim=True)
    away = draws - even
    largest = one_hot(draws.argmax(-1), draws.shape[-1]) * draws.sum(-1, keepdim=True) - draws
    target = (own - even).square().mean((2, 3))
    a, b, c = ((x * y).mean((2, 3)) for x, y in ((away, away), (away, largest), (largest, largest)))
    nearer = torch.where(a > 0, (target / a).sqrt().clamp_max(1), 0)  # times `away`; then this
    further = (b.square() + c * (target - a).clamp_min(0)).sqrt() - b  # share of `largest`:
    further = torch.where(c > 0, further / c, 0)
    return even + nearer[..., None, None] * away + further[..., None, None] * largest


def of_some(couplings: Tensor, rows: slice, n: int, shape: Iterable[int]) -> Tensor:
    """Select the couplings of some images, from (N, *shape) or (*shape) given for n images.

    ValueError for couplings of another shape.
    """
    shape = tuple(shape)
    if tuple(couplings.shape) not in ((n, *shape), shape):
        raise ValueError(f"expected couplings {(n, *shape)}, got {tuple(couplings.shape)}")
    return couplings if couplings.dim() == len(shape) else couplings[rows]
