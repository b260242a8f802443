"""Keep freed memory for the next tensor, so that no page is mapped and cleared twice.

By default glibc returns large blocks to the system at once. The system then maps and zeroes pages
again for the next tensor. A training step of CapsNet can spend more time on that than on routing.
"""

import ctypes
import os
import sys
from pathlib import Path

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -2, -3, -4  # see mallopt(3)
TOP_PAD_BYTES = 256 << 20  # the heap grows by this much
GROWTH_BYTES = 128 << 20  # a step of a progress bar trims after the process has grown by this much
LARGE_BYTES, MOST_LARGE = 4 << 20, 1 << 16  # size from which a block is returned at once; how many
_tuned = False  # whether malloc's settings were changed
_kept = False  # whether freed memory is kept
_bytes_after_trim = 0


def keep_freed_memory() -> bool:
    """Make glibc's malloc keep freed memory; return False without glibc.

    Call it before torch is imported. The process then keeps its peak memory until it ends, so only
    commands call this, not the library.
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
    """Return large blocks to the system at once from now on: less memory, slower training."""
    global _kept
    if _kept:
        for key in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD):
            ctypes.CDLL(None).mallopt(ctypes.c_int(key), ctypes.c_int(LARGE_BYTES))
        ctypes.CDLL(None).mallopt(ctypes.c_int(M_MMAP_MAX), ctypes.c_int(MOST_LARGE))
        _kept = False


def trim(grown: int = 0) -> None:
    """Return free memory to the system if malloc keeps it and the process grew by `grown` bytes."""
    global _bytes_after_trim
    if _tuned and _resident_bytes() >= _bytes_after_trim + grown:
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
        _bytes_after_trim = _resident_bytes()


def _resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def kept() -> bool:
    """Return whether this process keeps freed memory, including large blocks."""
    return _kept
