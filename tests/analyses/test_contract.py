"""Every analysis, by discovery: its parts, its defaults, its freedom from torch and from files."""

import ast
import inspect

import click
import pytest
import sources

from capsviz import discovery

NAMES = discovery.names("analyses")
IMPURE = {"print", "open", "savefig", "show", "echo", "secho", "manual_seed"}


FILES = sorted(discovery.folder("analyses").glob("*.py"))


def load(name):
    return discovery.load("analyses", name, what="analysis")


@pytest.mark.parametrize("name", NAMES)
def test_an_analysis_has_all_its_parts(name):
    module = load(name)
    for part in ("compute", "plot", "findings", "caption", "paper", "command"):
        assert callable(getattr(module, part)), part
    assert issubclass(module.Result, tuple) and hasattr(module.Result, "_fields")
    assert isinstance(module.command, click.Command)
    text = " ".join(module.__doc__.split())
    assert "reader should see" in text and ("Do not conclude" in text or "proves nothing" in text)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_analysis_imports_nothing_of_another_one(path):
    """Its own parts are _NAME_*.py; _panels.py and _words.py belong to all."""
    shared = {"analyses._panels", "analyses._words"}
    code = path.read_text(encoding="utf-8")
    found = {module for module in sources.imports(code) if module.startswith("analyses.")} - shared
    own = path.stem.removeprefix("_").split("_")[0]
    assert {module.split(".")[1].removeprefix("_").split("_")[0] for module in found} <= {own}


@pytest.mark.parametrize("name", NAMES)
def test_every_result_field_says_what_it_is(name):
    source = discovery.folder("analyses").joinpath(f"{name}.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and any("NamedTuple" in ast.dump(b) for b in node.bases):
            assert ast.get_docstring(node)
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and "ndarray" in ast.dump(field.annotation):
                    line = source.splitlines()[field.lineno - 1]
                    assert "#" in line and "(" in line.split("#")[1], line


@pytest.mark.parametrize("name", NAMES)
def test_the_defaults_of_the_command_are_those_of_compute(name):
    module = load(name)
    own = {}
    for function in (module.compute, getattr(module, "evaluate", module.compute)):
        own |= {
            k: p.default
            for k, p in inspect.signature(function).parameters.items()
            if p.default is not inspect.Parameter.empty
        }
    shared = [p for p in module.command.params if p.name in own and p.default is not None]
    for option in shared:
        if isinstance(option.default, int | float | str) and not isinstance(option.default, bool):
            assert option.default == own[option.name], option.name


@pytest.mark.parametrize("name", NAMES)
def test_compute_and_plot_write_print_and_seed_nothing(name):
    source = discovery.folder("analyses").joinpath(f"{name}.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name in ("compute", "evaluate", "plot"):
            assert not impure(node), node.name


def impure(node):
    """Which of the calls inside a syntax tree write, print or seed."""
    calls = (call.func for call in ast.walk(node) if isinstance(call, ast.Call))
    return {getattr(f, "attr", getattr(f, "id", "")) for f in calls} & IMPURE


@pytest.mark.parametrize("line", ["print(1)", "plt.savefig('x')", "torch.manual_seed(0)"])
def test_the_impure_are_recognised(line):
    assert impure(ast.parse(f"def compute():\n    {line}"))
