"""Every analysis, by discovery: its parts, its defaults, its freedom from torch and from files."""

import ast
import inspect

import click
import pytest
import torch
from conftest import build_tiny

from capsviz import discovery
from capsviz.tracing import needs, record

NAMES = discovery.names("capsviz.analyses")
IMPURE = {"print", "open", "savefig", "show", "echo", "secho", "manual_seed"}


def load(name):
    return discovery.load("capsviz.analyses", name, what="analysis")


@pytest.mark.parametrize("name", NAMES)
def test_an_analysis_has_all_its_parts(name):
    module = load(name)
    for part in ("compute", "plot", "findings", "caption", "paper", "command"):
        assert callable(getattr(module, part)), part
    assert issubclass(module.Result, tuple) and hasattr(module.Result, "_fields")
    assert isinstance(module.command, click.Command)
    text = " ".join(module.__doc__.split())
    assert "reader should see" in text and ("Do not conclude" in text or "proves nothing" in text)


def sources():
    """The text of every analysis, and the parts of its syntax tree."""
    for name in NAMES:
        text = discovery.source("capsviz.analyses", name).read_text(encoding="utf-8")
        yield name, text, ast.parse(text).body


def test_every_result_field_says_what_it_is():
    for name, source, node in ((n, text, node) for n, text, body in sources() for node in body):
        if isinstance(node, ast.ClassDef) and any("NamedTuple" in ast.dump(b) for b in node.bases):
            assert ast.get_docstring(node), name
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and "ndarray" in ast.dump(field.annotation):
                    line = source.splitlines()[field.lineno - 1]
                    assert "#" in line and "(" in line.split("#")[1], f"{name}: {line}"


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


def test_compute_and_plot_write_print_and_seed_nothing():
    for name, node in ((name, node) for name, _, body in sources() for node in body):
        if isinstance(node, ast.FunctionDef) and node.name in ("compute", "evaluate", "plot"):
            assert not impure(node), f"{name}.{node.name}"


def impure(node):
    """Which of the calls inside a syntax tree write, print or seed."""
    calls = (call.func for call in ast.walk(node) if isinstance(call, ast.Call))
    return {getattr(f, "attr", getattr(f, "id", "")) for f in calls} & IMPURE


@pytest.mark.parametrize("line", ["print(1)", "plt.savefig('x')", "torch.manual_seed(0)"])
def test_the_impure_are_recognised(line):
    assert impure(ast.parse(f"def compute():\n    {line}"))


@pytest.mark.parametrize("name", NAMES)
def test_an_analysis_says_what_it_needs_of_a_network(name):
    known = {*record.PARTS, *record.ALIASES, "grid", "decode", "iterations", "interventions"}
    assert set(load(name).NEEDS) <= known


def test_what_a_network_lacks_is_told_before_anything_is_computed(monkeypatch):
    model = build_tiny(reconstruction_weight=0.0)
    model.look = None  # nothing may be computed
    with pytest.raises(ValueError, match="has no decoder: capsviz perturb needs"):
        needs.require(model, load("perturb").NEEDS, "capsviz perturb")
    with pytest.raises(ValueError, match="has no capsules: capsviz routing needs"):
        needs.require(torch.nn.Linear(2, 2), load("routing").NEEDS, "capsviz routing")
    needs.require(torch.nn.Linear(2, 2), load("sweep").NEEDS, "capsviz sweep")


def test_how_many_training_runs_there_are_is_said_by_the_command_alone():
    """An analysis does not know: its result may be of several (`--seeds-of`)."""
    said = [f"{path}: {text}" for path, text in strings() if counts_runs(text)]
    assert not said, "drop it: `cli.analysis` adds the line about training runs"


def strings():
    """Every text that is no docstring, of every file of every analysis."""
    for name in NAMES:
        first = discovery.source("capsviz.analyses", name)
        for path in first.parent.rglob("*.py") if first.name == "__init__.py" else [first]:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            alone = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
            texts = (n for n in ast.walk(tree) if isinstance(getattr(n, "value", None), str))
            yield from ((f"{name}/{path.name}", n.value) for n in texts if id(n) not in alone)


def counts_runs(text):
    """Whether a text says how many training runs there were."""
    return "one training run" in text or "this training run" in text


def test_texts_that_count_runs_are_recognised():
    assert counts_runs("one training run: intervals are over images")
    assert not counts_runs("A RUN is the folder of a training run") and len(list(strings())) > 500
