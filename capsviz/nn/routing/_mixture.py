"""Moments of votes under a mixture of Gaussians, the votes never held: exact, block by block.

An iteration of EM or variational routing weighs the vote û_ij by w_ij = a_i softmax_j(constant_j -
½ Σ_h precision_jh (û_ijh - centre_jh)²), and asks for the weights' sum and the weighted votes' mean
and variance. One pass over blocks of children, their votes made anew by a small matrix product,
gives all three: the E-step and the M-step after it. The variance is taken about the centre of the
round before and moved to the new mean afterwards, which is stable as that is near.

The batch is the innermost axis and a block's temporaries fit the processor's cache. The backward
pass makes the votes anew too; where its own derivative is asked for, it holds them.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from capsviz.nn.computation import without_autocast
from capsviz.nn.routing import _blocks
from capsviz.nn.routing._competition import Alone
from capsviz.nn.routing._parts import per_mass

ALONE = Alone()


class Moments(NamedTuple):
    """Sums over children, by weights w."""

    mass: Tensor  # (B, J) Σ_i w
    first: Tensor  # (B, J, E) Σ_i w û
    second: Tensor  # (B, J, E) Σ_i w (û - centre)²
    centre: Tensor  # (B, J, E)

    def about_mean(self) -> tuple[Tensor, Tensor]:
        """Mean of the votes, and Σ_i w (û - mean)², both (B, J, E)."""
        mass = self.mass[..., None]
        mean = per_mass(self.first, mass)
        offset = mean - self.centre
        moved = 2 * offset * (self.first - mass * self.centre) - mass * offset.square()
        scatter = self.second - moved
        return mean, scatter - scatter.detach().clamp_max(0)  # not below 0, its gradient whole


def mixture(
    children: Tensor,
    weight: Tensor,
    activations: Tensor,
    centre: Tensor,
    precision: Tensor,
    constant: Tensor,
    competition: Alone = ALONE,
) -> Moments:
    """Moments of the votes after each child is shared out over its parents.

    Parameters
    ----------
    children     (I, D, B), as `batch_last` gives them.
    weight       (I, J, E, D) what turns child i into its vote for parent j.
    activations  (B, I).
    centre       (B, J, E).
    precision    (B, J, E), and
    constant     (B, J) of the log densities.
    competition  which parents share a child; with `Places` B is positions, and I their slots.
    """
    inputs = activations.T, centre.permute(1, 2, 0), precision.permute(1, 2, 0), constant.T
    I, J, E, _ = weight.shape
    size = J * E * children.element_size()
    sums = []
    for piece in competition.pieces(children.shape[2], I, size, children.device):
        some = [values[..., piece].contiguous() for values in (children, *inputs)]
        sums.append(_Mixture.apply(competition, some[0], weight, *some[1:]))
    mass, first, second = (torch.cat(parts, -1) for parts in zip(*sums, strict=True))
    return Moments(mass.T, first.permute(2, 0, 1), second.permute(2, 0, 1), centre)


class _Mixture(torch.autograd.Function):
    """Axes are (i, d, b), (i, j, e, d), (i, b), (j, e, b) twice, (j, b): the batch last."""

    @staticmethod
    def forward(ctx, competition, u, weight, a, centre, precision, constant):
        I, J, E, D = weight.shape
        w = weight.reshape(I, J * E, D)
        root = precision.sqrt()
        minus = -centre * root
        mass, first, second = (torch.zeros_like(x) for x in (constant, centre, centre))
        shares = u.new_empty(I, J, u.shape[2])
        for block, offset, squared in spaces(competition, 2, u, weight):
            torch.bmm(w[block], u[block], out=offset.flatten(1, 2))
            torch.addcmul(minus, offset, root, out=offset)  # in standard deviations
            torch.square(offset, out=squared)
            share = competition.softmax(torch.add(constant, squared.sum(2), alpha=-0.5), block)
            shares[block] = share
            part = share.mul_(a[block][:, None])
            mass += part.sum(0)
            first += offset.mul_(part[:, :, None]).sum(0)
            second += squared.mul_(part[:, :, None]).sum(0)
        first /= root
        ctx.competition = competition
        ctx.save_for_backward(u, weight, a, centre, precision, constant, shares, first)
        return mass, first + mass[:, None] * centre, second / precision

    @staticmethod
    def backward(ctx, *grads):
        *inputs, shares, first = ctx.saved_tensors
        with without_autocast(grads[0].device):
            if torch.is_grad_enabled() and not torch.compiler.is_compiling():
                literally = partial(_literally, ctx.competition)
                return None, *second_derivative(literally, inputs, ctx.needs_input_grad[1:], grads)
            with torch.no_grad():
                return None, *_gradients(ctx.competition, *inputs, shares, first, *grads)


def _gradients(
    competition, u, weight, a, centre, precision, constant, shares, first, dmass, dfirst, dsecond
) -> tuple[Tensor, ...]:
    """Return the gradients of all inputs; `first`: the weighted sum of votes about the centre."""
    I, J, E, D = weight.shape
    w = weight.reshape(I, J * E, D)
    du, da = torch.empty_like(u), torch.empty_like(a)
    dw = w.new_empty(I, D, J * E)  # of this shape MKL makes it twice as fast
    along, dprecision = torch.zeros_like(centre), torch.zeros_like(precision)
    dconstant = torch.zeros_like(constant)
    base = dmass + (centre * dfirst).sum(1)
    for block, offset, slope, pulled in spaces(competition, 3, u, weight):
        torch.bmm(w[block], u[block], out=offset.flatten(1, 2))
        torch.addcmul(dfirst, offset.sub_(centre), dsecond, out=slope)
        gain = torch.mul(slope, offset, out=pulled).sum(2).add_(base)  # of each unit of weight
        share = shares[block]
        mean = (share * gain).sum(1)
        da[block] = mean
        part = share * a[block][:, None]
        dlogits = part * (gain - competition.total(mean, block)[:, None])
        dconstant += dlogits.sum(0)
        dvotes = slope.mul_(2 * part[:, :, None])
        dvotes.addcmul_(part[:, :, None].expand_as(dvotes), dfirst.expand_as(dvotes), value=-1)
        torch.mul(offset, dlogits[:, :, None], out=pulled)
        dvotes.addcmul_(pulled, precision.expand_as(pulled), value=-1)
        along += pulled.sum(0)
        dprecision -= pulled.mul_(offset).sum(0)
        dvotes = dvotes.flatten(1, 2)
        torch.bmm(w[block].transpose(1, 2), dvotes, out=du[block])
        torch.bmm(u[block], dvotes.transpose(1, 2), out=dw[block])
    dcentre = precision * along - 2 * dsecond * first
    return du, dw.view(I, D, J, E).permute(0, 2, 3, 1), da, dcentre, dprecision / 2, dconstant


def spaces(competition: Alone, count: int, u: Tensor, weight: Tensor) -> list[tuple]:
    """Each block of n children, and so many tensors (n, J, E, B) for what is made of it."""
    (I, J, E, _), B = weight.shape, u.shape[2]
    size = J * E * B * u.element_size() * max(count, 2) // 2  # no more in all than two in `attend`
    blocks = competition.blocks(I, size, u.device)
    return _blocks.spaces(blocks, count, u, J, E, B)


def _literally(competition, u, weight, a, centre, precision, constant):
    """Return the same sums, literally."""
    votes = torch.einsum("ijed,idb->ijeb", weight, u)
    squared = (votes - centre).square()
    logits = constant - (squared * precision).sum(2) / 2
    part = competition.softmax(logits, slice(0, len(u))) * a[:, None]
    return part.sum(0), (part[:, :, None] * votes).sum(0), (part[:, :, None] * squared).sum(0)


def second_derivative(literally, inputs, needed, grads) -> list[Tensor | None]:
    """Gradients that can be differentiated again, from votes that are held.

    Parameters
    ----------
    literally  the sums of all inputs.
    needed     whether the gradient of an input is, from the first on.
    grads      of the sums.
    """
    with torch.enable_grad():
        inputs = [x.view_as(x) for x in inputs]
        leaves = [x for x, need in zip(inputs, needed, strict=False) if need]
        gradients = iter(torch.autograd.grad(literally(*inputs), leaves, grads, create_graph=True))
    return [next(gradients) if need else None for need in needed]
