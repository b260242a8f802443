"""What the source text says, read by `ast` and never imported: imports, devices."""

import ast
from pathlib import Path

from capsviz import discovery

FILES = sorted(
    path for package in ("capsviz", "analyses") for path in discovery.folder(package).rglob("*.py")
)
ROOT = discovery.folder("")
GPUS = ("cuda", "mps")
ONE_DEVICE = ("FloatTensor", "set_default_device", "set_default_tensor_type")


def name(path: Path) -> str:
    """Dotted name of a module's file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name(path): path for path in FILES}


def imports(code: str, *, lazy: bool = True) -> set[str]:
    """Our own modules that a text imports; without `lazy`, those outside of functions only."""
    found = set()
    for node in _walk(ast.parse(code), lazy):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            # `from package import x`: x is a module of the package, or something in it
            dotted = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [d if d in MODULES else node.module for d in dotted]
        else:
            continue
        found |= {n for n in names if n.split(".")[0] in ("capsviz", "analyses")}
    return found


def _walk(node, lazy: bool):
    for child in ast.iter_child_nodes(node):
        yield child
        if lazy or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _walk(child, lazy)


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
