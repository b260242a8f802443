"""`capsviz new`: each skeleton works as it is written, and its own test passes."""

import runpy

import pytest
from helpers.command_line import run

from capsviz import discovery
from capsviz.commands.new import KINDS


def test_every_skeleton_works_and_its_test_passes(plugin, tmp_path):
    for kind in KINDS:
        words = ["new", kind, f"my_{kind}", "--folder", tmp_path]
        made, again = (run(*words) for _ in range(2))
        assert made.exit_code == 0, made.output
        assert again.exit_code == 2 and "exists" in again.stderr
    discovery._entries.cache_clear()
    for kind in KINDS:
        module = runpy.run_path(str(tmp_path / "tests" / f"test_my_{kind}.py"))
        tests = [one for name, one in module.items() if name.startswith("test_")]
        assert tests
        for passes in tests:
            passes()


def test_an_analysis_that_was_just_written_is_a_command(tmp_path, monkeypatch):
    run("new", "analysis", "mine", "--folder", tmp_path)
    monkeypatch.setenv("CAPSVIZ_PLUGINS", str(tmp_path))
    words = ("--n", 40, "--format", "svg", "--output", tmp_path)
    done = run("mine", "--checkpoint", "digits", *words)
    assert done.exit_code == 0 and "capsule of class" in done.stdout, done.stderr
    assert (tmp_path / "mine-digits-40-images.svg").is_file()
    assert "## What not to conclude" in run("mine", "--explain").stdout
    wrong = run("mine", "--checkpoint", "digits", "--least", 1)
    assert wrong.exit_code == 2 and "'--least': 1 is not in the range" in wrong.stderr


@pytest.mark.parametrize("name", ["two words", "_private"])
def test_what_is_no_name_is_refused_in_a_line(name, tmp_path):
    done = run("new", "routing", name, "--folder", tmp_path / "x")
    assert done.exit_code == 2 and "expected a name of letters" in done.stderr
    assert not (tmp_path / "x").exists()
