"""Whether other work takes the cores, so that several threads would wait for each other."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of this container: microseconds in a period, or "max"
THREADS = "OMP_NUM_THREADS"


def cores(quota: Path = QUOTA) -> float:
    """Return how many cores this process may use, by the machine and the limit of its container."""
    count = float(os.cpu_count() or 1)
    try:
        taken, period = quota.read_text().split()
        return count if taken == "max" else min(count, int(taken) / int(period))
    except (OSError, ValueError):  # no cgroup of version 2
        return count


def crowded(load: float, count: float, environment: Mapping[str, str] = os.environ) -> str:
    """Return a line if fewer threads would be faster; "": they would not, or their number is set.

    `load` is the mean number of processes that want a core, `count` the number of cores here.
    """
    if THREADS in environment or count <= 1 or (load <= count == (os.cpu_count() or 1)):
        return ""
    others, threads = f"{load:.0f} processes want them", 1 if load > count else int(count)
    why = others if load > count else "more are not allowed here"
    return f"{count:g} cores, and {why}: {THREADS}={threads} may be several times faster"


def warn() -> None:
    """Print that line, where somebody reads it."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if sys.stderr.isatty() and (line := crowded(load, cores())):
        print(line, file=sys.stderr)
