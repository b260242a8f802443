"""One word for one thing in every command: its options, and its examples. By discovery."""

from __future__ import annotations

import re
import shlex

import click
import pytest
from click.testing import CliRunner

from capsviz import discovery
from capsviz.cli import PACKAGES, main

COMMANDS = {name: package for package in PACKAGES for name in discovery.names(package)}


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
