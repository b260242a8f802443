"""Find the modules of a package and the user's plug-ins by name, without importing them.

A module is a file NAME.py, or a folder NAME with an `__init__.py`. The kind of a plug-in is the
last part of the package's name: "analyses", "routing", "data", "decoders", "models",
"corruptions", "reproductions", "pitfalls" or "commands". Plug-ins are found in

    $CAPSVIZ_PLUGINS   folders (separated as in $PATH) that hold KIND/NAME.py or KIND/NAME/
    entry points       of installed distributions, group "capsviz.KIND", NAME = dotted.module
"""

import hashlib
import importlib
import os
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

PLUGINS = "CAPSVIZ_PLUGINS"
CAPSVIZ = Path(__file__).resolve().parent
QUOTES = '"""'
BESIDE = ("analyses", "trained")  # beside capsviz in the repository, inside it when installed


class Entry(NamedTuple):
    """One module that a package offers."""

    module: str  # dotted name for the import
    path: Path | None  # its source file; None for an entry point
    ours: bool  # whether it is part of capsviz


def root() -> Path:
    """Return the folder that holds the package capsviz: the root of a checkout."""
    return CAPSVIZ.parent


def folder(package: str) -> Path:
    """Return the folder of one of capsviz's packages, without importing it."""
    _, *parts = package.split(".")
    inside = CAPSVIZ.joinpath(*parts)
    if parts and parts[0] in BESIDE and not inside.exists():
        return root().joinpath(*parts)
    return inside


def names(package: str) -> list[str]:
    """Return the sorted module names of a package, except those that start with "_"."""
    return sorted(entries(package))


def source(package: str, name: str) -> Path:
    """Return the source file of a module."""
    from importlib.util import find_spec

    entry = entries(package)[name]
    if entry.path is not None:
        return entry.path
    spec = find_spec(entry.module)
    if spec is None or spec.origin is None:
        raise ValueError(f"the plugin '{name}' is {entry.module}, which is not installed")
    return Path(spec.origin)


def digest(package: str, name: str) -> str:
    """Return the SHA-256 of a module's source; for a folder, of all its modules."""
    path = source(package, name)
    files = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def summary(package: str, name: str) -> str:
    """Return the first line of a module's docstring, without importing it."""
    try:
        text = source(package, name).read_text(encoding="utf-8")
    except Exception as error:  # a dangling link or a broken package must not hide the others
        return f"(cannot be read: {type(error).__name__}: {error})"
    line = text.partition("\n")[0].removeprefix(QUOTES)
    if text.startswith(QUOTES) and "\\" not in line and line.strip():  # faster than ast
        return line.partition(QUOTES)[0].strip()
    import ast

    try:
        return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    except SyntaxError as error:
        return f"(cannot be read: {error.msg}, line {error.lineno})"


def root_of(file: Path) -> Path:
    """Return the folder from which a Python file is imported: the one above its packages."""
    folder = file.resolve().parent
    while folder.name.isidentifier() and (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def parameters(function) -> tuple[str, ...]:
    """Return the parameter names of a function; none for anything else."""
    from inspect import signature

    return tuple(signature(function).parameters) if callable(function) else ()


def load(package: str, name: str, *, what: str) -> ModuleType:
    """Import one module of a package such as "capsviz.nn.routing"; errors call it `what`.

    ValueError for an unknown or ambiguous name, or a plug-in that cannot be imported.
    """
    known = entries(package)
    if not isinstance(name, str) or name not in known:  # a card may hold anything
        raise ValueError(unknown(what, str(name), sorted(known), plugins=True))
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
    """Return the modules of a package by name; ValueError if two have the same name."""
    return _entries(package, tuple(places()))


def places() -> list[Path]:
    """Return the folders of plug-ins; ValueError if one does not exist."""
    named = [one for one in os.environ.get(PLUGINS, "").split(os.pathsep) if one]
    for place in named:
        if not Path(place).expanduser().is_dir():
            raise ValueError(f"${PLUGINS} names '{place}', which is not a folder")
    return [Path(place).expanduser().resolve() for place in named]


@cache
def _entries(package: str, plugins: tuple[Path, ...]) -> dict[str, Entry]:
    kind = package.rpartition(".")[2]
    offered = {name: Entry(f"{package}.{name}", p, True) for name, p in _modules(folder(package))}
    for number, place in enumerate(plugins):
        for name, path in _modules(place / kind):
            _add(offered, kind, name, Entry(f"capsviz_plugin_{kind}_{number}_{name}", path, False))
    for name, module in _entry_points(f"capsviz.{kind}"):
        _add(offered, kind, name, Entry(module, None, False))
    return offered


def _entry_points(group: str) -> list[tuple[str, str]]:
    """Return (name, module) of installed entry points."""
    from importlib import metadata

    if not _any_entry_points():
        return []
    return [(point.name, point.module) for point in metadata.entry_points(group=group)]


@cache
def _any_entry_points() -> bool:
    """Return whether any distribution has capsviz entry points (`importlib.metadata` is slow)."""
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
        raise ValueError(f"'{name}' of {place} is not a module name: write it with underscores")
    if name in offered and entry.path is not None and entry.path == offered[name].path:
        return  # $CAPSVIZ_PLUGINS names the folder twice
    if name in offered:
        first = offered[name].path or offered[name].module
        raise ValueError(
            f"two modules of {kind} are called '{name}': {first} and {place}; rename one of them"
        )
    offered[name] = entry


def _modules(place: Path) -> list[tuple[str, Path]]:
    """Return (name, source file) of the modules in a folder."""
    files = [(path.stem, path) for path in place.glob("[!_]*.py")]
    return files + [(path.parent.name, path) for path in place.glob("[!_]*/__init__.py")]


def _load_file(name: str, path: Path) -> ModuleType:
    """Import a source file by its path, once; a folder may use relative imports."""
    from importlib.util import module_from_spec, spec_from_file_location

    module = sys.modules.get(name)
    if module is not None and module.__file__ == str(path):
        return module
    inside = [str(path.parent)] if path.name == "__init__.py" else None
    spec = spec_from_file_location(name, path, submodule_search_locations=inside)
    assert spec is not None and spec.loader is not None  # always so for a .py file
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def name_of(package: str, module: str) -> str | None:
    """Return the name under which a package offers `module` or a package around it; or None."""
    parts = module.split(".")
    offered = {entry.module: name for name, entry in entries(package).items()}
    longest_first = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((offered[one] for one in longest_first if one in offered), None)


def unknown(what: str, name: str, known: list[str], *, plugins: bool = False) -> str:
    """Return the message for an unknown name, with the known names and a similar one if any.

    With `plugins`, the message also says where plug-ins are searched.
    """
    import difflib

    near = difflib.get_close_matches(name, known, 1)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    where = f"; plug-ins are searched in ${PLUGINS}" * plugins
    return f"unknown {what} '{name}', expected one of: {', '.join(known)}{hint}{where}"


def require_known(what: str, name: Any, known: Iterable[str]) -> None:
    """Raise ValueError with the message of `unknown` unless `name` is one of the known names."""
    names = list(known)
    if not isinstance(name, str) or name not in names:
        raise ValueError(unknown(what, str(name), names))


def some(names: Iterable[str], most: int = 10) -> str:
    """Return the first `most` names, and "..." if there are more."""
    every = list(names)
    return ", ".join(every[:most] + ["..."] * (len(every) > most))


def needs(what: str, *packages: str) -> str:
    """Return the message for packages that are not installed."""
    return f"{what} needs {', '.join(packages)}: pip install {' '.join(packages)}"
