"""An analysis of one's own that goes wrong: one line that names its file and the cause."""

import re

import pytest
from helpers.command_line import run

from capsviz.commands.new import TEMPLATES

GOOD = (TEMPLATES / "analysis.txt").read_text(encoding="utf-8")
HALT = """'''Halt.'''
import click

@click.command()
@click.pass_context
def command(context):
    context.exit(7)
"""
FAILS = r"the command 'mine' of {} fails \("
WRONG = {
    "no draw": ("panels = {", "others = {", FAILS + r"NotImplementedError.*\)"),
    "an error inside": ("rows = [", "rows = {}['inside'], [", FAILS + r"KeyError: 'inside', .*\)"),
    "an error later": ("        return f", "        result.x\n        return f",
                       FAILS + r"AttributeError: .*, line \d+\)"),
    "nothing drawn": ("    def verdict", "    draw = lambda *_, **__: None\n\n    def verdict",
                      "`draw` of {} gives a NoneType, expected a Figure"),
    "a dict": ("return Result(", "return {'n': 1} or Result(", "'mine' .* a dict, expected a .*"),
}  # fmt: skip


def mine(tmp_path):
    words = ("mine", "--checkpoint", "digits", "--n", 40, "--format", "svg", "--output")
    return run(*words, tmp_path / "out")


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_an_analysis_is_told_in_a_line(plugin, tmp_path, case):
    old, new, words = WRONG[case]
    path = plugin("analyses/mine.py", GOOD.replace(old, new))
    done = mine(tmp_path)
    assert done.exit_code == 2, done.exception
    words = words.replace("{}", re.escape(str(path)))
    assert re.search(f"^Error: .*{words}$", done.stderr, re.MULTILINE)


def test_an_analysis_that_is_right_is_run_and_can_be_ended(plugin, tmp_path):
    plugin("analyses/mine.py", GOOD)
    assert mine(tmp_path).exit_code == 0
    assert run("mine", "--help").exit_code == 0
    plugin("commands/halt.py", HALT)
    done = run("halt")
    assert (done.exit_code, done.output) == (7, "")


def test_an_error_in_a_part_of_a_folder_is_told_by_its_own_line(plugin, tmp_path):
    plugin("analyses/mine/part.py", "\n\n\nfound = {}\n\ndef look():\n    return found['x']\n")
    text = GOOD.replace("rows = [", "rows = part.look(), [")
    text = text.replace("from typing", "from . import part\nfrom typing")
    plugin("analyses/mine/__init__.py", text)
    assert "fails (KeyError: 'x', line 7 of part.py)" in mine(tmp_path).stderr
