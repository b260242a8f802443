"""Memory: what is free, and a refusal in words before the machine refuses in its own way."""

import psutil
import torch


def available(device: torch.device | str = "cpu") -> int:
    """Free bytes of the device: of the GPU for CUDA, else of the machine."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return psutil.virtual_memory().available


def require(needed: int, what: str, advice: str, device: torch.device | str = "cpu") -> None:
    """Raise MemoryError, with both numbers and what to do, if `needed` bytes are not free."""
    free = available(device)
    if needed > free:
        raise MemoryError(f"{what} needs {gib(needed)}, but {gib(free)} are free: {advice}")


def gib(size: float) -> str:
    """Bytes for people: 0.74 MB below a gigabyte, 2.95 GB above."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.2f} MB"
