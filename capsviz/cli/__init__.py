"""The command line: one command per file in `capsviz/commands` and `analyses`."""

import atexit
import contextlib
import math
import os
import re
import sys
from copy import copy
from pathlib import Path

import click

from capsviz import __version__, discovery
from capsviz import analysis as contract
from capsviz.nn import allocator

PACKAGES = ("capsviz.commands", "capsviz.analyses")
GROUPS = {  # sections of the help, each in the order of use
    "Look inside": (
        "predict", "routing", "rotate", "reconstruct", "perturb", "primary", "view", "tsne",
        "transplant", "parse-tree", "binding", "importance", "faithfulness", "probes",
        "equivariance", "segment",
    ),
    "Robustness": ("robustness", "sweep", "affine", "affnist", "corrupt", "parts", "detect",
                   "attack"),
    "Compare and publish": ("evaluate", "compare", "figures", "report", "redraw", "explore",
                            "export"),
    "Train": ("data", "train", "primary-train", "curves", "reproduce"),
    "Your own network": ("check", "describe", "new"),
}  # fmt: skip
OUT_OF_MEMORY = re.compile("out of memory|allocate memory|enough memory")  # PyTorch's words
OTHERS = "More"  # section of plug-ins, and of commands without a group


class RequestError(click.ClickException):
    """An invalid request by the user: one line, exit status 2."""

    exit_code = 2


@contextlib.contextmanager
def errors():
    """Turn library errors into one line: exit status 2 for an invalid request, 1 for a failure.

    Any other error is a crash, and keeps its traceback.
    """
    expected = ValueError, FloatingPointError, OSError, MemoryError, ImportError, RuntimeError
    try:
        yield
    except (click.exceptions.Exit, click.Abort, BrokenPipeError):  # click handles these
        raise
    except expected as error:
        line = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, ValueError) and not isinstance(error, FloatingPointError):
            raise RequestError(line) from error
        if isinstance(error, RuntimeError) and not OUT_OF_MEMORY.search(line):
            raise
        if isinstance(error, OSError) and error.strerror and error.filename:
            line = f"{error.filename}: {error.strerror}"
        raise click.ClickException(line) from error


def _usable(option: str, value):
    """Return a value with ~ expanded in paths; a usage error for a number that is not finite."""
    if isinstance(value, tuple):
        return tuple(_usable(option, one) for one in value)
    if isinstance(value, float) and not math.isfinite(value):
        raise click.BadParameter(f"expected a finite number, got {value}", param_hint=option)
    return value.expanduser() if isinstance(value, Path) else value


def _with_usable(callback, params):
    """Return the callback of a command, called with `_usable` values."""
    flags = {param.name: f"'{param.opts[0]}'" for param in params}
    return lambda **values: callback(**{k: _usable(flags[k], v) for k, v in values.items()})


def _command(package: str, name: str, module) -> click.Command:
    """Return the command of a module or of its analyses, with examples; ValueError for neither."""
    examples, command = getattr(module, "EXAMPLES", ""), getattr(module, "command", None)
    if package == PACKAGES[1]:
        analyses = contract.of(name)
        examples = examples or "\n".join(one.examples for one in analyses)
        if command is None and analyses:
            from capsviz.cli.analysis import command_of

            command = command_of(name)
    if not isinstance(command, click.Command):
        raise ValueError(
            f"'{name.replace('_', '-')}' of {module.__file__} offers no command: expected a class "
            "derived from capsviz.analysis.Analysis, or a click command called `command`"
        )
    lines = [line.partition("#") for line in examples.splitlines() if line.strip()]
    rows = [f"  {words.strip():52}  {time.strip()}".rstrip() for words, _, time in lines]
    title = "Examples, with their time on two CPU cores:"
    command.epilog = "\n".join(["\b", title, *rows]) if rows else None
    return command


def _all_names() -> list[str]:
    """Return the names of all commands and analyses; ValueError for a name that is in both."""
    names = [name for package in PACKAGES for name in discovery.names(package)]
    for name in names:
        if names.count(name) > 1:
            places = " and ".join(str(discovery.source(package, name)) for package in PACKAGES)
            raise ValueError(f"a command and an analysis are called '{name}': {places}")
    return names


class Commands(click.Group):
    """A group that lists commands without importing them, and shortens errors to one line."""

    def main(self, *args, **extra):
        """Run as click does, with safe output streams.

        A character that the terminal cannot encode becomes a question mark. A closed stream is
        opened on the null device: otherwise the next file would get its number.
        """
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:
                setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
            if hasattr(stream := getattr(sys, name), "reconfigure"):
                stream.reconfigure(errors="replace")
        os.environ["MPLBACKEND"] = "agg"  # the backend of a notebook or desktop may be missing here
        return super().main(*args, **extra)

    def make_context(self, *args, **extra):
        """Make the context as click does; report plug-ins that cannot be listed in one line."""
        with errors():
            _all_names()
            return super().make_context(*args, **extra)

    def list_commands(self, context):
        """Return the names of all commands."""
        return [name.replace("_", "-") for name in _all_names()]

    def get_command(self, context, name):
        """Import one command; None for an unknown name."""
        stem = name.replace("-", "_")
        package = next((one for one in PACKAGES if stem in discovery.names(one)), None)
        if package is None:
            return None
        command = copy(_command(package, stem, discovery.load(package, stem, what="command")))
        if command.callback is not None:
            command.callback = _with_usable(command.callback, command.params)
        return command

    def resolve_command(self, context, args):
        """Resolve as click does; for an unknown command, suggest the nearest name."""
        if self.get_command(context, args[0]) is None:
            known = self.list_commands(context)
            raise click.UsageError(discovery.unknown("command", args[0], known, plugins=True))
        return super().resolve_command(context, args)

    def format_commands(self, context, formatter):
        """Write the commands by `GROUPS`, each with the first line of its docstring."""
        texts = {
            name.replace("_", "-"): discovery.summary(package, name)
            for package in PACKAGES
            for name in discovery.names(package)
        }
        grouped = {name for names in GROUPS.values() for name in names}
        others = tuple(name for name in texts if name not in grouped)
        for title, names in {**GROUPS, OTHERS: others}.items():
            if rows := [(name, texts[name]) for name in names if name in texts]:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def invoke(self, context):
        """Run a command; report a user's mistake in one line, without a traceback."""
        allocator.keep_freed_memory()
        with errors():
            return super().invoke(context)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="capsviz")
def main():
    """Look inside Capsule Networks, and measure how they work."""


def run() -> None:
    """Run the command line as a program, and end the process without destructors.

    Functions registered with `atexit` run. PyTorch's destructors would take 0.4 s and 0.1 GB, and
    abort the process while `capsviz explore` still computes a request. Under a profiler or a
    debugger, the process ends normally.
    """
    try:
        main(prog_name="capsviz")
    except SystemExit as end:
        status = end.code or 0
        if not isinstance(status, int) or sys.getprofile() or sys.gettrace():
            raise
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # the reader has closed the stream
                stream.flush()
        os._exit(status)
