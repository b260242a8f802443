"""Time whole commands with the shipped `mnist`, each in a new process.

    python -m benchmarks.durations [NAME]...

Each runs once in a process of its own, as a newcomer would type it; what is measured is added to
results/durations.json.
"""

from __future__ import annotations

import shlex
import tempfile
import time

import click

from benchmarks import read, write
from benchmarks.clock import about, python

COMMANDS = (  # without their output
    "transplant --n 1000",
    "faithfulness --n 200",
    "parse-tree --n 1000",
    "importance --n 200",
    "equivariance --law --n 200",
    "probes --n 1000",
    "parts --n 200",
    "figures",
)


@click.command(help=__doc__.partition("\n")[0])
@click.argument("names", nargs=-1)
def command(names):
    """Time the commands, or those that begin with one of the names."""
    for words in COMMANDS:
        if names and words.split()[0] not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            python("-m", "capsviz", *shlex.split(words), "--output", folder, "--force")
            seconds = round(time.perf_counter() - start, 1)
        click.echo(f"capsviz {words}: {seconds} s", err=True)
        write("durations", read("durations") | {words: {"seconds": seconds, "about": about()}})


if __name__ == "__main__":
    command()
