"""Arrows never turn back: who may import whom, and what importing costs."""

import ast
import json
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter

import pytest
from helpers import source_code as sources

from capsviz import discovery

# From the bottom up. A room may import from floors below its own and from itself; rooms of one
# floor do not know each other. A room is a package of capsviz, or a file directly in it.
FLOORS = (
    ("capsviz",),
    ("discovery",),
    ("arrangement", "files", "memory", "provenance", "validation"),
    ("nn", "statistics"),
    ("analysis", "checkpoint", "tracing", "transforms"),
    ("wrapping", "pictures"),
    ("checks", "data"),
    ("testing", "training"),
    ("experiments", "inputs"),
    ("results",),
    ("cli",),
    ("analyses",),
    ("explorer", "plot"),
    ("commands",),
    ("__main__",),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

# An analysis sees any capsule network through its trace, never our own layers.
UNKNOWN_TO_ANALYSES = ("routing", "links", "children", "capsule_layer", "decoders", "models")

# Rooms that ask `tracing.abilities` what a network offers, and probe none themselves.
ASK_ABILITIES = ("analyses", "cli", "commands", "explorer", "inputs", "results")


def room(module):
    """The room of a module: the package or file of capsviz that it lies in."""
    return [*module.split("."), "capsviz"][1]


def forbidden(module, imported):
    """Why a module may not import another, or None."""
    own, other = room(module), room(imported)
    if own not in FLOOR or other not in FLOOR:
        return f"{own} or {other} has no floor: give it one in tests/test_imports.py"
    if own == "analyses" and other == "nn" and imported.split(".")[2] in UNKNOWN_TO_ANALYSES:
        return f"{module} must not know {imported}: it looks through capsviz.tracing"
    if own == other == "analyses" and module.split(".")[2:3] != imported.split(".")[2:3]:
        return f"{module} imports {imported}: what several analyses share has another home"
    if own != other and FLOOR[other] >= FLOOR[own]:
        return f"{module} (floor {FLOOR[own]}) imports {imported} (floor {FLOOR[other]})"
    return None


@cache
def graph():
    """module -> the modules of ours that it imports, itself left out."""
    return {
        module: sources.imports(path.read_text(encoding="utf-8")) - {module}
        for module, path in sources.MODULES.items()
    }


def test_no_import_turns_back():
    why = [forbidden(module, other) for module, others in graph().items() for other in others]
    assert [reason for reason in why if reason] == []


def test_no_names_are_imported_that_are_private_to_another_room():
    taken = [
        (module, dotted)
        for module, path in sources.MODULES.items()
        for dotted in sources.imported_names(path.read_text(encoding="utf-8"))
        if re.search(r"\._(?!_)", dotted) and room(module) != room(dotted)
    ]
    assert taken == []


def test_there_is_no_circle_of_imports():
    TopologicalSorter(graph()).prepare()  # CycleError names one


def test_every_floor_has_its_rooms_and_capsviz_few_files():
    rooms = {room(module) for module in sources.MODULES}
    assert rooms == set(FLOOR)
    assert len(list(discovery.folder("capsviz").glob("*.py"))) <= 8


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("capsviz.nn.models.capsnet", "capsviz.tracing"),
        ("capsviz.analyses.rotate", "capsviz.nn.models.capsnet"),
        ("capsviz.analyses.rotate", "capsviz.analyses.sweep"),
        ("capsviz.analyses.rotate", "capsviz.no_such_room"),
    ],
)
def test_arrows_that_turn_back_are_seen(module, imported):
    assert forbidden(module, imported)


def loaded_by(code):
    """Modules that a fresh interpreter holds after running a text."""
    code = f"import json, sys\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=sources.ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def heavy(modules):
    """Those that make a command slow to start, and every analysis."""
    slow = {"torch", "torchvision", "kornia", "matplotlib", "sklearn", "scipy", "numpy", "PIL"}
    slow |= {"pydantic", "filelock", "tomli_w", "pylatexenc"}
    return {m for m in modules if m in slow or m.startswith("capsviz.analyses.")}


def test_importing_capsviz_imports_nothing_heavy():
    found = loaded_by("import capsviz")
    assert heavy(found) == set()
    assert {m for m in found if m.startswith("capsviz")} == {"capsviz"}


def test_help_imports_neither_torch_nor_any_analysis():
    found = loaded_by("from capsviz.cli import main\nmain(['--help'], standalone_mode=False)")
    assert heavy(found) == set()


def test_capsviz_has_no_other_names():
    import capsviz

    with pytest.raises(AttributeError, match="no attribute 'traces'"):
        capsviz.traces  # noqa: B018
    assert all(hasattr(capsviz, name) for name in capsviz.__all__)


def test_analyses_and_their_drawings_import_no_torch():
    names = [f"capsviz.analyses.{name}" for name in discovery.names("capsviz.analyses")]
    names += [
        name
        for name in sources.MODULES
        if name.endswith((".draw", ".panels")) and "analyses" in name
    ]
    code = "import importlib\n"
    code += f"for name in {names}:\n    importlib.import_module(name)\n"
    code += "    assert 'torch' not in sys.modules, f'{name} imports torch'\n"
    assert "torch" not in loaded_by(code)


def test_torch_hub_is_told_of_every_package_that_a_network_needs():
    """torch.hub looks for these before it imports anything, and names those that are missing."""
    import hubconf

    code = "import hubconf\nhubconf.pretrained('digits')\nhubconf.capsnet()"
    loaded = loaded_by(code)
    texts = [sources.MODULES[name].read_text("utf-8") for name in loaded if name in sources.MODULES]
    named = set().union(*(sources.imported_from_others(text) for text in texts))
    assert named & loaded == set(hubconf.dependencies)


def probed_networks(code):
    """Lines of a text that ask a network by `hasattr` or `getattr` what it has."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    return [
        call.lineno
        for call in calls
        if isinstance(call.func, ast.Name)
        and call.func.id in ("hasattr", "getattr")
        and re.search(r"\b(model|network|net)s?$", ast.unparse(call.args[0]))
    ]


def test_nobody_but_abilities_probes_a_network():
    found = [
        (module, line)
        for module, path in sources.MODULES.items()
        if room(module) in ASK_ABILITIES
        for line in probed_networks(path.read_text("utf-8"))
    ]
    assert found == []
    assert probed_networks("hasattr(run.model, 'look') or getattr(network, 'grid', None)") == [1, 1]
    assert probed_networks("getattr(model.settings, 'objective')") == []
