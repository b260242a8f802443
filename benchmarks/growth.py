"""Measure how time and memory of commands grow with images, image size, capsules, classes, layers.

`python -m benchmarks.growth` runs each point in a separate process. Defaults are 28 x 28 pixels and
10 classes. The sweep over images uses the shipped `mnist`, all others an untrained network and 100
images. An interrupted series resumes where it stopped. Draws docs/growth.pdf and .png. With the CPU
build of PyTorch, it measures the commands over images only, for a table.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from benchmarks import ROOT
from benchmarks.scaling import draw, fill, options

CUDA = torch.version.cuda is not None
RESULT = "growth" if CUDA else "growth-cpu"
LABELS = {
    "n": "images", "size": "image side, px", "children": "primary capsules", "classes": "classes",
    "layers": "routed layers",
}  # fmt: skip
VALUES = {
    "n": (100, 1000, 10000), "size": (28, 56, 112, 224), "children": (108, 1008, 5040, 20016),
    "classes": (2, 10, 50, 200), "layers": (1, 2, 3, 4),
}  # fmt: skip
TRACED = {"trace, all": None, "trace, lengths": ("lengths",)}
FIGURES = "figures --n"
COMMANDS = {"routing --n": "routing --n {n}", "transplant --n": "transplant --n {n}",
            "check": "check", FIGURES: "figures --n {n}"}  # fmt: skip
SETTINGS = {"n": 100, "size": 28, "children": 1008, "classes": 10}
POINT = "CAPSVIZ_GROWTH"  # environment variable that passes a point to its process
POSITIONS = 36  # of primary capsules for 28 x 28 pixels


class Layer(nn.Module):
    """Three iterations of dynamic routing."""

    def __init__(self, below: int, above: int):
        super().__init__()
        self.matrices = nn.Parameter(0.1 * torch.randn(below, above, 8, 8))

    def forward(self, poses):
        votes = torch.einsum("ijed,bid->bije", self.matrices, poses)
        logits = torch.zeros(votes.shape[:3])
        for _ in range(3):
            poses = _squash(torch.einsum("bij,bije->bje", logits.softmax(2), votes))
            logits = logits + torch.einsum("bije,bje->bij", votes, poses)
        return poses


class Deep(nn.Module):
    """Layers of 32 capsules below those of the classes, in plain PyTorch, for `capsviz.wrap`."""

    def __init__(self, layers: int, classes: int):
        super().__init__()
        self.primary = nn.Conv2d(1, 224, 18, 2)
        sizes = [POSITIONS * 28, *[32] * (layers - 1), classes]
        self.layers = nn.Sequential(*(Layer(*pair) for pair in pairwise(sizes)))

    def forward(self, images):
        poses = self.primary(images).unflatten(1, (28, 8)).movedim(2, -1).flatten(1, 3)
        return self.layers(_squash(poses)).norm(dim=-1)


def _squash(s):
    square = s.square().sum(-1, keepdim=True)
    return s * square.sqrt() / (1 + square)


def build():
    """Return the untrained network of a point."""
    from capsviz.nn.models.capsnet import CapsNet

    torch.manual_seed(0)
    at = json.loads(os.environ[POINT])
    if "layers" in at:
        return Deep(at["layers"], at["classes"])
    types = 2 if at["size"] > 28 else at["children"] // POSITIONS
    shape = 1, at["size"], at["size"]
    return CapsNet(shape, at["classes"], channels=32, types=types, reconstruction_weight=0.0)


def images(n: int, size: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n images (n, size, size) uint8 of 7 x 7 squares in noise, and their labels."""
    draws, labels = np.random.default_rng(0), np.arange(n) % classes
    squares = np.kron(draws.random((classes, 7, 7)), np.ones((size // 7, size // 7)))
    return np.uint8(180 * squares[labels] + 75 * draws.random((n, size, size))), labels


def trace(keep: tuple[str, ...] | None, shipped: bool) -> None:
    """Trace the network of a point; runs in a separate process."""
    import capsviz

    at = json.loads(os.environ[POINT])
    size, classes = at["size"], at["classes"]
    given = torch.from_numpy(images(at["n"], size, classes)[0])[:, None] / 255
    network = capsviz.load("mnist") if shipped else build()
    if isinstance(network, Deep):
        network = capsviz.wrap(network, (1, size, size), classes)
    capsviz.trace(network, given, **({} if keep is None else {"keep": keep}))


def points() -> list[dict]:
    """Return the points to measure.

    `check` is not swept over images, because it always uses 64; `figures` is slow, so it has few.
    """
    found = [
        {"network": name, "sweep": sweep, "value": value}
        for sweep, values in VALUES.items()
        for value in values
        for name in (*TRACED, *COMMANDS)
        if name != FIGURES and (name, sweep) != ("check", "n")
        if CUDA or (name in COMMANDS and sweep == "n")
    ]
    return found + [{"network": FIGURES, "sweep": "n", "value": value} for value in (30, 100)]


def measure(network: str, sweep: str, value: int) -> dict:
    """Return seconds and peak memory of a process; `refused` is its error if it failed."""
    at, shipped = {**SETTINGS, sweep: value}, sweep == "n"
    with tempfile.TemporaryDirectory() as folder:
        if network in TRACED:
            does = f"trace({TRACED[network]!r}, {shipped})"
            words = ["-c", f"from benchmarks.growth import trace; {does}"]
        else:
            words = ["-m", "capsviz", *COMMANDS[network].format(**at).split()]
            if shipped:
                words += ["--checkpoint", "mnist"]
            else:
                given = images(max(100, at["classes"]), at["size"], at["classes"])
                parts = dict(zip(("test_images", "test_labels"), given, strict=True))
                parts |= dict(zip(("train_images", "train_labels"), given, strict=True))
                np.savez(f"{folder}/data.npz", **parts)
                words += ["--network", f"{__file__}:build", "--dataset", "npz"]
                words += ["--data-dir", f"{folder}/data.npz"]
            words += [] if network == "check" else ["--output", f"{folder}/out"]
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *words], cwd=ROOT, env=os.environ | {POINT: json.dumps(at)}, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        errors = process.stderr.read() if process.stderr else ""
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status) > (network == "check"):  # 1: a check fails
        return {"refused": errors.strip().splitlines()[-1]}
    return {"seconds": round(seconds, 1), "bytes": 1024 * used.ru_maxrss}


def main() -> None:
    """Measure the missing points, then draw all."""
    given = options(__doc__)
    lines = fill(RESULT, [] if given.draw else points(), measure, again=given.again)
    if CUDA:
        rows = ("seconds", 1, "time (s)"), ("bytes", 1e-9, "memory (GB)")
        draw("growth", lines, LABELS, rows)


if __name__ == "__main__":
    main()
