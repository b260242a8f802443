"""Files that are there whole or not at all, in folders that one process writes at a time."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, also when the machine stops."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp's files are private
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_text(path: Path, content: str) -> None:
    """`write_bytes` for text."""
    write_bytes(path, content.encode())


@contextmanager
def held(folder: Path):
    """Hold a folder, made if it is not there, against others that would hold it too.

    It is let go when the process ends, however it does, and not left behind empty. Systems without
    such locks have no guard.

    Raises
    ------
    BlockingIOError  if another process holds it.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    handle = None if fcntl is None else os.open(folder, os.O_RDONLY)
    try:
        if handle is not None:
            _lock(handle, folder)
        yield
    finally:
        with suppress(OSError):  # up to the first that holds something
            for path in made:
                path.rmdir()
        if handle is not None:
            os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BlockingIOError(f"another process is training in {folder}") from error
    except OSError:
        pass  # a file system without locks
