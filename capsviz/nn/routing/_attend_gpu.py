"""Triton kernels of `attend` for GPUs, which hold votes in registers only.

A program is one warp. Each thread has its own images, so threads exchange data only for the
gradient of W. Votes are recomputed wherever they are needed. Sums over several programs are stored
as separate parts and added afterwards, so that results do not depend on the order of programs.

Axes are those of `_attend`: u (I, D, B), W (I, J, E, D), tensors of parents (J, E, B), couplings
and tensors like them (I, J, B).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

IMAGES = 128  # most images of a program
PROGRAMS = 1024  # about the fewest that fill a GPU
WIDEST = 16  # most dimensions of a capsule, which a thread holds for each of its images


@triton.jit
def _votes(u, w, row, i, b, B, D: tl.constexpr, known):
    """Return the votes (e, b) of child i for one parent; `row` (e, 1) indexes rows of W."""
    total = tl.zeros([row.shape[0], b.shape[1]], tl.float32)
    for d in tl.static_range(D):
        of_child = tl.load(u + (i * D + d) * B + b, mask=b < B, other=0.0)
        total += tl.load(w + row * D + d, mask=known, other=0.0) * of_child
    return total


@triton.jit
def _products(u, w, y, out, J, E, B, D: tl.constexpr, PE: tl.constexpr, PB: tl.constexpr):
    """Compute out_ij = û_ij · y_j for one child."""
    i, e = tl.program_id(0), tl.arange(0, PE)[:, None]
    b = tl.program_id(1) * PB + tl.arange(0, PB)[None, :]
    inside = (e < E) & (b < B)
    for j in range(J):
        votes = _votes(u, w, (i * J + j) * E + e, i, b, B, D, e < E)
        along = votes * tl.load(y + (j * E + e) * B + b, mask=inside, other=0.0)
        tl.store(out + (i * J + j) * B + b, tl.sum(along, 0, keep_dims=True), mask=b < B)


@triton.jit
def _sums(u, w, c, out, I, J, E, B, each, D: tl.constexpr, PE: tl.constexpr, PB: tl.constexpr):
    """Compute out_j = Σ_i c_ij û_ij for one parent and some children."""
    j, e = tl.program_id(0), tl.arange(0, PE)[:, None]
    b = tl.program_id(2) * PB + tl.arange(0, PB)[None, :]
    total = tl.zeros([PE, PB], tl.float32)
    first = tl.program_id(1) * each
    for i in range(first, tl.minimum(first + each, I)):
        votes = _votes(u, w, (i * J + j) * E + e, i, b, B, D, e < E)
        total += votes * tl.load(c + (i * J + j) * B + b, mask=b < B, other=0.0)
    place = ((tl.program_id(1) * J + j) * E + e) * B + b
    tl.store(out + place, total, mask=(e < E) & (b < B))


@triton.jit
def _back(
    u, w, c, x, dl, y, du, dw, I, J, E, B,
    D: tl.constexpr, PD: tl.constexpr, PE: tl.constexpr, PB: tl.constexpr, both: tl.constexpr,
):  # fmt: skip
    """Compute gradients of u and W for one child; those of votes are c_ij x_j + dl_ij y_j."""
    i, e, d = tl.program_id(0), tl.arange(0, PE)[:, None], tl.arange(0, PD)[:, None]
    b = tl.program_id(1) * PB + tl.arange(0, PB)[None, :]
    known, ours, inside = e < E, b < B, (e < E) & (b < B)
    of_child = tl.zeros([PD, PB], tl.float32)
    for j in range(J):
        of_parent, row = (j * E + e) * B + b, (i * J + j) * E + e
        slope = tl.load(c + (i * J + j) * B + b, mask=ours, other=0.0)
        slope *= tl.load(x + of_parent, mask=inside, other=0.0)
        if both:
            further = tl.load(dl + (i * J + j) * B + b, mask=ours, other=0.0)
            slope += further * tl.load(y + of_parent, mask=inside, other=0.0)
        for k in tl.static_range(D):
            weight = tl.load(w + row * D + k, mask=known, other=0.0)
            of_child += tl.where(d == k, tl.sum(weight * slope, 0, keep_dims=True), 0.0)
            child = tl.load(u + (i * D + k) * B + b, mask=ours, other=0.0)
            of_weight = tl.sum(slope * child, 1, keep_dims=True)
            tl.store(dw + (tl.program_id(1) * I * J * E + row) * D + k, of_weight, mask=known)
    tl.store(du + (i * D + d) * B + b, of_child, mask=(d < D) & ours)


def takes(u: Tensor, weight: Tensor) -> bool:
    """Return whether the kernels support the inputs: float32, on a GPU, not too large."""
    if not u.is_cuda or not u.dtype == weight.dtype == torch.float32:
        return False
    B, _, across = _images(u)
    of_parents = weight.shape[1] * max(weight.shape[0], weight.shape[2])
    numbers = max(weight.numel() * across, u.numel(), of_parents * B)
    return max(weight.shape[2:]) <= WIDEST and numbers < 2**31


def products(u: Tensor, weight: Tensor, parents: Tensor) -> Tensor:
    """Return û_ij · y_j (I, J, B), with y (J, E, B)."""
    I, J, E, D = weight.shape
    B, PB, across = _images(u)
    out = u.new_empty(I, J, B)
    PE = triton.next_power_of_2(E)
    _launch(_products, (I, across), u, weight, parents.contiguous(), out, J, E, B, D, PE, PB)
    return out


def sums(u: Tensor, weight: Tensor, couplings: Tensor) -> Tensor:
    """Return Σ_i c_ij û_ij (J, E, B)."""
    I, J, E, D = weight.shape
    B, PB, across = _images(u)
    each = max(1, I * J * across // PROGRAMS)
    parts = triton.cdiv(I, each)
    out, PE = u.new_empty(parts, J, E, B), triton.next_power_of_2(E)
    c = couplings.contiguous()
    _launch(_sums, (J, parts, across), u, weight, c, out, I, J, E, B, each, D, PE, PB)
    return out.sum(0)


def back(
    u: Tensor, weight: Tensor, c: Tensor, x: Tensor, dl: Tensor | None, y: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of u and W; those of votes are c_ij x_j + dl_ij y_j."""
    I, J, E, D = weight.shape
    B, PB, across = _images(u)
    du, dw = torch.empty_like(u), u.new_empty(across, *weight.shape)
    PD, PE = triton.next_power_of_2(D), triton.next_power_of_2(E)
    c, x, y = c.contiguous(), x.contiguous(), y.contiguous()
    further = dl if dl is None else dl.contiguous()
    _launch(
        _back, (I, across), u, weight, c, x, further, y, du, dw, I, J, E, B,
        D, PD, PE, PB, dl is not None,
    )  # fmt: skip
    return du, dw[0] if across == 1 else dw.sum(0)


def _launch(kernel, programs: tuple[int, ...], u: Tensor, *others) -> None:
    """Launch programs of one warp each on the GPU of u."""
    if all(programs):
        with torch.cuda.device_of(u):
            kernel[programs](u, *others, num_warps=1)


def _images(u: Tensor) -> tuple[int, int, int]:
    """Return the number of images, images of a program, and programs."""
    B = u.shape[2]
    of_program = min(IMAGES, max(32, triton.next_power_of_2(B)))  # a warp has 32 threads
    return B, of_program, triton.cdiv(B, of_program)
