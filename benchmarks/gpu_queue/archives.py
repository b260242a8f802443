"""Results and weights of the half hour, in few files of a limited size."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

from benchmarks.gpu_queue.jobs import PAPER

# of an archive of weights, and of such archives: 64 MiB with the results in all
MOST_BYTES, MOST_FILES = 16 * 2**20 - 2**16, 3
KEPT = {".json", ".csv", ".toml", ".log", ".xml"}  # of the results; weights go apart


def pack(work: Path, folder: Path) -> list[str]:
    """Write results and weights into archives; the weights that found no place."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "results.tar.gz", "w:gz") as archive:
        for path in sorted(work.rglob("*")):
            if path.suffix in KEPT and path.is_file():
                archive.add(path, path.relative_to(work))
    bundles: list[list[Path]] = []
    sizes: list[int] = []
    left_out = []
    for path in _weights(work):
        size = path.stat().st_size + 2048  # with its place in an archive
        fitting = [k for k, used in enumerate(sizes) if used + size <= MOST_BYTES]
        if not fitting and len(bundles) < MOST_FILES and size <= MOST_BYTES:
            bundles.append([])
            sizes.append(0)
            fitting = [len(bundles) - 1]
        if not fitting:
            left_out.append(str(path.relative_to(work)))
            continue
        bundles[fitting[0]].append(path)
        sizes[fitting[0]] += size
    for k, bundle in enumerate(bundles):
        with tarfile.open(folder / f"weights-{k + 1}.tar", "w") as archive:
            for path in bundle:
                archive.add(path, path.relative_to(work))
    return left_out


def _weights(work: Path) -> list[Path]:
    """Of finished runs; of each network the best seed on the validation images, then the others."""
    ranked = []
    for path in sorted((work / "reproduce").glob("*-epochs/*-[0-9]*.json")):
        row = path.stem.rpartition("-")[0]
        weights = path.parent / "runs" / path.stem / f"{row}.safetensors"
        if weights.exists():
            card = json.loads(path.read_text())
            ranked.append((row, -card["results"]["validation"]["accuracy"], weights))
    ranked.sort(key=lambda one: (one[0] != PAPER, *one))
    rows = [row for row, *_ in ranked]
    place = [rows[:k].count(row) for k, row in enumerate(rows)]
    return [ranked[k][-1] for k in sorted(range(len(ranked)), key=lambda k: (place[k] > 0, k))]
