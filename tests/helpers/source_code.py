"""What the source text says, read by `ast` and never imported: imports, devices."""

import ast
import sys
from functools import cache
from pathlib import Path

from capsviz import discovery

FILES = sorted(
    path
    for package in ("capsviz", "capsviz.analyses")
    for path in discovery.folder(package).rglob("*.py")
)
ROOT = discovery.root()
GPUS = ("cuda", "mps")
ONE_DEVICE = ("FloatTensor", "set_default_device", "set_default_tensor_type")


def name(path: Path) -> str:
    """Dotted name of a module's file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "capsviz" else ("capsviz", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name(path): path for path in FILES}


def imports(code: str) -> set[str]:
    """Our own modules that a text imports, anywhere in it."""
    # `from package import x`: x is a module of the package, or something in it
    found = {d if d in MODULES else d.rpartition(".")[0] for d in imported_names(code)}
    return found | {name for name in _imported_whole(code) if name.split(".")[0] == "capsviz"}


def imported_names(code: str) -> list[str]:
    """package.name for every `from package import name` of ours."""
    nodes = [n for n in _imports(code) if isinstance(n, ast.ImportFrom)]
    own = [n for n in nodes if n.level == 0 and n.module.split(".")[0] == "capsviz"]
    assert all(n.level == 0 for n in nodes), "imports are absolute here"
    return [f"{node.module}.{alias.name}" for node in own for alias in node.names]


def imported_from_others(code: str) -> set[str]:
    """Distributions' packages that a text imports, anywhere in it: not ours, not Python's own."""
    modules = [n.module for n in _imports(code) if isinstance(n, ast.ImportFrom)]
    names = {name.split(".")[0] for name in [*_imported_whole(code), *modules]}
    return names - sys.stdlib_module_names - {"capsviz"}


def _imported_whole(code: str) -> list[str]:
    nodes = [n for n in _imports(code) if isinstance(n, ast.Import)]
    return [alias.name for node in nodes for alias in node.names]


@cache
def _imports(code: str) -> list:
    return [n for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Import | ast.ImportFrom)]


def devices(code: str) -> list[int]:
    """Lines that put something on a GPU of their own accord; asking what is there is fine."""
    lines = set()
    for node in ast.walk(ast.parse(code)):
        values = []
        if isinstance(node, ast.Attribute):
            of_torch = isinstance(node.value, ast.Name) and node.value.id == "torch"
            if node.attr in ONE_DEVICE or (node.attr == "cuda" and not of_torch):
                lines.add(node.lineno)
        elif isinstance(node, ast.Call):
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.arguments):
            values = [*node.defaults, *node.kw_defaults]
        lines |= {value.lineno for value in values if _names_a_gpu(value)}
    return sorted(lines)


def _names_a_gpu(node) -> bool:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    kind, _, number = node.value.partition(":")
    return kind in GPUS and (number == "" or number.isdigit())
