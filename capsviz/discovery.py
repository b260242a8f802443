"""What a folder offers: names and help lines of its modules, found without importing them."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
from pathlib import Path
from types import ModuleType


def folder(package: str) -> Path:
    """The folder of a package, looked up beside capsviz itself, never imported."""
    return Path(__file__).resolve().parent.parent.joinpath(*package.split("."))


def names(package: str) -> list[str]:
    """Sorted module names in a package's folder, leaving out those that start with "_"."""
    return sorted(p.stem for p in folder(package).glob("[!_]*.py"))


def summary(package: str, name: str) -> str:
    """First line of a module's docstring, read without importing it."""
    text = (folder(package) / f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


def load(package: str, name: str, *, what: str) -> ModuleType:
    """Import one module of a package.

    Parameters
    ----------
    package  dotted name, as "capsviz.routing".
    name     the module in it.
    what     what to call it in the error.

    Raises
    ------
    ValueError   for a name that is not there, with the known ones.
    ImportError  if another distribution's package of that name is imported in place of ours.
    """
    known = names(package)
    if name not in known:
        raise ValueError(unknown(what, name, known))
    module = importlib.import_module(f"{package}.{name}")
    expected = folder(package) / f"{name}.py"
    if not expected.samefile(module.__file__):
        raise ImportError(
            f"'{package}.{name}' came from {module.__file__}, expected {expected}: "
            f"another installed distribution has a package named '{package}'; uninstall it"
        )
    return module


def unknown(what: str, name: str, known: list[str]) -> str:
    """The one sentence for a name that is not known, with the nearest one if it is near."""
    near = difflib.get_close_matches(name, known, 1)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    return f"unknown {what} '{name}', expected one of: {', '.join(known)}{hint}"
