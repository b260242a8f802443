"""The skeletons of `capsviz new` work; errors of user-defined analyses are reported in one line."""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.command_line import run

from capsviz import discovery
from capsviz.commands.new import KINDS, TEMPLATES

GOOD = (TEMPLATES / "analysis.txt").read_text(encoding="utf-8")
HALT = """'''Halt.'''
import click

@click.command()
@click.pass_context
def command(context):
    context.exit(7)
"""
WRONG = {
    "no draw": ("panels = {", "others = {", "Lengths has neither `panels` nor a `draw`"),
    "nothing drawn": ("    def verdict", "    draw = lambda *_, **__: None\n\n    def verdict",
                      "`draw` of {} gives a NoneType, expected a Figure"),
    "a panel": ("axes.bar(", "axes.plot([1], [1, 2]), axes.bar(",
                "the panel 'lengths' cannot be drawn: x and y must have same first dimension.*"),
    "a set": ("images), dataset)", "images), {dataset})", "the field 'dataset', a set: .*"),
    "a dict": ("return Result(", "return {'n': 1} or Result(", "'mine' .* a dict, expected a .*"),
}  # fmt: skip


def mine(tmp_path):
    words = ("mine", "--checkpoint", "digits", "--n", 40, "--format", "svg", "--output")
    return run(*words, tmp_path / "out")


@pytest.mark.parametrize("case", WRONG)
def test_a_faulty_analysis_is_reported_in_one_line(plugin, tmp_path, case):
    old, new, words = WRONG[case]
    path = plugin("analyses/mine.py", GOOD.replace(old, new))
    done = mine(tmp_path)
    assert done.exit_code == 2, done.exception
    assert re.search(f"^Error: .*{words.format(re.escape(str(path)))}$", done.stderr, re.MULTILINE)
    assert not [*tmp_path.glob("out/*")]


def test_printed_commands_can_be_pasted_even_if_the_folder_has_a_space(tmp_path):
    lines = run("new", "dataset", "mine", "--folder", tmp_path / "my plug-ins").stdout.splitlines()
    (words,) = (shlex.split(line) for line in lines if line.startswith("export"))
    assert words[1] == f"CAPSVIZ_PLUGINS={tmp_path / 'my plug-ins'}"
    assert Path(shlex.split(lines[-1])[-1]).is_file()


def test_a_new_analysis_is_a_command_and_a_command_can_exit_with_a_status(plugin, tmp_path):
    run("new", "analysis", "mine", "--folder", tmp_path)
    discovery._entries.cache_clear()
    done = mine(tmp_path)
    assert done.exit_code == 0 and "capsule of class" in done.stdout, done.stderr
    assert (tmp_path / "out/mine-digits-40-images.svg").is_file()
    assert "## What not to conclude" in run("mine", "--explain").stdout
    wrong = run("mine", "--checkpoint", "digits", "--least", 1)
    assert wrong.exit_code == 2 and "'--least': 1 is not in the range" in wrong.stderr
    plugin("commands/halt.py", HALT)
    done = run("halt")
    assert (done.exit_code, done.output) == (7, "")


def test_an_analysis_that_draws_without_a_generator_gives_the_same_again(plugin, tmp_path):
    drawn = "import numpy, torch\n        noise = float(torch.rand(())) + numpy.random.rand()"
    text = GOOD.replace(
        "        lengths = trace(", f"        {drawn}\n        lengths = noise * trace("
    )
    assert text != GOOD
    plugin("analyses/mine.py", text.replace(".lengths.double()", ".lengths.double() / 2"))
    assert mine(tmp_path / "one").stdout == mine(tmp_path / "two").stdout


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        ("{}['inside']", "KeyError: 'inside'"),
        ("(lengths[:2] + lengths[:3])", "RuntimeError: The size"),
    ],
)
def test_an_error_inside_an_analysis_shows_its_traceback(plugin, tmp_path, slip, message):
    path = plugin("analyses/mine.py", GOOD.replace("rows = [", f"rows = {slip}, ["))
    words = [sys.executable, "-m", "capsviz", "mine", "--checkpoint", "digits", "--output", "x"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and f'File "{path}", line ' in done.stderr
    assert message in done.stderr.splitlines()[-1]


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
