"""The image that is shown: class 2, or the last of fewer, and what is said of one not there."""

from dataclasses import replace

import pytest
from helpers.command_line import run
from helpers.plain_capsnet import Foreign

from capsviz.cli import options
from capsviz.inputs.opening import Inputs


@pytest.fixture
def odd(embedded, monkeypatch, blank):
    """The embedded digits told apart as even and odd, and a network for them."""
    part = embedded("test")
    part = replace(part, labels=part.labels % 2, classes=("even", "odd"), name="parity")
    inputs = Inputs(Foreign(classes=2).eval(), part, None)
    monkeypatch.setattr(options, "open_inputs", lambda chosen, **how: inputs)
    monkeypatch.setattr(options, "open_networks", lambda chosen, **how: [inputs])
    return inputs


COMMANDS = {
    "rotate": ("--step", 90, "--size", 200),
    "perturb": ("--n", 2),
    "figures": ("--only", "rotate", "--n", 2),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_of_two_classes_the_last_one_is_shown(odd, name, tmp_path):
    words = [name, *COMMANDS[name], "--format", "svg", "--output", tmp_path]
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert list(tmp_path.glob("*-parity-1-*.json"))


@pytest.mark.parametrize("name", [*COMMANDS, "report"])
def test_a_class_that_is_not_there_is_refused_with_its_option(odd, name, tmp_path):
    words = [name, "--digit", "2", "--n", "2"] if name != "rotate" else [name, "--digit", "2"]
    done = run(*words, "--output", tmp_path / "out")
    assert done.exit_code == 2
    assert "--digit: parity has no class 2, expected 0 to 1, or even, odd\n" in done.stderr
