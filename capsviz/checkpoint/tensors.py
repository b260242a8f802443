"""Read and write safetensors files: tensors, and strings about them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from capsviz.files import write_bytes


def write_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, str] | None = None):
    """Write tensors and strings to a safetensors file."""
    whole = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    write_bytes(path, to_bytes(whole, about))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return tensors and strings of a safetensors file; ValueError for anything else."""
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in list(file.keys())}, file.metadata() or {}


def read_about(path: Path) -> dict[str, str]:
    """Return the strings of a safetensors file; ValueError for anything else."""
    with _opened(path) as file:
        return file.metadata() or {}


@contextmanager
def _opened(path: Path) -> Iterator[safe_open]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(
            f"{path} is not a whole safetensors file ({error}): it is damaged, or another format; "
            "pickled weights are not read, convert them with safetensors.torch.save_file"
        ) from error


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hex digits."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
