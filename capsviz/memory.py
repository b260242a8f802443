"""Measure free memory, and raise an error with advice before memory runs out."""

import math
from pathlib import Path

import psutil
import torch

CGROUP = Path("/sys/fs/cgroup")


def available(device: torch.device | str = "cpu") -> int:
    """Return the free bytes of a GPU, or of the machine for other devices."""
    device = torch.device(device)
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    return min(psutil.virtual_memory().available, _container())


def _container() -> float:
    """Return the bytes left under a container's limit (cgroup v2); infinite without a limit.

    Cached files that are inactive count as free, because the kernel reclaims them when needed.
    """
    try:
        limit, used = (int((CGROUP / f"memory.{k}").read_text()) for k in ("max", "current"))
        lines = (CGROUP / "memory.stat").read_text().splitlines()
        return limit - used + int(dict(line.split() for line in lines).get("inactive_file", 0))
    except (OSError, ValueError):  # no such file, or "max"
        return math.inf


def require(needed: int, what: str, advice: str, device: torch.device | str = "cpu") -> None:
    """Raise MemoryError with advice if `needed` bytes are not free."""
    free = available(device)
    if needed > free:
        raise MemoryError(f"{what} needs {gib(needed)}, but {gib(free)} are free: {advice}")


def gib(size: float) -> str:
    """Format bytes as "0.74 MB", or as "2.95 GB" from a gigabyte on."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.2f} MB"
