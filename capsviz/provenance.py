"""Record the provenance of a result: commit, weights, versions, hardware."""

import contextlib
import os
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from capsviz import discovery

CODE = ("capsviz", "analyses", "benchmarks/*.py")  # without benchmark results
LIBRARIES = ("torch", "torchvision", "kornia", "numpy", "matplotlib", "scikit-learn")


def provenance(card: Mapping | None, device: str) -> dict:
    """Return commit, weights, versions, hardware and the notes of the network's card."""
    card = card or {}
    weights, notes = card.get("weights", {}), card.get("notes")
    routing = card.get("model", {}).get("config", {}).get("routing")
    return {
        "commit": commit(),
        "weights": weights.get("file"),
        "weights_sha256": weights.get("sha256"),
        **({} if routing is None else {"routing": routing}),
        **({} if notes is None else {"notes": notes}),
        "device": device,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "versions": {name: _version(name) for name in LIBRARIES},
    }


def commit() -> str | None:
    """Return the git commit of the checkout that capsviz runs from, with "+" if code has changed.

    Untracked files count as changes, because any file may be a plug-in. Without .git, return
    $CAPSVIZ_COMMIT, or None.
    """
    root = discovery.root()
    if not (root / ".git").exists():
        return os.environ.get("CAPSVIZ_COMMIT")
    return commit_of(root, "-unormal", "--", *CODE)


def commit_of(folder: Path, *status: str) -> str | None:
    """Return the commit of a folder, with "+" if `git status` lists changes; None without git."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL).strip()

    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return git("rev-parse", "HEAD") + "+" * bool(git("status", "--porcelain", *status))
    return None


def hardware(device) -> str:
    """Return the GPU's name, or the CPU architecture, its cores and torch's threads."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return f"{platform.machine()} {device.type.upper()}"
    threads = torch.get_num_threads()
    many = f"{threads} thread{'' if threads == 1 else 's'}"
    return f"{platform.machine()} CPU, {os.cpu_count()} cores, {many}"


@cache
def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
