"""Reproduce a published table or a finding: train or measure, and print the numbers."""

import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import click

from capsviz.cli import options, writing

EXAMPLES = """
capsviz reproduce iterations --show  # 3 s
capsviz reproduce 3  # 20 s
capsviz reproduce 1 --show  # 3 s
capsviz reproduce iterations --epochs 2 --seeds 1  # hours; use a GPU
"""

FOLDER = Path("runs/reproduce")
PRINT = ("compare", "reproduce")  # commands that write no files
OF_TRAINING = ("batch_size", "schedule", "precision", "limit", "data_dir", "device")


@click.command(
    help=__doc__
    + "\n\nNAME is a table or the number of a finding. A finding is measured with shipped weights; "
    "for runs whose weights are not shipped, the training commands are printed. Without NAME, all "
    "tables and findings are listed."
)
@click.argument("table", metavar="[NAME]", required=False)
@click.option(
    "--show", is_flag=True,
    help="Train nothing: show existing results of a table, the commands of a finding."
)  # fmt: skip
@click.option("--epochs", type=int, help="Epochs of every run. [default: as published, or 50]")
@click.option("--seeds", default=3, show_default=True, help="Number of seeds for each row.")
@click.option(
    "--rows", metavar="A,B", default="",
    help="Rows by the file names of their results, without the seed. [default: all]"
)  # fmt: skip
@options.task("rows times seeds")
@click.option("--batch-size", type=int, help="Images in a training step. [default: each row's]")
@click.option(
    "--schedule",
    default="linear",
    show_default=True,
    help="How the learning rate falls, as for train.",
)
@click.option("--precision", default="auto", show_default=True, help="auto, fp32 or bf16.")
@click.option("--limit", type=int, metavar="N", help="Train on the first N images only.")
@options.path_option(
    "--folder", folder=True,
    help="Folder of the results. [default: runs/reproduce; with --show, the shipped ones if empty]"
)  # fmt: skip
@options.path_option("--data-dir", help="Folder that holds the data.")
@options.device
@writing.as_json
def command(table, show, seeds, rows, task, folder, data_dir, device, as_json, **shared):
    """Train or measure the rows of one table, and print it."""
    from capsviz import discovery
    from capsviz.experiments import reproduce, reproduced, reproductions
    from capsviz.files import locked
    from capsviz.inputs.opening import choose_device
    from capsviz.results import tables
    from capsviz.training import distributed

    if table is None:
        params = click.get_current_context().command.params
        if typed := options.typed(*(param.name for param in params)):
            known = ", ".join(reproductions.available())
            raise ValueError(f"{typed[0]} without a table: expected one of {known}")
        for name in reproductions.available():
            click.echo(f"{name:12}{reproductions.get(name).title}")
        for number, one in enumerate(reproduced.FINDINGS, 1):
            click.echo(f"{number:<12}{one.claim}")
        return
    if table[:1].isdigit():
        if typed := options.typed("epochs", "seeds", "rows", "task", "as_json", *OF_TRAINING):
            raise ValueError(f"a finding takes --show and --folder alone: drop {', '.join(typed)}")
        _measure(table, folder or FOLDER / f"finding-{table}", show=show)
        return
    rows = tuple(name.strip() for name in rows.split(",") if name)
    where, leads, epochs = folder or FOLDER, True, shared["epochs"]
    if show:
        if typed := options.typed("seeds", "rows", "task", *OF_TRAINING):
            raise ValueError(f"--show trains nothing: drop {', '.join(sorted(typed))}")
        if folder is not None and not folder.is_dir():
            raise FileNotFoundError(f"there is no folder '{folder}'")
        if folder is None and not any(where.glob("*/*.json")):
            where = discovery.folder("capsviz.trained") / "reproduce"
            click.echo(f"no results in {FOLDER}: these are shipped results", err=True)
    else:
        plan = reproduce.Plan(folder=where, **shared)
        if options.is_empty(task, len(reproduce.runs(table, seeds, plan, rows))):
            return
        try:
            with distributed.team(choose_device(device)) as (team, device):
                leads = team.leads
                epochs = reproduce.run(
                    table, seeds, plan, root=data_dir, device=device, team=team,
                    report=writing.line if leads else lambda line: None, rows=rows, task=task,
                )  # fmt: skip
        except KeyboardInterrupt:
            raise click.ClickException(
                f"stopped; finished runs and epochs are in {where}. Run the same command to resume"
            ) from None
    if not leads:
        return
    writes = folder is not None or not show
    place = where / "tables"  # locked: an earlier task must not overwrite a table with more runs
    with locked(place, "writing a table", wait=True) if writes else nullcontext():
        header, lines, caption, commands = reproduce.gather(table, where, epochs=epochs)
        if writes:
            paths = tables.write(place / table, header, lines, caption)
            click.echo(f"written: {', '.join(map(str, paths))}", err=True)
    if as_json:
        about = {"header": header, "rows": lines, "caption": caption, "commands": commands}
        click.echo(writing.to_json(about))
    else:
        click.echo(tables.markdown(header, lines) + "\n" + caption)


def _measure(number: str, folder: Path, *, show: bool) -> None:
    """Run the commands of a finding one after another, and print its training commands."""
    from capsviz.experiments import reproduced

    one, failed = reproduced.finding(number), []
    click.echo(f"{number}. {one.claim}")
    for words in reproduced.commands(one):
        click.echo(f"$ capsviz {shlex.join(words)}")
        writes = [] if words[0] in PRINT else ["--output", str(folder), "--force"]
        command = [sys.executable, "-m", "capsviz", *words, *writes]
        if not show and subprocess.run(command).returncode:
            failed.append(words[0])
    click.echo(f"Compare with the table of finding {number} in docs/findings.md.")
    if lines := reproduced.trainings(one):
        click.echo("Runs whose weights are not shipped (their statistics are), and their training:")
        click.echo("\n".join(f"  {line}" for line in lines))
    if failed:
        raise click.ClickException(
            f"{len(failed)} of {len(one.measured)} commands failed, see above: {', '.join(failed)}"
        )
