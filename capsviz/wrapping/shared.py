"""Changes of the whole process that its threads share: the first makes one, the last undoes it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Shared:
    """A context that is entered by any number of threads, and is one change.

    Parameters
    ----------
    make  makes the change, as the first thread enters; what it returns undoes it, as the last one
          leaves.
    """

    def __init__(self, make: Callable[[], Callable[[], object]]):
        self._make, self._lock, self._users = make, threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._undo = self._make()
            self._users += 1

    def __exit__(self, *_) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._undo()
