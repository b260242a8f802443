"""An analysis of one's own that goes wrong: one line that names its file and the cause."""

import re

import pytest
from click.testing import CliRunner

from capsviz.cli import main

GOOD = '''"""An analysis of one's own."""
from typing import NamedTuple

from matplotlib.figure import Figure

from capsviz.analysis import Analysis


class Result(NamedTuple):
    n: int


class Mine(Analysis):
    Result = Result

    def draw(self, result, *, width=7.16, part=""):
        figure = Figure((width, 1))
        return figure

    def caption(self, result, part=""):
        return "A caption."

    def verdict(self, result):
        return "Found."

    def measure(self, network):
        result = Result(1)
        return result
'''
HALT = """'''Halt.'''
import click

@click.command()
@click.pass_context
def command(context):
    context.exit(7)
"""
FAILS = r"the command 'mine' of {} fails \("
WRONG = {
    "no draw": ("def draw", "def plots", FAILS + r"NotImplementedError.*\)"),
    "an error inside": ("= Result(1)", "= {}['inside']", FAILS + r"KeyError: 'inside', line 27\)"),
    "an error later": ('"Found."', "result.found", FAILS + r"AttributeError: .*, line 24\)"),
    "nothing drawn": (
        "        return figure",
        "",
        "`draw` of {} gives a NoneType, expected a Figure",
    ),
    "a dict": ("= Result(1)", "= {'n': 1}", "'mine' .* a dict, expected a .*"),
}


def run(tmp_path):
    words = ["mine", "--checkpoint", "digits", "--format", "svg", "--output", tmp_path / "out"]
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_an_analysis_is_told_in_a_line(plugin, tmp_path, case):
    old, new, words = WRONG[case]
    path = plugin("analyses/mine.py", GOOD.replace(old, new))
    done = run(tmp_path)
    assert done.exit_code == 2, done.exception
    words = words.replace("{}", re.escape(str(path)))
    assert re.search(f"^Error: .*{words}$", done.stderr, re.MULTILINE)


def test_an_analysis_that_is_right_is_run_and_can_be_ended(plugin, tmp_path):
    plugin("analyses/mine.py", GOOD)
    assert run(tmp_path).exit_code == 0
    assert CliRunner().invoke(main, ["mine", "--help"]).exit_code == 0
    plugin("commands/halt.py", HALT)
    done = CliRunner().invoke(main, ["halt"])
    assert (done.exit_code, done.output) == (7, "")


def test_an_error_in_a_part_of_a_folder_is_told_by_its_own_line(plugin, tmp_path):
    plugin("analyses/mine/part.py", "\n\n\nfound = {}\n\ndef look():\n    return found['x']\n")
    text = GOOD.replace("= Result(1)", "= part.look()")
    text = text.replace("from typing", "from . import part\nfrom typing")
    plugin("analyses/mine/__init__.py", text)
    assert "fails (KeyError: 'x', line 7 of part.py)" in run(tmp_path).stderr
