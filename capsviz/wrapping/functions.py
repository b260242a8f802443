"""A function of a Python file, as a command line names it: "FILE.py:FUNCTION"."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from torch import nn

from capsviz.discovery import unknown
from capsviz.wrapping.device import without_cuda
from capsviz.wrapping.stdout import on_stderr


def open_function(spec: str, *, arguments: int = 0):
    """A function of a file, "FILE.py:FUNCTION", that is called with so many arguments.

    Raises
    ------
    ValueError  in one line, for whatever is wrong with file or function.
    """
    path, name = locate(spec)
    with on_path(path.parent), without_cuda(), on_stderr():
        function = read_function(path, name, arguments)
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError as error:
        raise ValueError(
            f"{path}: {name} cannot be called with {arguments} arguments: {error}"
        ) from error
    return function


def locate(spec: str) -> tuple[Path, str]:
    """The file and the name in "FILE.py:FUNCTION"; ValueError for anything else, or no file."""
    file, colon, name = str(spec).rpartition(":")
    path = Path(file)
    if not colon or not name.isidentifier() or path.suffix != ".py":
        raise ValueError(f"expected FILE.py:FUNCTION, got '{spec}'")
    if not path.is_file():
        raise ValueError(f"there is no file '{path}'")
    return path.resolve(), name


@contextmanager
def on_path(folder: Path) -> Iterator[None]:
    """A folder that is imported from first."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(str(folder))


def read_function(path: Path, name: str, arguments: int = 0) -> Callable:
    """A function of a file, which is imported, that needs no more than so many arguments.

    Raises
    ------
    ValueError  in one line, for whatever is wrong with file or function.
    """
    module = _module(path)
    function = getattr(module, name, None)
    if not callable(function):
        own = [
            key
            for key, value in vars(module).items()
            if inspect.isfunction(value)
            and value.__module__ == module.__name__
            and len(required(value)) == arguments
        ]
        if not own:
            raise ValueError(f"{path} defines no function: expected one that builds the network")
        raise ValueError(f"{path}: {unknown('function', name, own)}")
    if isinstance(function, nn.Module) and not arguments:
        raise ValueError(
            f"{path}: {name} is a network, not a function: write def build(): return {name}"
        )
    lacking = required(function)
    if lacking and not arguments:
        raise ValueError(
            f"{path}: {name} needs {', '.join(lacking)}: write a function without arguments that "
            "calls it"
        )
    return function


def _module(path: Path) -> ModuleType:
    name = f"_network_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ValueError(f"{path} cannot be imported: {in_words(error)}") from error
    return module


def required(function) -> list[str]:
    """Names of the arguments without which a function cannot be called."""
    with suppress(TypeError, ValueError):
        return [
            p.name
            for p in inspect.signature(function).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
    return []


def in_words(error: BaseException) -> str:
    """Kind and message of somebody's error, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
