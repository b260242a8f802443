"""Commands of capsviz in this process, as a user types them."""

from click.testing import CliRunner

from capsviz.cli import main


def run(*words, **how):
    """What `capsviz WORDS` ends with: exit code, stdout, stderr; `how` is of click's runner."""
    return CliRunner(**how).invoke(main, [str(word) for word in words], prog_name="capsviz")
