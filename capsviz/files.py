"""Write files atomically, and lock folders so that one process writes at a time."""

import errno
import io
import os
import secrets
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

LOCK = ".lock"
WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}  # errors of file systems without locks
RANDOM_LETTERS = "[a-z0-9_]" * 8  # glob pattern for the end of a temporary name


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: completely or not at all, even if the machine stops."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        try:
            with open(temporary, "xb") as file:  # with the permissions that the umask leaves
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_text(path: Path, content: str) -> None:
    """Write text atomically, as UTF-8."""
    write_bytes(path, content.encode())


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write named arrays atomically, as a compressed NumPy archive (.npz)."""
    import numpy as np

    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_bytes(path, content.getvalue())


def clear(folder: Path, *names: str) -> None:
    """Remove temporary files left by a killed `write_bytes`; `names` are glob patterns."""
    for name in names:
        for stray in folder.glob(f".{name}.{RANDOM_LETTERS}"):
            stray.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path, doing: str = "training", *, wait: bool = False):
    """Lock a folder, created if missing; BlockingIOError if another process holds the lock.

    With `wait`, wait for the other process. The lock is a file `.lock` in the folder and ends with
    the process. A new folder that stays empty is removed. File systems without locks lock nothing.
    """
    from filelock import FileLock, Timeout

    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK, timeout=-1 if wait else 0)
    try:
        try:
            lock.acquire()
        except Timeout as error:
            raise BlockingIOError(f"another process is {doing} in {folder}") from error
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
        try:
            yield
        finally:
            if missing and [path.name for path in folder.iterdir()] == [LOCK]:
                with suppress(OSError):  # Windows deletes it when the lock is released
                    (folder / LOCK).unlink()
    finally:
        lock.release()
        with suppress(OSError):  # stop at the first folder that is not empty
            for path in missing:
                path.rmdir()
