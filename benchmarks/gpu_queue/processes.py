"""Jobs in processes of their own, until the time is over."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.gpu_queue.jobs import Job
from capsviz import discovery

GOING_ON = 30  # seconds that are enough for a job that was begun before
PATIENCE = 20  # seconds that interrupted trainings have to end their step and to write


def run(
    jobs: Sequence[Job],
    work: Path,
    seconds: float,
    side_by_side: int = 1,
    report: Callable[[str], None] = print,
) -> dict[str, str]:
    """Run what has no result, and say of every job what became of it.

    Parameters
    ----------
    jobs          by priority.
    work          folder of their logs, which show what was begun.
    seconds       until what runs is interrupted.
    side_by_side  how many may run at once; one that times something runs alone.
    """
    logs, end = work / "logs", time.monotonic() + seconds
    logs.mkdir(parents=True, exist_ok=True)
    became: dict[str, str] = {}
    running: dict[str, tuple[Job, subprocess.Popen, float]] = {}
    waiting = []
    for job in jobs:
        if all(map(finished, job.results)):
            became[job.name] = "there"
        else:
            waiting.append(job)

    def ended(name: str, how: str) -> None:
        _, _, start = running.pop(name)
        became[name] = how
        report(f"{name}: {how}, {time.monotonic() - start:.0f} s")

    try:
        while waiting or running:
            left = end - time.monotonic()
            for name, (job, process, _) in list(running.items()):
                if process.poll() is not None:
                    ended(name, _outcome(job, process))
            alone = any(job.alone for job, *_ in running.values())
            if left <= 0:
                became |= {job.name: "no time" for job in waiting}
                break
            if waiting and len(running) < side_by_side and not alone:
                job = waiting[0]
                log = logs / f"{job.name}.log"
                if left < (GOING_ON if log.exists() else job.seconds):
                    became[waiting.pop(0).name] = "no time"
                    continue
                if not (job.alone and running):
                    waiting.pop(0)
                    with log.open("a") as out:
                        process = subprocess.Popen(
                            job.command, cwd=discovery.root(), stdin=subprocess.DEVNULL,
                            stdout=out, stderr=out,
                        )  # fmt: skip
                    running[job.name] = job, process, time.monotonic()
                    continue
            time.sleep(0.05)
    finally:  # also if this is stopped itself
        for _, process, _ in running.values():
            process.send_signal(signal.SIGINT)
        last = time.monotonic() + PATIENCE
        for name, (_, process, _) in list(running.items()):
            _wait(process, last - time.monotonic())
            ended(name, "interrupted")
    return {job.name: became[job.name] for job in jobs}


def finished(path: Path) -> bool:
    """Whether a result is there, and does not say that something failed."""
    if not path.exists():
        return False
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return "failed" not in json.loads(text)
    return not re.search(r'\b(errors|failures)="[1-9]', text)  # of pytest's XML


def _outcome(job: Job, process: subprocess.Popen) -> str:
    if process.returncode:
        return f"failed: exit {process.returncode}"
    if missing := [path.name for path in job.results if not path.exists()]:
        return f"failed: it left no {missing[0]}"
    failed = [path.name for path in job.results if not finished(path)]
    return f"failed: so says {failed[0]}" if failed else "done"


def _wait(process: subprocess.Popen, seconds: float) -> None:
    try:
        process.wait(max(0.1, seconds))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
