"""What routings share: sums over children, blocks of them, and what they refuse."""

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor, einsum

from capsviz.nn.computation import without_autocast

CPU_BLOCK_BYTES = 2 << 20  # of votes: what a core's cache holds beside its temporaries
GPU_BLOCK_BYTES = 256 << 20
COMPILED_BLOCKS = 8  # at most: each is compiled by itself


def exact(route: Callable) -> Callable:
    """A routing that computes in the type of its first argument, under autocast too."""

    @wraps(route)
    def inside(first: Tensor, *arguments, **options):
        with without_autocast(first.device):
            return route(first, *arguments, **options)

    return inside


def summed(weights: Tensor, votes: Tensor) -> Tensor:
    """Σ_i w_ij û_ij: weights (..., I, J) and votes (..., I, J, E) -> (..., J, E)."""
    return einsum("...ij,...ije->...je", weights, votes)


def stretch(logits: Tensor, dim: int = -1) -> tuple[Tensor, Tensor]:
    """Logits moved and scaled to reach from 0 to 1 along `dim`, J, and what they were divided by.

    Where they are the same but for rounding they become 1, and the divisor is infinite.
    """
    low, high = logits.amin(dim, keepdim=True), logits.amax(dim, keepdim=True)
    noise = 8 * torch.finfo(logits.dtype).eps * torch.maximum(low.abs(), high.abs())
    tied = high - low <= noise
    couplings = torch.where(tied, 1, (logits - low) / torch.where(tied, 1, high - low))
    return couplings, torch.where(tied, torch.inf, high - low)


def per_mass(values: Tensor, mass: Tensor) -> Tensor:
    """Values divided by a mass; without mass they stay nothing, and their derivatives finite.

    Without means below 1e-19 in single precision, whose inverse squared is a number still.
    """
    mask = mass > torch.finfo(mass.dtype).tiny ** 0.5
    return values / torch.where(mask, mass, 1)


def shares(couplings: Tensor, activations: Tensor) -> Tensor:
    """Share of each vote in its parent's mean, a_i c_ij / Σ_i a_i c_ij: sums to 1 over children.

    couplings (..., I, J), activations (..., I) -> (..., I, J). A parent without mass has no shares.
    """
    mass = couplings * activations[..., None]
    return per_mass(mass, mass.sum(-2, keepdim=True))


def check_shape(name: str, value: Tensor | None, axes: str, shape: tuple[int, ...]) -> None:
    """Raise ValueError for a tensor of another shape than `axes`, as "I, J", have; None passes."""
    if value is not None and tuple(value.shape) != tuple(shape):
        raise ValueError(
            f"{name} must be ({axes}) = {tuple(shape)}, got the shape {tuple(value.shape)}"
        )


def require(routing: str, name: str, value: Tensor | None, axes: str) -> Tensor:
    """Return what a routing needs of the children; raise ValueError if it is missing."""
    if value is None:
        raise ValueError(f"{routing} routing needs the children's {name} {axes}: got none")
    return value


def workspace_bytes(device: torch.device) -> int:
    """Memory of a block's votes and of their gradient on a GPU; 0 elsewhere, where it is small."""
    return 2 * GPU_BLOCK_BYTES if device.type == "cuda" else 0


def in_blocks(children: int, bytes_per_child: int, device: torch.device) -> list[slice]:
    """Return blocks of children, as large as the processor's memory is meant for, at least one."""
    budget = CPU_BLOCK_BYTES if device.type == "cpu" else GPU_BLOCK_BYTES
    step = max(1, budget // max(1, bytes_per_child))
    if torch.compiler.is_compiling():  # which unrolls the blocks
        step = max(step, -(-children // COMPILED_BLOCKS))
    return [slice(start, min(start + step, children)) for start in range(0, children, step)]


def spaces(pieces: list[slice], count: int, like: Tensor, *sizes: int) -> list[tuple]:
    """Each block of n children, and so many tensors (n, *sizes) for what is made of it.

    They share their memory from block to block: an allocator may give it back to the system after
    each, which then maps and clears it anew, at ten times the cost of a product.
    """
    most = max((block.stop - block.start for block in pieces), default=0)
    rooms = [like.new_empty(most, *sizes) for _ in range(count)]
    return [(block, *[room[: block.stop - block.start] for room in rooms]) for block in pieces]
