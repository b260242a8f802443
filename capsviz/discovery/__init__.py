"""What a package offers: names and help lines of its modules, found without importing them.

A module is a file NAME.py, or a folder NAME with an `__init__.py`. Beside capsviz's own there are
those of users, for every package that is looked through by name ("analyses", "routing", "data",
"decoders", "models", "corruptions", "reproductions", "pitfalls", "commands": its last name is the
kind):

    $CAPSVIZ_PLUGINS   folders (separated as in $PATH) that hold KIND/NAME.py or KIND/NAME/
    entry points       of installed distributions, group "capsviz.KIND", NAME = dotted.module
"""

from __future__ import annotations

import importlib
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

PLUGINS = "CAPSVIZ_PLUGINS"
CAPSVIZ = Path(__file__).resolve().parent.parent
QUOTES = '"""'
COMMANDS = ("commands", "analyses")  # kinds whose modules are commands
BESIDE = ("analyses", "trained")  # at the top of the repository, installed inside of capsviz


class Entry(NamedTuple):
    """One module that a package offers."""

    module: str  # the dotted name that it is imported by
    path: Path | None  # its source file; None: known once its distribution is asked
    ours: bool  # whether it comes with capsviz


def root() -> Path:
    """The folder that holds the package capsviz: the checkout, if it runs from one."""
    return CAPSVIZ.parent


def folder(package: str) -> Path:
    """The folder of one of capsviz's own packages, never imported."""
    _, *parts = package.split(".")
    inside = CAPSVIZ.joinpath(*parts)
    if parts and parts[0] in BESIDE and not inside.exists():
        return root().joinpath(*parts)
    return inside


def names(package: str) -> list[str]:
    """Sorted module names that a package offers, leaving out those that start with "_"."""
    return sorted(entries(package))


def source(package: str, name: str) -> Path:
    """The source file of a module."""
    from importlib.util import find_spec

    entry = entries(package)[name]
    if entry.path is not None:
        return entry.path
    spec = find_spec(entry.module)
    if spec is None or spec.origin is None:
        raise ValueError(f"'{name}' is said to be {entry.module}, which is not installed")
    return Path(spec.origin)


def summary(package: str, name: str) -> str:
    """First line of a module's docstring, read without importing it."""
    try:
        text = source(package, name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return f"(cannot be read: it is not UTF-8, byte {error.start})"
    except Exception as error:  # a dangling link, a package that is gone or raises: others are fine
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        return f"(cannot be read: {reason})"
    line = text.partition("\n")[0].removeprefix(QUOTES)
    if text.startswith(QUOTES) and "\\" not in line and line.strip():  # as all of ours: ast is slow
        return line.partition(QUOTES)[0].strip()
    import ast

    try:
        return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    except SyntaxError as error:
        return f"(cannot be read: {error.msg}, line {error.lineno})"


def parameters(function) -> tuple[str, ...]:
    """Names of what a plugin's function takes; none of what is no function."""
    from inspect import signature

    return tuple(signature(function).parameters) if callable(function) else ()


def load(package: str, name: str, *, what: str) -> ModuleType:
    """Import one module of a package.

    Parameters
    ----------
    package  dotted name, as "capsviz.nn.routing".
    name     the module in it.
    what     what to call it in the error.

    Raises
    ------
    ValueError  for a name that is not there, with the known ones, or that two plugins claim, and
                for a plugin that cannot be imported.
    """
    known = entries(package)
    if name not in known:
        raise ValueError(unknown(what, name, sorted(known)))
    entry = known[name]
    if entry.ours:
        return importlib.import_module(entry.module)
    try:
        if entry.path is None:
            return importlib.import_module(entry.module)
        return _load_file(entry.module, entry.path)
    except (Exception, SystemExit) as error:
        words = f"{what} '{name}' of {entry.path or entry.module} cannot be imported"
        raise ValueError(f"{words} ({type(error).__name__}: {error})") from error


def entries(package: str) -> dict[str, Entry]:
    """What a package offers, by name; ValueError for a name that is there twice."""
    return _entries(package, os.environ.get(PLUGINS, ""))


@cache
def _entries(package: str, plugins: str) -> dict[str, Entry]:
    kind = package.rpartition(".")[2]
    offered = {name: Entry(f"{package}.{name}", p, True) for name, p in _modules(folder(package))}
    for number, place in enumerate(filter(None, plugins.split(os.pathsep))):
        if not Path(place).expanduser().is_dir():
            raise ValueError(f"${PLUGINS} names '{place}', which is no folder")
        for name, path in _modules(Path(place).expanduser().resolve() / kind):
            _add(offered, kind, name, Entry(f"capsviz_plugin_{kind}_{number}_{name}", path, False))
    for name, module in _entry_points(f"capsviz.{kind}"):
        _add(offered, kind, name, Entry(module, None, False))
    return offered


def _entry_points(group: str) -> list[tuple[str, str]]:
    """(name, module) that installed distributions offer."""
    if not _extended():
        return []
    from importlib import metadata

    return [(point.name, point.module) for point in metadata.entry_points(group=group)]


@cache
def _extended() -> bool:
    """Whether any distribution offers something: most often none, and `metadata` is slow to ask."""
    folders = [Path(place) for place in sys.path if os.path.isdir(place or ".")]
    infos = [
        folder / name / "entry_points.txt"
        for folder in folders
        for name in os.listdir(folder)
        if name.endswith((".dist-info", ".egg-info"))
    ]
    return any(b"[capsviz." in path.read_bytes() for path in infos if path.is_file())


def _add(offered: dict[str, Entry], kind: str, name: str, entry: Entry) -> None:
    place = entry.path or entry.module
    if not name.isidentifier():
        raise ValueError(f"'{name}' of {place} is no name of a module: write it with underscores")
    taken = dict(offered)
    if kind in COMMANDS:  # those of both are on one command line
        for other in COMMANDS:
            taken |= {n: Entry(n, p, True) for n, p in _modules(folder(f"capsviz.{other}"))}
    if name in taken:
        first = taken[name].path or taken[name].module
        raise ValueError(f"two modules of {kind} are called '{name}': {first} and {place}")
    offered[name] = entry


def _modules(place: Path) -> list[tuple[str, Path]]:
    """(name, source file) of the modules in a folder."""
    files = [(path.stem, path) for path in place.glob("[!_]*.py")]
    return files + [(path.parent.name, path) for path in place.glob("[!_]*/__init__.py")]


def _load_file(name: str, path: Path) -> ModuleType:
    """Import a source file by its path, once; a folder's own parts by `from . import part`."""
    from importlib.util import module_from_spec, spec_from_file_location

    module = sys.modules.get(name)
    if module is not None and module.__file__ == str(path):
        return module
    inside = [str(path.parent)] if path.name == "__init__.py" else None
    spec = spec_from_file_location(name, path, submodule_search_locations=inside)
    assert spec is not None and spec.loader is not None  # of a .py file it never is
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def name_of(package: str, module: str) -> str | None:
    """The name by which a package offers a module, or what it is a part of; None if it does not.

    Parameters
    ----------
    module  its dotted name.
    """
    parts = module.split(".")
    offered = {entry.module: name for name, entry in entries(package).items()}
    longest_first = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((offered[one] for one in longest_first if one in offered), None)


def unknown(what: str, name: str, known: list[str]) -> str:
    """The one sentence for a name that is not known, with the nearest one if it is near."""
    import difflib

    near = difflib.get_close_matches(name, known, 1)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    return f"unknown {what} '{name}', expected one of: {', '.join(known)}{hint}"
