"""Moments of votes with uniform shares, the votes never held: a mixture's first iteration.

Their sum is one matrix product, and one pass over blocks of children gives the variance about their
mean. The backward pass makes the votes anew; where its own derivative is asked for, it holds them.
"""

from functools import partial

import torch
from torch import Tensor

from capsviz.nn.computation import without_autocast
from capsviz.nn.routing._competition import Alone
from capsviz.nn.routing._mixture import ALONE, Moments, second_derivative, spaces
from capsviz.nn.routing._parts import per_mass


def even_moments(
    children: Tensor, weight: Tensor, activations: Tensor, competition: Alone = ALONE
) -> Moments:
    """Return moments of the votes about their mean, each child divided equally among parents.

    Parameters are those of `mixture`.
    """
    I, J, E, _ = weight.shape
    size, sums = J * E * children.element_size(), []
    for piece in competition.pieces(children.shape[2], I, size, children.device):
        some = [values[..., piece].contiguous() for values in (children, activations.T)]
        sharers = _sharers(competition, J, some[1])
        mass = (some[1] / sharers).sum(0).expand(J, -1)
        sums.append((mass, *_Even.apply(competition, sharers, some[0], weight, some[1])))
    mass, *parts = (torch.cat(some, -1) for some in zip(*sums, strict=True))
    return Moments(mass.T, *[part.permute(2, 0, 1) for part in parts])


def _sharers(competition: Alone, parents: int, activations: Tensor) -> Tensor | int:
    """Among how many each of the activations (I, B) is shared out: as many numbers, or one."""
    I, positions = activations.shape
    sharers = competition.sharers(parents, slice(0, I))
    if isinstance(sharers, Tensor):  # (I, 1, Q): the same of all images
        images = positions // sharers.shape[2]
        sharers = sharers.to(activations).expand(-1, images, -1).flatten(1)
    return sharers


class _Even(torch.autograd.Function):
    """Sum of the votes (j, e, b), of their squares about the mean, and the mean, a constant.

    Axes are (i, d, b), (i, j, e, d), (i, b): the batch last.
    """

    @staticmethod
    def forward(ctx, competition, sharers, u, weight, a):
        I, J, E, D = weight.shape
        share = a / sharers
        w = weight.reshape(I, J * E, D)
        flat = w.transpose(0, 1).reshape(J * E, I * D)
        first = flat @ (u * share[:, None]).view(I * D, -1)
        centre = per_mass(first, share.sum(0))
        second = torch.zeros_like(first)
        for block, votes in spaces(competition, 1, u, weight):
            offset = torch.bmm(w[block], u[block], out=votes.flatten(1, 2)).sub_(centre)
            second += offset.square_().mul_(share[block][:, None]).sum(0)
        first, second, centre = (x.view(J, E, -1) for x in (first, second, centre))
        ctx.competition, ctx.sharers = competition, sharers
        ctx.save_for_backward(u, weight, a, centre)
        ctx.mark_non_differentiable(centre)
        return first, second, centre

    @staticmethod
    def backward(ctx, dfirst, dsecond, _):
        with without_autocast(dfirst.device):
            if torch.is_grad_enabled() and not torch.compiler.is_compiling():
                literally = partial(_literally, ctx.sharers)
                needed = ctx.needs_input_grad[2:]
                grads = second_derivative(literally, ctx.saved_tensors, needed, (dfirst, dsecond))
                return None, None, *grads
            with torch.no_grad():
                inputs = ctx.competition, ctx.sharers, *ctx.saved_tensors
                return None, None, *_gradients(*inputs, dfirst, dsecond)


def _gradients(competition, sharers, u, weight, a, centre, dfirst, dsecond) -> tuple[Tensor, ...]:
    """Return gradients of u, W, a: a unit of share adds û·dfirst + (û - centre)²·dsecond."""
    I, J, E, D = weight.shape
    share = a / sharers
    w = weight.reshape(I, J * E, D)
    centre, dfirst, twice = (x.reshape(J * E, -1) for x in (centre, dfirst, 2 * dsecond))
    du, dw = torch.empty_like(u), w.new_empty(I, D, J * E)  # so MKL is twice as fast
    dshare = (centre * dfirst).sum(0).repeat(I, 1)
    for block, *room in spaces(competition, 2, u, weight):
        offset, slope = (x.flatten(1, 2) for x in room)
        torch.bmm(w[block], u[block], out=offset)
        torch.addcmul(dfirst, offset.sub_(centre), twice, out=slope)
        back, heavy = w[block].transpose(1, 2), u[block] * share[block][:, None]
        torch.bmm(back, dfirst.expand_as(slope), out=du[block])
        dshare[block] += offset.mul_(slope).sum(1) + (du[block] * u[block]).sum(1)
        torch.bmm(back, slope, out=du[block]).mul_(share[block][:, None])
        torch.bmm(heavy, slope.transpose(1, 2), out=dw[block])
    return du, dw.view(I, D, J, E).permute(0, 2, 3, 1), dshare / (2 * sharers)


def _literally(sharers, u, weight, a, centre):
    """Return the same sums, literally."""
    votes = torch.einsum("ijed,idb->ijeb", weight, u)
    part = (a / sharers)[:, None, None]
    return (part * votes).sum(0), (part * (votes - centre).square()).sum(0)
