"""Measure robustness to affine maps, rotations, corruptions and attacks, in one table.

Each is measured by its own command, which writes its figures and numbers to the same folder.
Existing results are reused.
"""

import contextlib
import sys
from pathlib import Path
from typing import Any

import click

from capsviz.cli import naming, options, writing
from capsviz.commands.compare import publish

ANALYSES = ("affine", "sweep", "corrupt", "attack")
COLUMNS = ("data", "runs", "accuracy", "inside", "outside", "rotated", "corrupted", "attacked",
           "parameters")  # fmt: skip
EXAMPLES = """
capsviz robustness digits digits-uniform --n 60                 # about 30 s
capsviz robustness mnist mnist-attention mnist-resnet --n 1000  # about 18 min
"""


@click.command(help=__doc__)
@options.number("Number of test images. [default: that of each command]")
@writing.as_json
@writing.figure
@options.networks
@click.pass_context
def command(context, n, as_json, figure, networks):
    """Measure missing results, then print, write and draw one table."""
    from capsviz.results import leaderboard

    folder = figure["output"]
    naming.try_folder(folder)
    measured = [_measured(context, name, folder) for name in ANALYSES]
    table, last = leaderboard.beside(measured), measured[-1][0]
    base, names = f"robustness-{last.dataset}-{last.n}-images", [row.network.name for row in table]
    stem = folder / naming.stem(base, names, naming.changed(context))
    publish(table, COLUMNS, stem, figure["formats"], figure, as_json=as_json)


def _measured(context: click.Context, name: str, folder: Path) -> tuple[Any, dict]:
    """Return the stored result of an analysis for these networks; run the analysis if needed."""
    from capsviz import results

    assert context.parent is not None and isinstance(context.parent.command, click.Group)
    other = context.parent.command.get_command(context, name)
    assert other is not None
    inner = other.make_context(name, [], parent=context)
    own = context.params.keys() & inner.params.keys() - {"as_json"}
    inner.params |= {key: context.params[key] for key in own}
    force = inner.params["force"]
    path = None if force else naming.repeated(folder, name, naming.identity(inner))
    if path is None:
        with contextlib.redirect_stdout(sys.stderr):
            other.invoke(inner)
        path = naming.repeated(folder, name, naming.identity(inner))  # it may have downloaded data
        assert path is not None
    else:
        writing.line(f"{name}: reusing {path}")
    return results.read_result(path)
