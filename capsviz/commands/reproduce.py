"""Remake a published table: train what is missing, print it beside the published figures."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from capsviz.cli import options, tasks, writing

EXAMPLES = """
capsviz reproduce iterations --show  # 3 s
capsviz reproduce iterations --epochs 2 --seeds 1  # hours, want a GPU
"""

FOLDER = Path("runs/reproduce")


@click.command(
    help=__doc__
    + "\n\nTABLE is a file of capsviz/experiments/reproductions; without one, they are listed."
)
@click.argument("table", required=False)
@click.option("--show", is_flag=True, help="Only gather what is there; train nothing.")
@click.option("--epochs", type=int, help="Length of every run. [default: as published, or 50]")
@click.option("--seeds", default=3, show_default=True, help="Seeds 0, 1, ... of each row.")
@click.option(
    "--rows", metavar="A,B", callback=lambda context, option, value: _names(value),
    help="Names of runs, as the results are called without their seed. [default: all]",
)  # fmt: skip
@tasks.option("rows times seeds")
@click.option("--batch-size", type=int, help="Images in a training step. [default: 128]")
@click.option(
    "--schedule",
    default="linear",
    show_default=True,
    help="How the learning rate falls, as in train.",
)
@click.option("--precision", default="auto", show_default=True, help="auto, fp32 or bf16.")
@click.option("--limit", type=int, metavar="N", help="The first N training images, for trials.")
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False),
    help="Where the results lie. [default: runs/reproduce; with --show, the shipped if empty]",
)  # fmt: skip
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder that holds the data.")
@options.device
@writing.as_json
def command(table, show, seeds, rows, task, folder, data_dir, device, as_json, **shared):
    """Run and gather one table."""
    from capsviz import discovery
    from capsviz.experiments import gathering, reproduce, reproductions
    from capsviz.inputs.opening import choose_device
    from capsviz.results import tables
    from capsviz.training import distributed

    if table is None:
        params = click.get_current_context().command.params
        if typed := options.typed(*(param.name for param in params)):
            raise ValueError(f"{typed[0]} of which table? {', '.join(reproductions.available())}")
        for name in reproductions.available():
            click.echo(f"{name:12}{discovery.summary('capsviz.experiments.reproductions', name)}")
        return
    where, leads, epochs = folder or FOLDER, True, shared["epochs"]
    if show:
        names = (
            "seeds",
            "rows",
            "task",
            "batch_size",
            "schedule",
            "precision",
            "limit",
            "data_dir",
            "device",
        )
        if typed := options.typed(*names):
            raise ValueError(f"--show trains nothing: drop {', '.join(sorted(typed))}")
        if folder is not None and not folder.is_dir():
            raise FileNotFoundError(f"there is no folder '{folder}'")
        if folder is None and not any(where.glob("*/*.json")):
            where = discovery.folder("capsviz.trained") / "reproduce"
            click.echo(f"no results in {FOLDER}: these are the shipped ones", err=True)
    else:
        plan = reproduce.Plan(folder=where, **shared)
        if tasks.is_empty(task, len(reproduce.runs(table, seeds, plan, rows))):
            return
        try:
            with distributed.team(choose_device(device)) as (team, device):
                leads = team.leads
                epochs = reproduce.run(
                    table, seeds, plan, root=data_dir, device=device, team=team,
                    report=_report if leads else lambda line: None, rows=rows, task=task,
                )  # fmt: skip
        except KeyboardInterrupt:
            raise click.ClickException(
                f"stopped; finished runs and epochs are in {where}. The same command goes on"
            ) from None
    if not leads:
        return
    header, lines, caption, commands = gathering.gather(table, where, epochs=epochs)
    if folder is not None or not show:
        paths = tables.write(where / "tables" / table, header, lines, caption)
        click.echo(f"written: {', '.join(map(str, paths))}", err=True)
    if as_json:
        about = {"header": header, "rows": lines, "caption": caption, "commands": commands}
        click.echo(writing.to_json(about))
    else:
        click.echo(tables.markdown(header, lines) + "\n" + caption)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text else ()


def _report(line: str) -> None:
    from tqdm import tqdm

    tqdm.write(line, file=sys.stderr)
