"""What somebody's code prints stands apart from what a command says: on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from capsviz.wrapping.shared import Shared


@contextmanager
def on_stderr() -> Iterator[None]:
    """Inside, what is printed goes to stderr, in all threads."""
    with _aside:
        yield


def _exchange() -> Callable[[], None]:
    before, sys.stdout = sys.stdout, sys.stderr

    def restore() -> None:
        sys.stdout = before

    return restore


_aside = Shared(_exchange)
