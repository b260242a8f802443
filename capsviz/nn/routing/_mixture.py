"""Moments of votes under a mixture of Gaussians, the votes never held: exact, block by block.

A round of EM or variational routing weighs the vote û_ij by w_ij = a_i softmax_j(constant_j -
½ Σ_h precision_jh (û_ijh - centre_jh)²), and asks for the weights' sum and the weighted votes' mean
and variance. One pass over blocks of children, their votes made anew by a small matrix product,
gives all three: the E-step and the M-step after it. The variance is taken about the centre of the
round before and moved to the new mean afterwards, which is stable as that is near.

The batch is the innermost axis and a block's temporaries fit the processor's cache. The backward
pass makes the votes anew too; where its own derivative is asked for, it holds them.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from capsviz.nn.computation import without_autocast
from capsviz.nn.routing._competition import Alone
from capsviz.nn.routing._parts import per_mass

TEMPORARIES = 4  # times as many as in `attend`: a block has fewer children
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
        return mean, (self.second - moved).clamp_min(0)


def mixture(
    children: Tensor,
    weight: Tensor,
    activations: Tensor,
    centre: Tensor,
    precision: Tensor | None,
    constant: Tensor | None,
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
    constant     (B, J) of the log densities; None, both, for even shares 1/J.
    competition  which parents share a child; with `Places` B is positions, and I their slots.
    """
    inputs = [activations.T, centre.permute(1, 2, 0)]
    if precision is not None:
        inputs += [precision.permute(1, 2, 0), constant.T]
    I, J, E, _ = weight.shape
    size = TEMPORARIES * J * E * children.element_size()
    sums = []
    for piece in competition.pieces(children.shape[2], I, size, children.device):
        some = [values[..., piece].contiguous() for values in (children, *inputs)]
        sums.append(_Mixture.apply(competition, some[0], weight, *some[1:]))
    mass, first, second = (torch.cat(parts, -1) for parts in zip(*sums, strict=True))
    return Moments(mass.T, first.permute(2, 0, 1), second.permute(2, 0, 1), centre)


class _Mixture(torch.autograd.Function):
    """Axes are (i, d, b), (i, j, e, d), (i, b), (j, e, b) twice, (j, b): the batch last."""

    @staticmethod
    def forward(ctx, competition, u, weight, a, centre, precision=None, constant=None):
        I, J, E, D = weight.shape
        w = weight.reshape(I, J * E, D)
        mass = u.new_zeros(J, u.shape[2])
        first, second = torch.zeros_like(centre), torch.zeros_like(centre)
        shares = None if precision is None else u.new_empty(I, J, u.shape[2])
        ctx.competition = competition
        for block in _blocks(competition, u, weight):
            offset = torch.bmm(w[block], u[block]).unflatten(1, (J, E)).sub_(centre)
            squared = offset.square()
            if precision is None:
                part = _even(competition, a[block], J, block)
            else:
                far = (squared * precision).sum(2)
                share = competition.softmax(torch.add(constant, far, alpha=-0.5), block)
                shares[block] = share
                part = share.mul_(a[block][:, None])
            mass += part.sum(0)
            first += offset.mul_(part[:, :, None]).sum(0)
            second += squared.mul_(part[:, :, None]).sum(0)
        first += mass[:, None] * centre
        ctx.save_for_backward(u, weight, a, centre, precision, constant, shares)
        return mass, first, second

    @staticmethod
    def backward(ctx, dmass, dfirst, dsecond):
        *inputs, shares = ctx.saved_tensors
        needed, grads = ctx.needs_input_grad[1:], (dmass, dfirst, dsecond)
        with without_autocast(dmass.device):
            if torch.is_grad_enabled() and not torch.compiler.is_compiling():
                return None, *_graph_of_gradients(ctx.competition, inputs, needed, grads)
            with torch.no_grad():
                gradients = _Mixture._backward(ctx.competition, *inputs, shares, *grads)
                return None, *gradients[: len(needed)]

    @staticmethod
    def _backward(
        competition, u, weight, a, centre, precision, constant, shares, dmass, dfirst, dsecond
    ):
        I, J, E, D = weight.shape
        w = weight.reshape(I, J * E, D)
        du, da = torch.zeros_like(u), torch.zeros_like(a)
        dw = w.new_zeros(I, D, J * E)  # of this shape MKL makes it twice as fast
        dcentre = torch.zeros_like(centre)
        even = precision is None
        dprecision = None if even else torch.zeros_like(precision)
        dconstant = None if even else torch.zeros_like(constant)
        base = dmass + (centre * dfirst).sum(1)
        for block in _blocks(competition, u, weight):
            offset = torch.bmm(w[block], u[block]).unflatten(1, (J, E)).sub_(centre)
            steep = offset * dsecond
            gain = torch.add(steep, dfirst).mul_(offset).sum(2).add_(base)  # of each unit of weight
            one = torch.ones_like(a[block])
            share = _even(competition, one, J, block) if even else shares[block]
            mean = (share * gain).sum(1)
            da[block] = mean
            part = share * a[block][:, None]
            dvotes = steep.mul_(2 * part[:, :, None])
            if not even:
                dlogits = part * (gain - competition.total(mean, block)[:, None])
                dconstant += dlogits.sum(0)
                pulled = offset * dlogits[:, :, None]
                dvotes.addcmul_(pulled, precision.expand_as(pulled), value=-1)
                dprecision -= pulled.mul_(offset).sum(0)
            dcentre -= dvotes.sum(0)
            dvotes.addcmul_(part[:, :, None].expand_as(dvotes), dfirst.expand_as(dvotes))
            dvotes = dvotes.flatten(1, 2)
            du[block].baddbmm_(w[block].transpose(1, 2), dvotes)
            dw[block].baddbmm_(u[block], dvotes.transpose(1, 2))
        dweight = dw.view(I, D, J, E).permute(0, 2, 3, 1)
        return du, dweight, da, dcentre, None if even else dprecision / 2, dconstant


def _blocks(competition: Alone, u: Tensor, weight: Tensor) -> list[slice]:
    I, J, E, _ = weight.shape
    size = TEMPORARIES * J * E * u.shape[2] * u.element_size()
    return competition.blocks(I, size, u.device)


def _even(competition: Alone, a: Tensor, J: int, block: slice) -> Tensor:
    """What each parent gets of activations (n, b) shared out evenly: (n, J, b)."""
    among = competition.sharers(J, block)
    if isinstance(among, Tensor):  # (n, 1, Q): the same of all images
        among = among.to(a).expand(-1, a.shape[1] // among.shape[2], -1).flatten(1)
    return (a / among)[:, None].expand(-1, J, -1)


def _literally(competition, u, weight, a, centre, precision, constant):
    """The same sums, literally."""
    votes = torch.einsum("ijed,idb->ijeb", weight, u)
    squared = (votes - centre).square()
    I, J = weight.shape[:2]
    if precision is None:
        part = _even(competition, a, J, slice(0, I))
    else:
        logits = constant - (squared * precision).sum(2) / 2
        part = competition.softmax(logits, slice(0, I)) * a[:, None]
    return part.sum(0), (part[:, :, None] * votes).sum(0), (part[:, :, None] * squared).sum(0)


def _graph_of_gradients(competition, inputs, needed, grads) -> tuple[Tensor | None, ...]:
    """The same, to be differentiated again, from votes that are held."""
    with torch.enable_grad():
        inputs = [None if x is None else x.view_as(x) for x in inputs]
        leaves = [x for x, need in zip(inputs, needed, strict=False) if need]
        sums = [
            (x, g)
            for x, g in zip(_literally(competition, *inputs), grads, strict=True)
            if x.requires_grad
        ]
        outputs, grads = zip(*sums, strict=True)  # the mass of given activations is a constant
        gradients = iter(
            torch.autograd.grad(outputs, leaves, grads, create_graph=True, materialize_grads=True)
        )
    return tuple(next(gradients) if need else None for need in needed)
