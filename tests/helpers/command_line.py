"""Commands of capsviz in this process, as a user types them."""

import re

from click.testing import CliRunner

from capsviz.cli import main


def run(*words, **how):
    """What `capsviz WORDS` ends with: exit code, stdout, stderr; `how` is of click's runner."""
    return CliRunner(**how).invoke(main, [str(word) for word in words], prog_name="capsviz")


def fine(done):
    """What a command ended with, which must have ended well."""
    assert done.exit_code == 0, done.output
    return done


def refused(done, *words, status=(2,), usage=False):
    """Assert one line on stderr, maybe below click's usage, that holds the words, and no more."""
    assert done.exit_code in status, (done.exit_code, done.output, done.exception)
    assert isinstance(done.exception, SystemExit), done.exception
    lines = done.stderr.strip().splitlines()
    (line,) = [one for one in lines if not (usage and re.match("Usage: |Try |$", one))]
    assert line.startswith("Error: ") and all(word in line for word in words), (words, line)
    assert done.stdout == ""
