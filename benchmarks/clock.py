"""Time contenders in turn, and measure the peak memory of a piece of code."""

import ctypes
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from capsviz.provenance import hardware, provenance


def interleaved(
    contenders: dict[str, Callable],
    rounds: int,
    warm: int = 2,
    *,
    sync: Callable[[], None] = lambda: None,
) -> dict:
    """Return the milliseconds of each contender, which runs once per round, after `warm` rounds.

    So a drift of the machine affects all contenders. The order rotates between rounds, because the
    previous contender has an effect. `ratio` is the median over rounds of the ratio to the first
    contender. `sync` is called before the clock is read, to wait for a GPU.
    """
    times, names = {name: [] for name in contenders}, list(contenders)
    for turn in range(warm + rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            start = time.perf_counter()
            contenders[name]()
            sync()
            if turn >= warm:
                times[name].append(1e3 * (time.perf_counter() - start))
    first = next(iter(times.values()))
    return {
        name: {
            "median_ms": statistics.median(values),
            "min_ms": min(values),
            "max_ms": max(values),
            "ratio": statistics.median(a / b for a, b in zip(values, first, strict=True)),
        }
        for name, values in times.items()
    }


def peak_bytes(action: Callable) -> int:
    """Return the bytes by which `action` raises the peak of resident memory (glibc).

    Freed memory is returned to the system first, so its reuse is counted.
    """
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak to the current memory
    before = _status("VmRSS")
    action()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/self/status has no {field}")


def python(*words: str, **env: str) -> str:
    """Run a new interpreter and return its stdout; raise if it fails."""
    return subprocess.check_output([sys.executable, *words], text=True, env=os.environ | env)


def about() -> dict:
    """Return the description of machine and code that each result file contains."""
    return {
        "provenance": provenance(None, "cpu"),
        "hardware": hardware(torch.device("cpu")),
        "processor": _processor(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"
