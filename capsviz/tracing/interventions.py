"""Replace a network's couplings by controls, and measure how far couplings spread.

    "uniform"   the same coupling to all parents: 1/J
    "random"    uniform on the simplex over parents, drawn anew for each image
    "shuffled"  the image's own couplings, permuted among its children
    "matched"   random, with the sum of each child and the standard deviation of the image's own

"uniform" and "random" test whether routing has an effect. The couplings of a child then sum to
their sum in the first iteration. Later sums are equal, except for max-min (smaller) and leaky
routing. If all children and images have one sum in the last iteration and another in the first, as
in routings whose responsibilities begin at 1, the sum of the last is used.

"random" couplings spread far wider than those of most networks (less than those of self-attention),
so that a loss of accuracy says little. "matched" and "shuffled" keep the spread and the sums, and
change only which parents get how much.
"""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from capsviz.discovery import require_known
from capsviz.nn.functional import random_couplings

INTERVENTIONS = ("uniform", "random", "shuffled", "matched")
SAME = 1e-4  # relative tolerance of sums over parents
OF_OWN = ("shuffled", "matched")  # those that need each image's own couplings


def coupling_totals(couplings: Tensor) -> Tensor:
    """Return the sum of each child's couplings over parents: (R, N, I, J) -> (I, 1) double.

    It is taken from the first iteration, and is exactly 1 for couplings of 1/J. The last iteration
    is used if all children and images have one sum there, another than in the first, and its
    couplings are not all 0 or 1.
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
    """Return uniform couplings (I, J), in the type of the network's `own` (R, N, I, J).

    They are `coupling_totals` / J: 1/J, except for routings whose couplings do not sum to 1.
    """
    shape = own.shape[2:]
    return (torch.full(shape, 1 / shape[-1], dtype=own.dtype) * coupling_totals(own)).to(own.dtype)


def coupling_sd(couplings: Tensor) -> Tensor:
    """Return the standard deviation of couplings from uniform ones: (..., I, J) -> (...) double.

    Deviations are taken from the mean of each child, over children and parents.
    """
    own = couplings.double()
    return (own - own.mean(-1, keepdim=True)).square().mean((-2, -1)).sqrt()


def control_couplings(kind: str, own: Tensor, generator: torch.Generator) -> Tensor:
    """Return control couplings for B images.

    Parameters
    ----------
    kind       one of `INTERVENTIONS`.
    own        (R, B, I, J) the network's own; "uniform" and "random" use their totals.
    generator  random generator; every image takes the same number of draws.

    Returns
    -------
    (R, B, I, J) for "shuffled" and "matched", iteration by iteration; (1, B, I, J) for the others.

    Raises
    ------
    ValueError  for an unknown kind, or any but "uniform" for a layer that is not fully connected.
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
    """Move draws (B, I, J) towards uniform or one-hot couplings to match `own` (R, B, I, J).

    The result (R, B, I, J) has the standard deviation of `own`, and its sum for each child.
    """
    even = own.mean(-1, keepdim=True)
    draws = draws * own.sum(-1, keepdim=True)
    away = draws - even
    largest = one_hot(draws.argmax(-1), draws.shape[-1]) * draws.sum(-1, keepdim=True) - draws
    target = (own - even).square().mean((2, 3))
    a, b, c = ((x * y).mean((2, 3)) for x, y in ((away, away), (away, largest), (largest, largest)))
    nearer = torch.where(a > 0, (target / a).sqrt().clamp_max(1), 0)  # factor of `away`
    further = (b.square() + c * (target - a).clamp_min(0)).sqrt() - b  # factor of `largest` × c
    further = torch.where(c > 0, further / c, 0)
    return even + nearer[..., None, None] * away + further[..., None, None] * largest


def of_some(couplings: Tensor, rows: slice, n: int, shape: Iterable[int]) -> Tensor:
    """Return the couplings of some of n images; those of shape (*shape) apply to all.

    ValueError for couplings that are neither (n, *shape) nor (*shape).
    """
    shape = tuple(shape)
    if tuple(couplings.shape) not in ((n, *shape), shape):
        raise ValueError(f"expected couplings {(n, *shape)}, got {tuple(couplings.shape)}")
    return couplings if couplings.dim() == len(shape) else couplings[rows]
