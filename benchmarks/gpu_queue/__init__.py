"""What half an hour of one GPU is to give, by priority: `python -m benchmarks.gpu_queue FOLDER`.

Every job of `queue` is a command in a process of its own. One whose results are there is skipped,
one that needs more time than is left is not begun, and at the end of --seconds what runs is
interrupted: finished epochs lie in --work, and the same call goes on. A job that failed is reported
and tried again by the next call; the others run all the same.

FOLDER then holds few files, each below 16 MiB: `jobs.json` (what became of every job),
`goals.json` (what was wanted, what was measured), `results.tar.gz` (cards, results, learning
curves, logs) and the weights, of each network the best seed on the validation images first. On a
machine without the --work of an earlier call, --earlier takes its results from the archive.

A training of MNIST on an H100 leaves it idle for a third of an epoch, while states and events are
written: a second one beside it fills that, more of them only take turns (benchmarks/notes.md).

Nothing need be installed but PyTorch, torchvision, pytest and what a training imports: kornia and
kornia_rs, pydantic, pydantic-core, annotated-types, typing-inspection, tomli-w, pylatexenc. Where
.git does not travel, $CAPSVIZ_COMMIT says of which commit the code is. Data sets are read unpacked.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu_queue.archives import pack
from benchmarks.gpu_queue.jobs import TRIAL, Size, queue
from benchmarks.gpu_queue.processes import run
from benchmarks.gpu_queue.targets import goals
from capsviz import discovery
from capsviz.files import write_text

PACKING = 20  # seconds that are kept for the end


def link_parts(root: Path) -> None:
    """Analyses and weights inside the package, where nothing is installed."""
    for name in ("analyses", "trained"):
        if importlib.util.find_spec(f"capsviz.{name}") is None:
            (root / "capsviz" / name).symlink_to(f"../{name}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the queue, and pack; 1 if a job failed."""
    options = argparse.ArgumentParser(
        "benchmarks.gpu_queue",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("folder", type=Path, help="what comes out of it")
    options.add_argument("--work", type=Path, default=Path("runs/gpu"), help="what goes on")
    options.add_argument("--earlier", type=Path, help="results.tar.gz of an earlier call")
    options.add_argument("--seconds", type=float, default=480, help="of this call")
    options.add_argument("--side-by-side", type=int, default=2, help="trainings at once")
    options.add_argument("--device", default="cuda")
    options.add_argument("--trial", action="store_true", help="little of everything")
    options.add_argument("--only", nargs="+", metavar="NAME", help="jobs whose names begin so")
    options.add_argument("--list", action="store_true", help="name the jobs and run none")
    chosen = options.parse_args(arguments)
    work, start = chosen.work.resolve(), time.monotonic()
    link_parts(discovery.root())
    size = TRIAL if chosen.trial else Size()
    jobs = queue(work, size, chosen.device)
    if chosen.only:
        jobs = [job for job in jobs if job.name.startswith(tuple(chosen.only))]
        if not jobs:
            options.error(f"no job's name begins with {' or '.join(chosen.only)}")
    if chosen.list:
        print(*(f"{job.seconds:5.0f} s  {job.name}" for job in jobs), sep="\n")
        return 0
    if chosen.earlier:
        with tarfile.open(chosen.earlier) as archive:
            kept = [one for one in archive if not one.name.startswith("logs/")]  # of begun jobs
            archive.extractall(work, kept, filter="data")
    left = chosen.seconds - PACKING - (time.monotonic() - start)
    became = run(jobs, work, left, chosen.side_by_side)
    left_out = pack(work, chosen.folder)
    state = {"jobs": became, "weights left out": left_out}
    write_text(chosen.folder / "jobs.json", json.dumps(state, indent=1) + "\n")
    reached = goals(work, size)
    write_text(chosen.folder / "goals.json", json.dumps(reached, indent=1) + "\n")
    print(*map(json.dumps, reached), sep="\n")
    return int(any(how.startswith("failed") for how in became.values()))
