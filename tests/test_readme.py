"""The README says what is true: its tables are made from the cards, its examples run."""

import re
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner

from benchmarks import readme
from capsviz import checkpoint, discovery, figures
from capsviz.cli import main
from capsviz.nn.class_capsules import ClassCapsules
from capsviz.nn.routing import Routing

TEXT = (discovery.root() / "README.md").read_text(encoding="utf-8")


PLUGINS = {"routing/sharp": "def route", "data/bars": "def load", "analyses/mean_lengths": "plot"}


def block(part):
    """The README's Python block that holds `part`."""
    return next(b for b in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if part in b)


def example(part):
    """That block, executed."""
    module = {}
    exec(block(part), module)
    return module


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """The README's own files in a folder that `$CAPSVIZ_PLUGINS` names."""
    for name, part in PLUGINS.items():
        path = tmp_path / f"mine/{name}.py"
        assert f"{name.partition('/')[2]}.py" in TEXT
        path.parent.mkdir(parents=True)
        path.write_text(block(part))
    monkeypatch.setenv(discovery.PLUGINS, str(tmp_path / "mine"))
    return tmp_path


def run(*words):
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_generated_parts_are_up_to_date():
    assert readme.fill(TEXT, run=False) == TEXT, "run `make readme`"


def test_the_routing_of_the_readme_obeys_the_contract():
    found = example("def route")["route"](torch.rand(2, 3, 5, 7), iterations=2)
    assert isinstance(found, Routing) and found.poses.shape == (2, 2, 5, 7)
    assert torch.allclose(found.couplings.sum(3), torch.ones(2, 2, 3))


def test_the_routing_of_the_readme_runs_in_the_layer(monkeypatch):
    module = SimpleNamespace(route=example("def route")["route"])
    monkeypatch.setattr("capsviz.nn.routing.get", lambda name: module)
    layer = ClassCapsules(3, 5, child_dimensions=4, parent_dimensions=7)
    assert layer(torch.rand(2, 3, 4)).shape == (2, 5, 7)


def test_the_data_set_of_the_readme_obeys_the_contract():
    part = example("def load")["load"]("test")
    assert part.image_shape == (1, 28, 28) and len(part) == 200
    lit = (part.images[:, 0] > 0).sum(2).amax(1)
    assert torch.equal(lit == 28, part.labels == 1)


def test_the_analysis_of_the_readme_is_a_command(plugins):
    line = "How long is the capsule of each true class?"
    assert re.search(rf"mean-lengths +{re.escape(line)}", run("--help"))
    said = run("mean-lengths", "--checkpoint", "digits", "--output", plugins, "--format", "png")
    assert "shortest: class" in said and "n = 360" in said
    result, _ = figures.read_result(plugins / "mean-lengths.json")
    assert result.n == 360 and result.lengths.min() > 0.5
    assert (plugins / "mean-lengths.png").stat().st_size > 5000


def test_the_routing_and_the_data_set_of_the_readme_are_trained_with(plugins):
    small = ["--types", 2, "--channels", 8, "--epochs", 1, "--output", plugins / "run"]
    assert "test accuracy" in run("train", "--dataset", "bars", "--routing", "sharp", *small)
    card = checkpoint.load(plugins / "run").card
    assert card["results"]["test"]["n"] == 200 and card["dataset"]["name"] == "bars"
    assert "200 images of bars test" in run("evaluate", "--checkpoint", plugins / "run")


def test_the_files_that_the_readme_names_exist():
    for name in re.findall(r"\]\(([^)#:]+)\)|`((?:capsviz|analyses|tests|trained)/\S+?)`", TEXT):
        path = next(filter(None, name))
        if "NAME" not in path and "*" not in path:
            assert (discovery.root() / path).exists(), path
