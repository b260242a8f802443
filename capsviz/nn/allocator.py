"""Memory that was freed is kept for the next tensor: no page is mapped and cleared twice.

glibc gives large blocks back to the system at once and has them mapped and zeroed anew for the next
tensor. A training step of CapsNet can spend more time on that than on the arithmetic of routing.
"""

import ctypes
import os
import sys
from pathlib import Path

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -2, -3, -4  # of mallopt(3)
TOP_PAD_BYTES = 256 << 20  # the heap grows by this much
GROWTH_BYTES = 128 << 20  # of a process, after which a step of a progress bar trims
LARGE_BYTES, MOST_LARGE = 4 << 20, 1 << 16  # of a block that goes back at once, and of these
_tuned, _kept, _least = False, False, 0  # malloc is set; nothing goes back; bytes held at last


def keep_freed_memory() -> bool:
    """Tell glibc's malloc to keep what is freed; False where there is no glibc.

    Call it before torch is imported. It holds for the whole process, which then keeps its peak
    memory until it ends: for commands, not for a library to do to its user.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    settings = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1), (M_TOP_PAD, TOP_PAD_BYTES))  # -1: never
    answers = [mallopt(ctypes.c_int(key), ctypes.c_int(value)) for key, value in settings]
    global _tuned, _kept
    _tuned = _kept = all(answers)
    return _kept


def give_back_large() -> None:
    """Give large blocks back at once from now on: less memory, and more time in training."""
    global _kept
    if _kept:
        for key in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD):
            ctypes.CDLL(None).mallopt(ctypes.c_int(key), ctypes.c_int(LARGE_BYTES))
        ctypes.CDLL(None).mallopt(ctypes.c_int(M_MMAP_MAX), ctypes.c_int(MOST_LARGE))
        _kept = False


def trim(grown: int = 0) -> None:
    """Give what is free back to the system, where this process keeps it and has grown by bytes."""
    global _least
    if _tuned and _held() >= _least + grown:
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
        _least = _held()


def _held() -> int:
    """Return the bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def kept() -> bool:
    """Return whether this process keeps what it frees, large blocks too."""
    return _kept
