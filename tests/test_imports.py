"""Arrows never turn back: who may import whom, and what importing costs."""

import json
import subprocess
import sys

import pytest
import sources

from capsviz import discovery

# From the bottom up. A module may import from rows above its own in this table (lower layers), and
# from its own family: `capsviz.data.mnist` from `capsviz.data`. Within a row nobody knows another.
LAYERS = (
    ("capsviz", "capsviz.discovery", "capsviz.files", "capsviz.memory", "capsviz.allocator",
     "capsviz.errors", "capsviz.distributed"),
    ("capsviz.provenance", "capsviz.warps", "capsviz.tables", "capsviz.ink"),
    ("capsviz.centring",),
    ("capsviz.pictures",),
    # what stands alone
    ("capsviz.functional", "capsviz.data", "capsviz.augment", "capsviz.intervals",
     "capsviz.moments", "capsviz.recipe", "capsviz.figures", "capsviz.options"),
    ("capsviz.routing", "capsviz.convolution", "capsviz.comparison", "capsviz.detection",
     "capsviz.optimisation", "capsviz.corruptions", "capsviz.reproductions"),
    ("capsviz.layers", "capsviz.decoders"),
    ("capsviz.models",),
    ("capsviz.tracing",),
    ("capsviz.checkpoint", "capsviz.evaluate", "capsviz.animation",
     "capsviz.attacks", "capsviz.describe", "capsviz.prediction"),
    ("capsviz.history", "capsviz.transfer", "capsviz.board"),
    ("capsviz.train", "capsviz.subject", "capsviz.primary_decoder", "capsviz.affine_scores"),
    ("capsviz.pipeline", "capsviz.paperset", "capsviz.primary_training"),
    ("capsviz.generalisation", "capsviz.reproduce"),
    ("analyses",),
    ("capsviz.explorer",),
    ("capsviz.commands",),
    ("capsviz.cli",),
    ("capsviz.__main__",),
)  # fmt: skip

# These hand over to others inside functions, when a command runs.
LAZY = ("capsviz.options", "capsviz.cli")

# An analysis sees any capsule network through its trace, never our own layers.
UNKNOWN_TO_ANALYSES = ("capsviz.routing", "capsviz.layers", "capsviz.decoders", "capsviz.models")


def family(module):
    """The entry of the table that a module belongs to, and its row; None for no entry."""
    for row, entries in enumerate(LAYERS):
        for entry in entries:
            if module == entry or (entry != "capsviz" and module.startswith(f"{entry}.")):
                return entry, row
    return None


def forbidden(module, imported):
    """Why a module may not import another, or None."""
    if (of := family(imported)) is None:
        return f"{imported} has no layer: give it one in tests/test_imports.py"
    (own, row), (other, lower) = family(module), of
    if own == "analyses" and other in UNKNOWN_TO_ANALYSES:
        return f"an analysis must not know {other}: it looks through capsviz.tracing"
    if own != other and lower >= row:
        return f"{own} (layer {row}) imports {other} (layer {lower})"
    return None


@pytest.mark.parametrize("module", sources.MODULES)
def test_no_import_turns_back(module):
    assert family(module) is not None, f"{module} has no layer: give it one in {__file__}"
    code = sources.MODULES[module].read_text(encoding="utf-8")
    found = sources.imports(code, lazy=module not in LAZY)
    assert [why for other in sorted(found) if (why := forbidden(module, other))] == []


@pytest.mark.parametrize("entry", [entry for row in LAYERS for entry in row])
def test_every_entry_of_the_table_is_a_module(entry):
    assert entry in sources.MODULES


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("capsviz.functional", "capsviz.routing"),
        ("capsviz.routing.dynamic", "capsviz.layers"),
        ("capsviz.layers", "capsviz.decoders"),
        ("capsviz.models.capsnet", "capsviz.tracing"),
        ("capsviz.tracing", "capsviz.evaluate"),
        ("capsviz.data.mnist", "capsviz.functional"),
        ("capsviz.figures", "capsviz.tracing"),
        ("capsviz.warps", "capsviz.data"),
        ("capsviz.train", "capsviz.pipeline"),
        ("capsviz.train", "analyses.rotate"),
        ("analyses.rotate", "capsviz.models.capsnet"),
        ("analyses.rotate", "capsviz.layers"),
        ("analyses.rotate", "capsviz.no_such_module"),
    ],
)
def test_arrows_that_turn_back_are_seen(module, imported):
    assert forbidden(module, imported)


@pytest.mark.parametrize(
    "code",
    [
        "import capsviz.layers",
        "from capsviz import layers",
        "from capsviz.layers import ClassCapsules",
        "def f():\n    from capsviz import layers as l",
        "class A:\n    from capsviz import layers",
        "if True:\n    import capsviz.layers as l",
    ],
)
def test_every_form_of_import_is_seen(code):
    assert sources.imports(code) == {"capsviz.layers"}
    inside = code.startswith("def")
    assert sources.imports(code, lazy=False) == (set() if inside else {"capsviz.layers"})


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
    return {m for m in modules if m in slow or m.startswith("analyses.")}


def test_importing_capsviz_imports_nothing_heavy():
    found = loaded_by("import capsviz")
    assert heavy(found) == set()
    assert {m for m in found if m.startswith("capsviz")} == {"capsviz"}


def test_help_imports_neither_torch_nor_any_analysis():
    found = loaded_by("from capsviz.cli import main\nmain(['--help'], standalone_mode=False)")
    assert heavy(found) == set()


def test_what_capsviz_offers_is_imported_when_it_is_used():
    found = loaded_by("import capsviz\ncapsviz.trace, capsviz.load")
    assert {"torch", "capsviz.tracing", "capsviz.checkpoint"} <= found


def test_capsviz_has_no_other_names():
    import capsviz

    with pytest.raises(AttributeError, match="no attribute 'traces'"):
        capsviz.traces  # noqa: B018
    assert all(hasattr(capsviz, name) for name in capsviz.__all__)


def test_analyses_and_their_drawings_import_no_torch():
    names = discovery.names("analyses")
    names += [p.stem for p in discovery.folder("analyses").glob("_*_drawing.py")]
    code = "import importlib, capsviz.figures\nlight = {}\n"
    code += f"for name in {names}:\n    importlib.import_module(f'analyses.{{name}}')\n"
    code += "    assert 'torch' not in sys.modules, f'analyses.{name} imports torch'\n"
    assert "torch" not in loaded_by(code)
