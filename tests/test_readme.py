"""The README says what is true: its tables are made from the cards, its examples run."""

import re
from types import SimpleNamespace

import click
import torch

from benchmarks import readme
from capsviz import checkpoint, discovery
from capsviz.layers import ClassCapsules
from capsviz.routing import Routing

TEXT = (discovery.folder("") / "README.md").read_text(encoding="utf-8")


def example(part):
    """The README's Python block that holds `part`, executed."""
    block = next(b for b in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if part in b)
    module = {}
    exec(block, module)
    return module


def test_generated_parts_are_up_to_date():
    assert readme.fill(TEXT, run=False) == TEXT, "run `make readme`"


def test_the_routing_of_the_readme_obeys_the_contract():
    found = example("def route")["route"](torch.rand(2, 3, 5, 7), iterations=2)
    assert isinstance(found, Routing) and found.poses.shape == (2, 2, 5, 7)
    assert torch.allclose(found.couplings.sum(3), torch.ones(2, 2, 3))


def test_the_routing_of_the_readme_runs_in_the_layer(monkeypatch):
    module = SimpleNamespace(route=example("def route")["route"])
    monkeypatch.setattr("capsviz.routing.get", lambda name: module)
    layer = ClassCapsules(3, 5, child_dimensions=4, parent_dimensions=7)
    assert layer(torch.rand(2, 3, 4)).shape == (2, 5, 7)


def test_the_data_set_of_the_readme_obeys_the_contract():
    part = example("def load")["load"]("test")
    assert part.image_shape == (1, 28, 28) and len(part) == 200
    lit = (part.images[:, 0] > 0).sum(2).amax(1)
    assert torch.equal(lit == 28, part.labels == 1)


def test_the_analysis_of_the_readme_runs(digits):
    module = example("def compute")
    names = list("0123456789")
    found = module["compute"](checkpoint.load("digits"), *digits, classes=names)
    assert found.n == 360 and found.lengths.min() > 0.5
    assert "shortest: class" in module["findings"](found)
    module["plot"](found)
    assert isinstance(module["command"], click.Command)


def test_the_files_that_the_readme_names_exist():
    for name in re.findall(r"\]\(([^)#:]+)\)|`((?:capsviz|analyses|tests|trained)/\S+?)`", TEXT):
        path = next(filter(None, name))
        if "NAME" not in path and "*" not in path:
            assert (discovery.folder("") / path).exists(), path
