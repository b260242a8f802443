"""Shared parts of routings: sums over children, blocks of children, checks of inputs."""

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor, einsum

from capsviz.nn.computation import without_autocast

CPU_BLOCK_BYTES = 2 << 20  # votes that fit a core's cache beside temporaries
GPU_BLOCK_BYTES = 256 << 20
COMPILED_BLOCKS = 8  # at most, because each is compiled separately


def exact(route: Callable) -> Callable:
    """Make a routing compute in the type of its first argument, even under autocast."""

    @wraps(route)
    def inside(first: Tensor, *arguments, **options):
        with without_autocast(first.device):
            return route(first, *arguments, **options)

    return inside


def summed(weights: Tensor, votes: Tensor) -> Tensor:
    """Return Σ_i w_ij û_ij (..., J, E) of weights (..., I, J) and votes (..., I, J, E)."""
    return einsum("...ij,...ije->...je", weights, votes)


def stretch(logits: Tensor, dim: int = -1) -> tuple[Tensor, Tensor]:
    """Scale logits to the range from 0 to 1 along `dim`, J; return them and the divisor.

    Logits that are equal up to rounding become 1, and the divisor is infinite.
    """
    low, high = logits.amin(dim, keepdim=True), logits.amax(dim, keepdim=True)
    noise = 8 * torch.finfo(logits.dtype).eps * torch.maximum(low.abs(), high.abs())
    tied = high - low <= noise
    couplings = torch.where(tied, 1, (logits - low) / torch.where(tied, 1, high - low))
    return couplings, torch.where(tied, torch.inf, high - low)


def per_mass(values: Tensor, mass: Tensor) -> Tensor:
    """Divide values by a mass; values without mass stay unchanged, with finite derivatives.

    In float32, no mass means below 1e-19; for a larger mass, the inverse square is still finite.
    """
    mask = mass > torch.finfo(mass.dtype).tiny ** 0.5
    return values / torch.where(mask, mass, 1)


def shares(couplings: Tensor, activations: Tensor) -> Tensor:
    """Return the share of each vote in its parent's mean, a_i c_ij / Σ_i a_i c_ij.

    couplings (..., I, J), activations (..., I) -> (..., I, J). Shares sum to 1 over children, or
    are 0 for a parent without mass.
    """
    mass = couplings * activations[..., None]
    return per_mass(mass, mass.sum(-2, keepdim=True))


def check_shape(name: str, value: Tensor | None, axes: str, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless a tensor is None or has the `shape` of `axes`, e.g. "I, J"."""
    if value is not None and tuple(value.shape) != tuple(shape):
        raise ValueError(
            f"{name} must be ({axes}) = {tuple(shape)}, got the shape {tuple(value.shape)}"
        )


def require(routing: str, name: str, value: Tensor | None, axes: str) -> Tensor:
    """Return an input of a routing; raise ValueError if it is missing."""
    if value is None:
        raise ValueError(f"{routing} routing needs the children's {name} {axes}: got none")
    return value


def workspace_bytes(device: torch.device) -> int:
    """Return the bytes of a block's votes and their gradient on a GPU; elsewhere 0 (small)."""
    return 2 * GPU_BLOCK_BYTES if device.type == "cuda" else 0


def in_blocks(children: int, bytes_per_child: int, device: torch.device) -> list[slice]:
    """Return blocks of at least one child, as large as the device's budget allows."""
    budget = CPU_BLOCK_BYTES if device.type == "cpu" else GPU_BLOCK_BYTES
    step = max(1, budget // max(1, bytes_per_child))
    if torch.compiler.is_compiling():  # the compiler unrolls the loop
        step = max(step, -(-children // COMPILED_BLOCKS))
    return [slice(start, min(start + step, children)) for start in range(0, children, step)]


def spaces(pieces: list[slice], count: int, like: Tensor, *sizes: int) -> list[tuple]:
    """Return each block of n children with `count` temporary tensors (n, *sizes).

    All blocks share the same memory. An allocator might otherwise return it to the system after
    each block; mapping and clearing it again costs ten times a product.
    """
    most = max((block.stop - block.start for block in pieces), default=0)
    rooms = [like.new_empty(most, *sizes) for _ in range(count)]
    return [(block, *[room[: block.stop - block.start] for room in rooms]) for block in pieces]
