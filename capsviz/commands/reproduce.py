"""Remake a published table: train what is missing, print it beside the published figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from capsviz import options

FOLDER = Path("runs/reproduce")


@click.command(
    help=__doc__ + "\n\nTABLE is a file of capsviz/reproductions; without one, they are listed."
)
@click.argument("table", required=False)
@click.option("--show", is_flag=True, help="Only gather what is there; train nothing.")
@click.option("--epochs", type=int, help="Of every run. [default: as published, or 50]")
@click.option("--seeds", default=3, show_default=True, help="Seeds 0, 1, ... of each row.")
@click.option("--batch-size", type=int, help="Images in a training step. [default: 128]")
@click.option(
    "--schedule", default="linear", show_default=True, help="Of the learning rate, as in train."
)
@click.option("--precision", default="auto", show_default=True, help="auto, fp32 or bf16.")
@click.option("--limit", type=int, metavar="N", help="The first N training images, for trials.")
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False),
    help="Of the results. [default: runs/reproduce; with --show, the shipped ones if it is empty]",
)  # fmt: skip
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder that holds the data.")
@options.device
@options.as_json
def command(table, show, seeds, folder, data_dir, device, as_json, **shared):
    """Run and gather one table."""
    from capsviz import discovery, distributed, reproduce, reproductions, tables
    from capsviz.subject import choose_device

    if table is None:
        params = click.get_current_context().command.params
        if given := options.typed(*(param.name for param in params)):
            raise ValueError(f"{given[0]} of which table? {', '.join(reproductions.available())}")
        for name in reproductions.available():
            click.echo(f"{name:12}{discovery.summary('capsviz.reproductions', name)}")
        return
    where, leads, epochs = folder or FOLDER, True, shared["epochs"]
    if show:
        names = ("seeds", "batch_size", "schedule", "precision", "limit", "data_dir", "device")
        if given := options.typed(*names):
            raise ValueError(f"--show trains nothing: drop {', '.join(sorted(given))}")
        if folder is None and not any(where.glob("*/*.json")):
            where = discovery.folder("trained") / "reproduce"
            click.echo(f"no results in {FOLDER}: these are the shipped ones", err=True)
    else:
        plan = reproduce.Plan(folder=where, **shared)
        try:
            with distributed.team(choose_device(device)) as (team, device):
                leads = team.leads
                epochs = reproduce.run(
                    table, seeds, plan, root=data_dir, device=device, team=team,
                    report=_report if leads else lambda line: None,
                )  # fmt: skip
        except KeyboardInterrupt:
            raise click.ClickException(
                f"stopped; finished runs and epochs are in {where}. The same command goes on"
            ) from None
    if not leads:
        return
    header, rows, caption, commands = reproduce.gather(table, where, epochs=epochs)
    if folder is not None or not show:
        paths = tables.write(where / "tables" / table, header, rows, caption)
        click.echo(f"written: {', '.join(map(str, paths))}", err=True)
    if as_json:
        about = {"header": header, "rows": rows, "caption": caption, "commands": commands}
        click.echo(json.dumps(about))
    else:
        click.echo(tables.markdown(header, rows) + "\n" + caption)


def _report(line: str) -> None:
    from tqdm import tqdm

    tqdm.write(line, file=sys.stderr)
