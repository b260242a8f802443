"""Children in blocks: what is made of one fits a processor's cache, or takes little of a GPU."""

import torch
from torch import Tensor

CPU_BLOCK_BYTES = 2 << 20  # of votes: what a core's cache holds beside its temporaries
GPU_BLOCK_BYTES = 256 << 20
COMPILED_BLOCKS = 8  # at most: each is compiled by itself


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
