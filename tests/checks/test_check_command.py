"""`capsviz check`: what it prints, what it writes, and its exit status."""

import json
from pathlib import Path

import pytest
from helpers import command_line

FILE = """
from helpers import public_layouts as foreign_networks
from helpers import planted_bugs as planted
from helpers.planted_bugs import loss, digits, Moved, AcrossPlaces, Correct, Saturated

def heads():
    return foreign_networks.TwoHeads()

def on_gpu():
    return Correct().to("cuda")
"""
LOUD = """
from helpers.planted_bugs import Correct, digits, loss

class Loud(Correct):
    def forward(self, *values):
        print("a pass")
        return super().forward(*values)

def loud():
    print("built")
    return Loud()

def loud_loss(output, images, labels):
    print("a loss")
    return loss(output, images, labels)

def loud_digits():
    print("data")
    return digits()

print("imported")
"""
SIZE = ["--image-shape", 1, 11, 13, "--classes", 5]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent))
    (tmp_path / "net.py").write_text(FILE)
    (tmp_path / "loud.py").write_text(LOUD)
    return lambda *args: command_line.run("check", *args)


def test_a_correct_network_ends_with_status_0(run):
    result = command_line.fine(run("--checkpoint", "digits"))
    assert "29 PASS" in result.stdout.splitlines()[-1] and "FAIL" not in result.stdout


def test_a_failure_ends_with_status_1_and_says_how_to_fix_it(run, tmp_path):
    result = run("--network", "net.py:AcrossPlaces", *SIZE, "--markdown", "report.md")
    assert result.exit_code == 1
    assert "FAIL    mixed_positions: " in result.stdout and "fix:" in result.stdout
    page = (tmp_path / "report.md").read_text()
    assert page.startswith("# net-AcrossPlaces") and "## A primary capsule mixes" in page
    (tmp_path / "report.md").write_text("mine")
    again = run("--network", "net.py:AcrossPlaces", *SIZE, "--markdown", "report.md")
    assert again.exit_code == 2 and (tmp_path / "report.md").read_text() == "mine"


def test_loss_data_and_a_new_network_are_taken_from_functions(run):
    result = run(
        "--network", "net.py:Correct", *SIZE, "--loss", "net.py:loss", "--new", "net.py:Saturated",
        "--train-data", "net.py:digits", "--test-data", "net.py:Moved", "--json",
    )  # fmt: skip
    report = json.loads(result.stdout)
    failing = {one["check"] for one in report["verdicts"] if one["status"] == "FAIL"}
    assert failing == {"saturation", "random_test_images"}
    assert not any(one["status"] == "SKIPPED" for one in report["verdicts"])


def test_what_their_code_prints_is_not_in_the_report(run):
    result = run(
        "--network", "loud.py:loud", *SIZE, "--loss", "loud.py:loud_loss", "--test-data",
        "loud.py:loud_digits", "--json",
    )  # fmt: skip
    assert json.loads(result.stdout)["exit_status"] == 0
    for words in ("imported", "built", "a pass", "a loss", "data"):
        assert words in result.stderr.splitlines()


def test_a_function_that_puts_the_network_on_a_gpu_builds_it_here(run):
    result = run("--network", "net.py:on_gpu", *SIZE, "--json")
    assert result.exit_code == 0 == json.loads(result.stdout)["exit_status"], result.output


def test_one_of_several_softmaxes_is_named(run):
    args = ["--network", "net.py:heads", "--image-shape", 1, 12, 10, "--classes", 3]
    assert "say which one by pair=" in run(*args).stdout
    result = run(*args, "--pair", "right", "--iterations", 3, "--json")
    verdicts = {one["check"]: one for one in json.loads(result.stdout)["verdicts"]}
    assert verdicts["wrong_iterations"]["numbers"] == {"made": 3, "declared": 3}
