"""Pictures drawn in a process of their own, while what comes next is computed."""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from capsviz import results

Drawn = tuple[list[Path], float]  # the files, and the seconds that they took
Draw = Callable[[Path, str, NamedTuple, Sequence[str], str | float], Callable[[], Drawn]]


@contextmanager
def here() -> Iterator[Draw]:
    """Context manager: as `apart`, but what is drawn is drawn here, when it is asked for."""
    yield lambda *picture: partial(_draw, *picture)


@contextmanager
def apart() -> Iterator[Draw]:
    """Context manager: what draws a result, as `results.export` does, in another process.

    It is called with the arguments of `export`, begins, and gives a function that waits for the
    end. The process reads a result's numbers as `capsviz redraw` does, and needs no torch.
    """
    spawned = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    pool = ProcessPoolExecutor(1, spawned, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    with tempfile.TemporaryDirectory() as folder:

        def draw(stem, analysis, result, formats, width):
            about = {"analysis": analysis, "kind": type(result).__name__, "width": width}
            *_, path = results.write_result(Path(folder) / stem.name, result, about)
            return pool.submit(_draw_file, path, stem, formats, results.chosen()).result

        try:
            yield draw
        finally:
            pool.shutdown(cancel_futures=True)


def _draw(*picture) -> Drawn:
    begin = time.perf_counter()
    return results.export(*picture), time.perf_counter() - begin


def _draw_file(path: Path, stem: Path, formats: Sequence[str], look: dict) -> Drawn:
    result, about = results.read_result(path)
    with results.look(**look):
        return _draw(stem, about["analysis"], result, formats, about["width"])
