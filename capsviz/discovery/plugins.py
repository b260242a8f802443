"""What goes wrong in a plugin: one line with its name, its file and the cause."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb

from capsviz import discovery


@contextmanager
def guarded(
    package: str,
    name: str,
    *,
    what: str,
    fails: str = "fails",
    but: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """What a plugin's module raises in here becomes a ValueError that names it.

    What passes as it is: errors of ours, and ValueErrors, OSErrors and MemoryErrors, which are told
    in a line anyway.

    Parameters
    ----------
    what   to call the module, and
    fails  what it did, in the error.
    but    errors more that pass.
    """
    try:
        yield
    except Exception as error:
        passing: tuple[type[Exception], ...] = (ValueError, OSError, MemoryError, *but)
        if isinstance(error, passing) or discovery.entries(package)[name].ours:
            raise
        path = discovery.source(package, name)
        cause = " ".join(f"{type(error).__name__}: {error}{_line(error, path)}".split())
        raise ValueError(f"the {what} '{name}' of {path} {fails} ({cause})") from error


def _line(error: Exception, path: Path) -> str:
    """Where in a source file, or in its folder, an error arose."""
    place = path.parent if path.name == "__init__.py" else path
    files = [(Path(one.f_code.co_filename), number) for one, number in walk_tb(error.__traceback__)]
    lines = [(file.name, number) for file, number in files if place in (file, *file.parents)]
    if not lines:
        return ""
    file_name, number = lines[-1]
    return f", line {number}" if file_name == path.name else f", line {number} of {file_name}"
