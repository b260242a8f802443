"""Dynamic routing that never holds the votes: exact values and gradients, block by block.

The votes of 1,152 capsules for 10 classes are 0.74 MB per image, and a literal implementation moves
them through memory some twenty times. Two facts make that unnecessary.

1. Logits start at zero, so after t rounds they are û·(v_1 + ... + v_t): the running sum of the
   poses (B,J,E) stands for the history of the logits.
2. With s_t = Σ_i c_t û (+ bias), a round's gradient with respect to û is an outer product,
   c_t ⊗ ds_t + db_t ⊗ S_t, where S_t is that running sum. It can be formed for a block of children,
   with û recomputed by a small matrix product, and folded at once into the gradients of u and W.

The batch is the innermost axis and a block's temporaries fit the processor's cache.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from capsviz.functional import EPSILON, leaky_softmax, squash
from capsviz.routing import check_iterations

CPU_BLOCK_BYTES = 2 << 20  # of votes: what a core's cache holds beside its temporaries
GPU_BLOCK_BYTES = 256 << 20
COMPILED_BLOCKS = 8  # at most: each is compiled by itself


def route_blocked(
    primary: Tensor,
    weight: Tensor,
    *,
    iterations: int = 3,
    bias: Tensor | None = None,
    detach: bool = False,
    leaky: bool = False,
) -> Tensor:
    """Poses after dynamic routing, equal to `route` on the votes `weight @ primary`.

    First derivatives only. Runs in float32 at least, also under autocast. `torch.compile` takes it
    whole; `torch.func` transforms are refused by PyTorch (no vmap rule): use `route` on votes.

    Parameters
    ----------
    primary     (B, I, D) child capsules.
    weight      (I, J, E, D) what turns child i into its vote for parent j.
    iterations  rounds of agreement, at least 1.
    bias        (J, E) or None, added to every parent's input in each iteration.
    detach      let gradients flow through the last iteration only, its couplings as constants.
    leaky       one more logit, fixed at zero, in each softmax, whose share is dropped.

    Returns
    -------
    (B, J, E).

    Raises
    ------
    ValueError  if shapes do not fit or `iterations` < 1.
    """
    check_iterations(iterations)
    if primary.dim() != 3 or weight.dim() != 4 or primary.shape[1:] != weight.shape[::3]:
        raise ValueError(
            "expected primary (B, I, D) and weight (I, J, E, D), got "
            f"{tuple(primary.shape)} and {tuple(weight.shape)}"
        )
    with torch.autocast(primary.device.type, enabled=False):
        dtype = torch.promote_types(primary.dtype, torch.float32)
        shift = None if bias is None else bias.to(dtype)
        return _Blocked.apply(primary.to(dtype), weight.to(dtype), shift, iterations, detach, leaky)


def workspace_bytes(device: torch.device) -> int:
    """Memory of a block's votes and of their gradient on a GPU; 0 elsewhere, where it is small."""
    return 2 * GPU_BLOCK_BYTES if device.type == "cuda" else 0


class _Blocked(torch.autograd.Function):
    """Inside, axes are (i, d, b), (i, j, e, b), (j, e, b): the batch last."""

    @staticmethod
    def forward(ctx, primary, weight, bias, iterations, detach, leaky):
        I, J, E, D = weight.shape
        B = primary.shape[0]
        u = primary.permute(1, 2, 0).contiguous()
        w = weight.reshape(I, J * E, D)
        flat = weight.permute(1, 2, 0, 3).reshape(J * E, I * D)
        offset = 0 if bias is None else bias[:, :, None]
        couple = leaky_softmax if leaky else torch.softmax

        # Iteration 1: all couplings are equal, so the sum over children is one matrix product.
        shares = J + leaky
        total = (flat @ u.view(I * D, B)).view(J, E, B) / shares + offset
        inputs, sums, couplings = [total], [], []
        pose = squash(total, 1)
        summed = pose
        for _ in range(iterations - 1):
            coupling = u.new_empty(I, J, B)
            total = u.new_zeros(J, E, B)
            for block in _blocks(I, J * E * B * u.element_size(), u.device):
                votes = torch.bmm(w[block], u[block]).unflatten(1, (J, E))
                c = couple((votes * summed).sum(2), 1)
                coupling[block] = c
                total += votes.mul_(c[:, :, None]).sum(0)
            total += offset
            inputs.append(total)
            sums.append(summed)
            couplings.append(coupling)
            pose = squash(total, 1)
            summed = summed + pose
        ctx.save_for_backward(u, weight, *inputs, *sums, *couplings)
        ctx.iterations, ctx.biased, ctx.shares = iterations, bias is not None, shares
        ctx.detach = detach and iterations > 1
        return pose.permute(2, 0, 1).contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        with torch.autocast(grad.device.type, enabled=False):
            return _Blocked._backward(ctx, grad)

    @staticmethod
    def _backward(ctx, grad):
        u, weight, *rest = ctx.saved_tensors
        R = ctx.iterations
        inputs, sums, couplings = rest[:R], rest[R : 2 * R - 1], rest[2 * R - 1 :]
        I, J, E, D = weight.shape
        B = u.shape[2]
        w = weight.reshape(I, J * E, D)
        du = torch.zeros_like(u)
        dw = w.new_zeros(I, D, J * E)  # of this shape MKL makes it twice as fast
        dbias = u.new_zeros(J, E, B)
        dpose = grad.permute(1, 2, 0).contiguous()
        later = torch.zeros_like(dpose)  # what the later rounds' logits ask of this round's pose
        for t in range(R - 1, 0, -1):
            ds = _squash_backward(inputs[t], dpose + later if t < R - 1 else dpose)
            dbias += ds
            dsum = torch.zeros_like(ds)
            for block in _blocks(I, J * E * B * u.element_size(), u.device):
                c = couplings[t - 1][block]
                if ctx.detach:
                    dvotes = c[:, :, None] * ds
                else:
                    votes = torch.bmm(w[block], u[block]).unflatten(1, (J, E))
                    dc = (votes * ds).sum(2)
                    db = c * (dc - (c * dc).sum(1, keepdim=True))  # a leak's dc is zero
                    dsum += votes.mul_(db[:, :, None]).sum(0)
                    dvotes = torch.mul(c[:, :, None], ds, out=votes)
                    dvotes.addcmul_(db[:, :, None].expand_as(dvotes), sums[t - 1].expand_as(dvotes))
                dvotes = dvotes.flatten(1, 2)
                du[block].baddbmm_(w[block].transpose(1, 2), dvotes)
                dw[block].baddbmm_(u[block], dvotes.transpose(1, 2))
            if ctx.detach:
                break
            later = later + dsum
            dpose = torch.zeros_like(dpose)
        else:  # the first iteration, whose couplings are all equal
            ds = _squash_backward(inputs[0], dpose + later)
            dbias += ds
            flat = ds.view(J * E, B) / ctx.shares
            du += (w.permute(0, 2, 1).reshape(I * D, J * E) @ flat).view(I, D, B)
            dw += (u.view(I * D, B) @ flat.T).view(I, D, J * E)
        dweight = dw.view(I, D, J, E).permute(0, 2, 3, 1)
        dbias = dbias.sum(2) if ctx.biased else None
        return du.permute(2, 0, 1), dweight, dbias, None, None, None


def _blocks(children: int, bytes_per_child: int, device: torch.device) -> list[slice]:
    budget = CPU_BLOCK_BYTES if device.type == "cpu" else GPU_BLOCK_BYTES
    step = max(1, budget // max(1, bytes_per_child))
    if torch.compiler.is_compiling():  # which unrolls the blocks
        step = max(step, -(-children // COMPILED_BLOCKS))
    return [slice(start, min(start + step, children)) for start in range(0, children, step)]


def _squash_backward(total: Tensor, grad: Tensor) -> Tensor:
    """Gradient of `squash` along e of (j, e, b): v = g(n²) s, so ds = g dv + 2 g'(n²) (s·dv) s."""
    squared = total.square().sum(1, keepdim=True)
    root = (squared + EPSILON).sqrt()
    gain = squared / (1 + squared) / root
    slope = 1 / ((1 + squared).square() * root) - squared / (2 * (1 + squared) * root**3)
    return gain * grad + 2 * slope * (total * grad).sum(1, keepdim=True) * total
