"""Where a result comes from: commit, weights, versions, hardware."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from capsviz import discovery

CODE = ("capsviz", "analyses", "benchmarks/*.py")  # what benchmarks measured is no code
LIBRARIES = ("torch", "torchvision", "kornia", "numpy", "matplotlib", "scikit-learn")


def provenance(card: Mapping | None, device: str) -> dict:
    """What made a result: commit, weights, versions, hardware."""
    weights = (card or {}).get("weights", {})
    return {
        "commit": commit(),
        "weights": weights.get("file"),
        "weights_sha256": weights.get("sha256"),
        "device": device,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "versions": {name: _version(name) for name in LIBRARIES},
    }


def commit() -> str | None:
    """Git commit of the checkout that capsviz runs from, "+" if its code was changed; else None."""
    root = discovery.root()
    if not (root / ".git").exists():
        return None
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        git = ["git", "-C", str(root)]
        quiet = {"text": True, "stderr": subprocess.DEVNULL}
        head = subprocess.check_output([*git, "rev-parse", "HEAD"], **quiet).strip()
        status = [*git, "status", "--porcelain", "-uno", "--", *CODE]
        dirty = subprocess.check_output(status, **quiet)
        return head + ("+" if dirty.strip() else "")
    return None


def hardware(device) -> str:
    """What the run used: the GPU's name, or the machine, its cores and torch's threads."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {os.cpu_count()} cores, {torch.get_num_threads()} threads"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
