"""Sums of votes by couplings that do not depend on them, the votes never held: exact.

    mass_j = Σ_i a_i c_ij        first_j = Σ_i a_i c_ij û_ij        û_ij = W_ij u_i

with c a softmax of given logits. Forward a child is weighed before it votes, so that a parent's sum
is one matrix product. The gradient of a coupling needs its vote, which is made anew for a block of
children. Second derivatives are those of the literal sums.
"""

import torch
from torch import Tensor, einsum

from capsviz.nn.computation import without_autocast
from capsviz.nn.routing._blocks import in_blocks, spaces


def chosen(
    children: Tensor, weight: Tensor, logits: Tensor, activations: Tensor
) -> tuple[Tensor, Tensor]:
    """Mass of each parent and sum of its votes; never under autocast.

    Parameters
    ----------
    children     (I, D, B): u, as `batch_last` gives it.
    weight       (I, J, E, D): W, what turns child i into its vote for parent j.
    logits       (I, J, B) of the couplings.
    activations  (I, B).

    Returns
    -------
    (J, B) and (J, E, B).
    """
    with without_autocast(children.device):
        return _Chosen.apply(children, weight, logits, activations)


def product(a: Tensor, b: Tensor) -> Tensor:
    """Matrix products a (N, L, M) with b (N, M, K), their gradients too never under autocast."""
    with without_autocast(a.device):
        return _Product.apply(a, b)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        with without_autocast(grad.device):
            return grad @ b.mT, a.mT @ grad


class _Chosen(torch.autograd.Function):
    """Axes are (i, d, b), (i, j, e, d), (i, j, b), (i, b): the batch last."""

    @staticmethod
    def forward(ctx, u, weight, logits, a):
        I, J, E, D = weight.shape
        couplings = logits.softmax(1)
        mass, first = u.new_zeros(J, u.shape[2]), u.new_zeros(J, E, u.shape[2])
        pieces = in_blocks(I, J * D * u.shape[2] * u.element_size(), u.device)
        for block, heavy in spaces(pieces, 1, u, J * D * u.shape[2]):
            part = (couplings[block] * a[block, None]).transpose(0, 1).contiguous()  # (j, n, b)
            mass += part.sum(1)
            heavy = heavy.view(J, len(heavy), D, u.shape[2])
            torch.mul(part[:, :, None], u[block], out=heavy)
            first.baddbmm_(weight[block].permute(1, 2, 0, 3).flatten(2), heavy.flatten(1, 2))
        ctx.save_for_backward(u, weight, logits, a, couplings)
        return mass, first

    @staticmethod
    def backward(ctx, dmass, dfirst):
        *inputs, couplings = ctx.saved_tensors
        with without_autocast(dmass.device):
            if torch.is_grad_enabled() and not torch.compiler.is_compiling():
                return _graph_of_gradients(inputs, ctx.needs_input_grad, (dmass, dfirst))
            with torch.no_grad():
                u, weight, _, a = inputs
                return _gradients(u, weight, couplings, a, dmass, dfirst)


def _gradients(u, weight, couplings, a, dmass, dfirst) -> tuple[Tensor, ...]:
    """Return the gradients of u, W, the logits and a."""
    I, J, E, D = weight.shape
    w = weight.reshape(I, J * E, D)
    du, da, dlogits = torch.empty_like(u), torch.empty_like(a), torch.empty_like(couplings)
    dw = w.new_empty(I, D, J * E)  # of this shape MKL makes it twice as fast
    pieces = in_blocks(I, J * E * u.shape[2] * u.element_size(), u.device)
    for block, votes in spaces(pieces, 1, u, J, E, u.shape[2]):
        torch.bmm(w[block], u[block], out=votes.flatten(1, 2))
        gain = votes.mul_(dfirst).sum(2).add_(dmass)  # of each unit of mass
        da[block] = mean = (couplings[block] * gain).sum(1)
        part = couplings[block] * a[block, None]
        dlogits[block] = part * (gain - mean[:, None])
        dvotes = torch.mul(part[:, :, None], dfirst, out=votes).flatten(1, 2)
        torch.bmm(w[block].transpose(1, 2), dvotes, out=du[block])
        torch.bmm(u[block], dvotes.transpose(1, 2), out=dw[block])
    return du, dw.view(I, D, J, E).permute(0, 2, 3, 1), dlogits, da


def _graph_of_gradients(inputs, needed, grads) -> tuple[Tensor | None, ...]:
    """The same, to be differentiated again."""
    with torch.enable_grad():
        u, weight, logits, a = inputs = [x.view_as(x) for x in inputs]
        leaves = [x for x, need in zip(inputs, needed, strict=True) if need]
        part = logits.softmax(1) * a[:, None]
        sums = part.sum(0), einsum("ijed,idb,ijb->jeb", weight, u, part)
        kept = [(x, g) for x, g in zip(sums, grads, strict=True) if x.requires_grad]
        gradients = iter(
            torch.autograd.grad(
                [x for x, _ in kept], leaves, [g for _, g in kept], create_graph=True,
                materialize_grads=True,
            )
        )  # fmt: skip
    return tuple(next(gradients) if need else None for need in needed)
