"""Compute one exact step of attention to the votes, and its gradients, without storing the votes.

    attend(q, b) = Σ_i (softmax_j(û_ij·q_j) + b_ij) û_ij        û_ij = W_ij u_i

Routings with agreement by dot product are short compositions of this step. Dynamic routing is one:
its logits start at zero, so after t iterations they are û·(v_1 + ... + v_t).

The votes of 1,152 capsules for 10 classes are 0.74 MB per image. A literal implementation moves
them through memory some twenty times. Here a small matrix product computes û for a block of
children, once forward and once backward. A block's gradient is an outer product of a number for
each parent and a vector of E, and is added to those of u and W at once. The batch is the innermost
axis, so that temporaries of a block fit the CPU cache. On a GPU `_attend_gpu` keeps them in
registers.
"""

from functools import cache
from types import ModuleType
from warnings import warn

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from capsviz.nn.computation import without_autocast
from capsviz.nn.functional import leaky_softmax
from capsviz.nn.routing._parts import in_blocks, spaces, stretch


def batch_last(children: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return children (B, I, D) as (I, D, B), and weight (I, J, E, D), in float32 at least.

    ValueError if their shapes do not fit.
    """
    if children.dim() != 3 or weight.dim() != 4 or children.shape[1:] != weight.shape[::3]:
        raise ValueError(
            "expected children (B, I, D) and weight (I, J, E, D), got "
            f"{tuple(children.shape)} and {tuple(weight.shape)}"
        )
    dtype = torch.promote_types(children.dtype, torch.float32)
    return children.to(dtype).permute(1, 2, 0).contiguous(), weight.to(dtype)


def attend(
    children: Tensor,
    weight: Tensor,
    query: Tensor | None = None,
    shift: Tensor | None = None,
    *,
    leaky: bool = False,
    stretched: bool = False,
    detach: bool = False,
) -> Tensor:
    """Return the sum (J, E, B) of votes weighted by couplings; do not call under autocast.

    `torch.compile` compiles it as one graph (PyTorch 2.11 to 2.13: with graph breaks). Inside a
    transform of `torch.func`, layers route on stored votes instead
    (`capsviz.nn.computation.is_literal`).

    Parameters
    ----------
    children   (I, D, B): u, from `batch_last`.
    weight     (I, J, E, D): W, the matrices from children to votes.
    query      (J, E, B): q, with which votes are multiplied; None: zero, for one matrix product.
    shift      (I, J) or None: b, added to the softmax.
    leaky      add one logit, fixed at zero, to each softmax, and drop its share.
    stretched  scale logits to the range from 0 to 1, in place of the softmax.
    detach     treat the softmax as a constant in the gradient.
    """
    if query is not None:
        query = query.contiguous()
    elif shift is not None:
        query = children.new_zeros(*weight.shape[1:3], children.shape[2])
    return _Attend.apply(children, weight, query, shift, leaky, stretched, detach)


class _Attend(torch.autograd.Function):
    """Axes are (i, d, b) of u, (i, j, e, b) of votes, (j, e, b) of q, (i, j, b) of couplings."""

    @staticmethod
    def forward(ctx, u, weight, query, shift, leaky, stretched, detach):
        I, J, E, D = weight.shape
        B = u.shape[2]
        ctx.choices, ctx.detach = J + leaky, detach  # of a child; whether the softmax is constant
        if query is None:  # all couplings are equal: the sum over children is one product
            ctx.save_for_backward(u, weight, None, None, None, None)
            flat = weight.permute(1, 2, 0, 3).reshape(J * E, I * D)
            return (flat @ u.reshape(I * D, B)).view(J, E, B) / ctx.choices
        w = weight.reshape(I, J * E, D)
        if (kernels := _kernels(u, weight)) is not None:
            u, weight = u.contiguous(), weight.contiguous()
            couplings, spread = _couple(kernels.products(u, weight, query), leaky, stretched)
            ctx.save_for_backward(u, weight, query, shift, couplings, spread)
            return kernels.sums(u, weight, _shifted(couplings, shift))
        couplings = u.new_empty(I, J, B)  # without the shift
        spread = u.new_empty(I, 1, B) if stretched else None
        total = u.new_zeros(J, E, B)
        pieces = in_blocks(I, J * E * B * u.element_size(), u.device)
        for block, votes, along in spaces(pieces, 2, u, J, E, B):
            torch.bmm(w[block], u[block], out=votes.flatten(1, 2))
            c, divisor = _couple(torch.mul(votes, query, out=along).sum(2), leaky, stretched)
            couplings[block] = c
            if spread is not None:
                spread[block] = divisor
            c = _shifted(c, shift if shift is None else shift[block])
            total += votes.mul_(c[:, :, None]).sum(0)
        ctx.save_for_backward(u, weight, query, shift, couplings, spread)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        with without_autocast(grad.device):
            return *_gradients(ctx, *ctx.saved_tensors, grad), None, None, None


def _kernels(u: Tensor, weight: Tensor) -> ModuleType | None:
    """Return `_attend_gpu` if it supports these children and Triton runs; else None."""
    if not u.is_cuda or torch.compiler.is_compiling():
        return None
    kernels = _working_kernels(u.device)
    return kernels if kernels is not None and kernels.takes(u, weight) else None


@cache
def _working_kernels(device: torch.device) -> ModuleType | None:
    """Return the kernels after a test run; None, with a warning, if Triton does not run.

    Triton needs a C compiler.
    """
    try:
        from capsviz.nn.routing import _attend_gpu

        one = torch.zeros(1, 1, 1, device=device)
        _attend_gpu.products(one, one[..., None], one)
    except Exception as error:  # Triton and the compiler raise many types
        why = str(error).partition("\n")[0]
        warn(f"routing is slower than it could be: Triton does not run here ({why})", stacklevel=2)
        return None
    return _attend_gpu


def _couple(logits: Tensor, leaky: bool, stretched: bool) -> tuple[Tensor, Tensor | None]:
    """Return couplings of logits (I, J, B), and the divisor of stretched ones."""
    if stretched:
        return stretch(logits, 1)
    return leaky_softmax(logits, 1) if leaky else logits.softmax(1), None


def _shifted(couplings: Tensor, shift: Tensor | None) -> Tensor:
    return couplings if shift is None else couplings + shift[:, :, None]


def _logit_gradient(couplings: Tensor, dc: Tensor, divisor: Tensor | None) -> Tensor:
    """Return the gradient of logits from that of their couplings (I, J, B).

    It is also right for leaky couplings, because the dropped share has no gradient.
    """
    if divisor is None:
        return couplings * (dc - (couplings * dc).sum(1, keepdim=True))
    scaled = dc / divisor
    dl = scaled
    for end, others in ((couplings == 0, 1 - couplings), (couplings == 1, couplings)):
        moved = (scaled * others).sum(1, keepdim=True)
        dl = dl - end * moved / end.sum(1, keepdim=True).clamp(min=1)  # ties share the gradient
    return dl


def _gradients(
    ctx, u, weight, query, shift, couplings, spread, ds: Tensor
) -> tuple[Tensor | None, ...]:
    """Return the gradients of u, W, q and b."""
    I, J, E, D = weight.shape
    B, ds = u.shape[2], ds.contiguous()
    w = weight.reshape(I, J * E, D)
    if query is None:
        flat = ds.view(J * E, B) / ctx.choices
        du = (w.permute(0, 2, 1).reshape(I * D, J * E) @ flat).view(I, D, B)
        dw = (u.reshape(I * D, B) @ flat.T).view(I, D, J, E)
        return du, dw.permute(0, 2, 3, 1), None, None
    if (kernels := _kernels(u, weight)) is not None:
        dc = kernels.products(u, weight, ds)
        dl = None if ctx.detach else _logit_gradient(couplings, dc, spread)
        du, dw = kernels.back(u, weight, _shifted(couplings, shift), ds, dl, query)
        dquery = torch.zeros_like(ds) if dl is None else kernels.sums(u, weight, dl)
        return du, dw, dquery, None if shift is None else dc.sum(2)
    du = torch.empty_like(u)
    dw = w.new_empty(I, D, J * E)  # twice as fast with MKL in this shape
    dquery = torch.zeros_like(ds)
    dshift = None if shift is None else torch.zeros_like(shift)
    pieces = in_blocks(I, J * E * B * u.element_size(), u.device)
    for block, votes, along in spaces(pieces, 2, u, J, E, B):
        p = couplings[block]
        c = _shifted(p, shift if shift is None else shift[block])
        if ctx.detach and shift is None:
            dvotes = torch.mul(c[:, :, None], ds, out=votes)
        else:
            torch.bmm(w[block], u[block], out=votes.flatten(1, 2))
            dc = torch.mul(votes, ds, out=along).sum(2)
            if dshift is not None:
                dshift[block] = dc.sum(2)
            dl = _logit_gradient(p, dc, None if spread is None else spread[block])
            if ctx.detach:
                dl.zero_()
            dquery += votes.mul_(dl[:, :, None]).sum(0)
            dvotes = torch.mul(c[:, :, None], ds, out=votes)
            dvotes.addcmul_(dl[:, :, None].expand_as(dvotes), query.expand_as(dvotes))
        dvotes = dvotes.flatten(1, 2)
        torch.bmm(w[block].transpose(1, 2), dvotes, out=du[block])
        torch.bmm(u[block], dvotes.transpose(1, 2), out=dw[block])
    return du, dw.view(I, D, J, E).permute(0, 2, 3, 1), dquery, dshift
