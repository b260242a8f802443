"""One word for one thing in every command: options, their help, examples, errors. By discovery."""

from __future__ import annotations

import ast
import re
import shlex

import click
import pytest
from click.testing import CliRunner

from capsviz import discovery
from capsviz.cli import PACKAGES, main

COMMANDS = {name: package for package in PACKAGES for name in discovery.names(package)}
STRANGERS = {"--no-deps", "--help"}  # words with dashes that are of other programs


def command(name):
    return main.get_command(None, name)


def help_text(name):
    """The names of a command's options, as its help shows them."""
    params = [p for p in command(name).params if isinstance(p, click.Option)]
    return {text for option in params for text in (*option.opts, *option.secondary_opts)}


@pytest.mark.parametrize("name", COMMANDS)
def test_what_draws_a_figure_can_be_told_a_venue_settings_a_font_and_to_overwrite(name):
    names = help_text(name)
    assert ("--venue" in names) == ("--width" in names)
    if "--venue" in names:
        assert {"--width", "--rc", "--font", "--force"} <= names
    elif COMMANDS[name] == "capsviz.analyses":
        raise AssertionError(f"{name} draws figures, and takes no --venue")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_that_is_taken_and_a_time(name):
    text = CliRunner().invoke(main, [name.replace("_", "-"), "--help"]).output
    lines = text.partition("Examples, with their time on two CPU cores:\n")[2].splitlines()
    lines = [line for line in lines if line.strip()]
    assert lines, "no example"
    for line in lines:
        example, time = re.fullmatch(r"\s+(capsviz .+?)\s{2,}(.+)", line).groups()
        assert re.search(r"\d+ (s|min)\b|hour", time), line
        _, called, *words = shlex.split(example)
        assert called.replace("-", "_") == name, line
        command(name).make_context(called, words)  # no usage error


@pytest.mark.parametrize("name", COMMANDS)
def test_errors_name_only_options_that_the_command_has(name):
    source = discovery.source(COMMANDS[name], name)
    files = source.parent.glob("*.py") if source.name == "__init__.py" else [source]
    known = help_text(name) | STRANGERS
    for path in files:
        if path.name == "train.py" and name == "primary":  # a program of its own
            continue
        for text in messages(ast.parse(path.read_text(encoding="utf-8"))):
            own = re.sub(r"`capsviz [^`]*`?", "", text)  # without what names another command
            for word in re.findall(r"(?<![\w-])--[a-z][a-z-]+", own):
                assert word in known, f"{path.name}: {text}"


def messages(tree):
    """The texts of what is raised."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            for part in ast.walk(node.exc):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value
