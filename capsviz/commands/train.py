"""Train a network by a recipe, resume it, and write its weights and card."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from capsviz.cli import options

EXAMPLES = """
capsviz train digits  # about 1 min on two cores
capsviz train mnist  # about 2 hours on two cores
"""

SECTIONS = {  # of the help text, each by its first option
    "dataset": "Data",
    "model": "Network",
    "epochs": "Optimisation",
    "shift_px": "Random changes of training images",
    "device": "The run",
}


class Sectioned(click.Command):
    """A command whose help text lists its options by `SECTIONS`."""

    def format_options(self, context, formatter):
        """Write the sections."""
        title = None
        rows = {title: [] for title in SECTIONS.values()}
        for option in self.get_params(context):
            if isinstance(option, click.Option):
                title = SECTIONS.get(option.name) or title
                rows[title].append(option.get_help_record(context))
        for title, lines in rows.items():
            with formatter.section(title):
                formatter.write_dl(lines)


@click.command(
    cls=Sectioned,
    help=__doc__
    + "\n\nRECIPE is a name in trained/ or a TOML file; flags change it. A file may hold "
    "more than there are flags for: every field of capsviz/training/recipe.py.",
)
@click.argument("recipe", required=False)
@options.recipe_data
@click.option(
    "--data-option",
    "about_data",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of one data set, e.g. eye=left; several times.",
)
@options.image_size
@click.option("--image-channels", type=int, help="3 for colour, for such data sets.")
@options.pad_px
@options.network
@click.option("--routing", metavar="NAME", help="A file of capsviz/nn/routing. [default: dynamic]")
@click.option(
    "--routing-iterations", "iterations", type=int, help="Rounds of routing. [default: 3]"
)
@click.option(
    "--detach-routing/--full-routing", default=None, help="Gradients of the last iteration only."
)
@click.option("--types", type=int, help="Primary capsule types. [default: 32]")
@click.option("--channels", type=int, help="Channels of the first convolution. [default: 256]")
@click.option("--leaky/--no-leaky", default=None, help="Routing may lead to none of the classes.")
@click.option("--reconstruction/--no-reconstruction", default=None, help="Train a decoder.")
@click.option(
    "--reconstruction-weight", type=float, help="Weight of the SSE. [default: the preset's]"
)
@click.option(
    "--reconstruction-metric",
    metavar="l2|l1",
    help="Sum of squared or of absolute differences. [default: l2]",
)
@click.option(
    "--decoder", metavar="NAME", help="A file of capsviz/nn/decoders. [default: fully_connected]"
)
@click.option("--decoder-norm/--no-decoder-norm", default=None, help="Batch norm in the decoder.")
@click.option("--init-from", metavar="NAME|FILE", help="Start from the weights that fit.")
@click.option("--epochs", type=int, help="Epochs to train for. [default: 50]")
@click.option(
    "--early-stop", type=int, metavar="N", help="Stop after N epochs without a better one."
)
@click.option("--batch-size", type=int, help="Images in a step. [default: 128]")
@click.option("--learning-rate", type=float, help="Adam's rate. [default: 0.001]")
@click.option("--decoder-learning-rate", type=float, help="[default: the others']")
@click.option(
    "--schedule", metavar="exponential|linear|cosine|constant", help="[default: exponential]"
)
@click.option("--lr-decay", type=float, help="Exponential: times this ... [default: 0.96]")
@click.option("--lr-decay-steps", type=int, help="... in so many steps. [default: 2000]")
@click.option("--warmup-epochs", type=float, help="Epochs in which the rate rises. [default: 0]")
@click.option("--weight-decay", type=float, help="Adam's weight decay. [default: 0]")
@click.option("--decoder-weight-decay", type=float, help="[default: the others']")
@click.option(
    "--reconstruction-anneal",
    type=float,
    help="Factor of the reconstruction's weight at the end; geometric, may grow. [default: 1]",
)
@click.option("--clip-norm", type=float, help="Shorten gradients to this norm. [default: any]")
@click.option("--ema", type=float, help="Average the weights, with this decay per step.")
@click.option("--precision", metavar="auto|fp32|bf16", help="Precision of a step. [default: auto]")
@click.option(
    "--keep", metavar="best|last", help="The epoch whose weights are kept. [default: best]"
)
@click.option("--limit", type=int, metavar="N", help="The first N training images only.")
@click.option("--seed", type=int, help="Seed of weights and batches. [default: 0]")
@click.option("--shift-px", type=int, help="Longest shift each way, pixels. [default: 2]")
@click.option("--crop-px", type=int, help="Square window; of test images, the centre.")
@click.option("--flip/--no-flip", default=None, help="Mirror half of the images.")
@click.option(
    "--brightness", type=float, help="Factors of the brightness, from 1 - this to 1 + this."
)
@click.option("--contrast", type=float, help="Factors of the contrast, likewise.")
@options.device
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the run. [default: runs/NAME]",
)
@click.option("--resume", is_flag=True, help="Go on from the last finished epoch in --output.")
@click.option(
    "--save-every", type=int, metavar="N", help="Keep the weights of every Nth epoch in epochs/."
)
def command(recipe, data_dir, device, output, resume, save_every, more, about_data, **flags):
    """Train one network."""
    from capsviz import data
    from capsviz.inputs.opening import choose_device
    from capsviz.training import distributed, run
    from capsviz.training.history import STATE
    from capsviz.training.recipe import read_option

    flags["options"] = options.of_network(more)
    flags["dataset_options"] = dict(read_option(text) for text in about_data)
    name, recipe = run.prepare(recipe, flags)
    output = output or Path("runs") / name
    device = choose_device(device)
    try:
        with distributed.team(device) as (team, device):
            splits = team.in_turn(
                lambda: {split: run.load(recipe, split, data_dir) for split in data.SPLITS}
            )
            if team.leads and (notice := splits["test"].notice):
                _report(notice)
            if team.leads and resume and not (output / STATE).exists():
                _report(f"there is no earlier run in {output}: this one starts anew")
            path, card = run.run(
                name, recipe, splits, output, device=device, resume=resume,
                save_every=save_every, team=team, report=_report,
            )  # fmt: skip
    except KeyboardInterrupt:
        again = shlex.join(a for a in sys.argv[1:] if a != "--resume")
        if not (output / STATE).exists():
            raise click.ClickException("stopped before an epoch was finished") from None
        raise click.ClickException(
            f"stopped; finished epochs are in {output}. Go on with: capsviz {again} --resume"
        ) from None
    if not team.leads:
        return
    test, training = card["results"]["test"], card["training"]
    early = f", stopped early after {training['epochs']}" if training.get("stopped_early") else ""
    low, high = test["accuracy_ci95"]
    click.echo(
        f"{path}: test accuracy {test['accuracy']:.2%} on {test['n']:,} images "
        f"(95 % interval {low:.2%} to {high:.2%}), weights of epoch {training['epoch']}{early}"
    )


def _report(line: str) -> None:
    from tqdm import tqdm

    tqdm.write(line, file=sys.stderr)
