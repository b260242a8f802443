"""Files that are there whole or not at all, in folders that one process writes at a time."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK = ".lock"
RANDOM_LETTERS = "[a-z0-9_]" * 8  # that `mkstemp` ends a name by


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


def clear(folder: Path, *names: str) -> None:
    """Remove what `write_bytes` has left where it was killed, of files whose names are like these.

    Parameters
    ----------
    names  as `fnmatch` has them, e.g. "best-*.safetensors".
    """
    for name in names:
        for stray in folder.glob(f".{name}.{RANDOM_LETTERS}"):
            stray.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path):
    """Lock a folder, made if it is not there, against others that would write to it too.

    The lock, a file `.lock` in it, ends with the process, however that ends. A folder that was made
    is not left behind empty. File systems that know no locks have no guard.

    Raises
    ------
    BlockingIOError  if another process has locked it.
    """
    from filelock import FileLock, Timeout

    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        try:
            lock.acquire()
        except Timeout as error:
            raise BlockingIOError(f"another process is training in {folder}") from error
        except OSError:
            pass  # a file system without locks
        try:
            yield
        finally:
            if missing and [path.name for path in folder.iterdir()] == [LOCK]:
                with suppress(OSError):  # Windows removes it with the lock
                    (folder / LOCK).unlink()
    finally:
        lock.release()
        with suppress(OSError):  # up to the first that holds something
            for path in missing:
                path.rmdir()
