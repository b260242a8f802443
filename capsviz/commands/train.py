"""Train a network by a recipe, resume it, and write its weights and card."""

import shlex
import sys
from pathlib import Path

import click

from capsviz.cli import options, writing
from capsviz.cli.options import stack

EXAMPLES = """
capsviz train digits  # about 1 min
capsviz train mnist  # about 2 hours
"""

SECTIONS = {  # first option of each section of the help text -> its title
    "dataset": "Data",
    "model": "Network",
    "epochs": "Optimisation",
    "shift_px": "Data augmentation",
    "device": "The run",
}
NETWORK = (  # name, type or metavar, help text
    ("--routing", "NAME", "Routing algorithm, e.g. em; a wrong name lists all. [default: the "
     "network's]"),
    ("--routing-iterations iterations", int, "Routing iterations. [default: the network's]"),
    ("--detach-routing/--full-routing", bool, "Backpropagate through the last routing iteration "
     "only, or through all."),
    ("--types", int, "Primary capsule types. [default: the stem's]"),
    ("--channels", int, "Channels of the first convolution. [default: the network's]"),
    ("--reconstruction/--no-reconstruction", bool, "Train a decoder."),
    ("--reconstruction-metric", "l2|l1", "Squared or absolute differences. [default: l2]"),
    ("--decoder", "NAME", "Decoder; a wrong name lists all. [default: fully_connected]"),
    ("--decoder-norm/--no-decoder-norm", bool, "Batch norm in the decoder."),
    ("--init-from", "NAME|FILE", "Initialise from a checkpoint, where names and shapes of weights "
     "match."),
)  # fmt: skip
OPTIMISATION = (
    ("--epochs", int, "Epochs to train for. [default: 50]"),
    ("--early-stop", "N", "Stop after N epochs without improvement. [default: off]"),
    ("--batch-size", int, "Images in a training step. [default: 128]"),
    ("--learning-rate", float, "Adam's learning rate. [default: 0.001]"),
    ("--schedule", "exponential|linear|cosine|constant", "How the learning rate falls. [default: "
     "exponential]"),
    ("--ema", float, "Average the weights, with this decay per step. [default: off]"),
    ("--precision", "auto|fp32|bf16", "Precision of a training step. [default: auto]"),
    ("--limit", "N", "Train on the first N images only; validation and test sets stay whole."),
    ("--seed", int, "Seed of weights and batches. [default: 0]"),
)  # fmt: skip
CHANGES = (
    ("--shift-px", int, "Largest shift in each direction, pixels. [default: 2]"),
    ("--flip/--no-flip", bool, "Mirror images left to right with probability 1/2."),
    ("--rotation-deg", float, "Rotate by up to this many degrees, either way. [default: 0]"),
    ("--scale", float, "Scale the size by factors from 1 - X to 1 + X. [default: 0]"),
    ("--shear-deg", float, "Shear by up to this many degrees, either way. [default: 0]"),
    ("--fill", "black|edge|mean", "Fill outside a shifted or warped image: zeros, the nearest "
     "pixel, or the mean colour. [default: black]"),
)  # fmt: skip


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


def _options(rows):
    """Return a decorator for options whose default, None, keeps the value of the recipe."""
    made = []
    for names, kind, text in rows:
        how = {"type": kind} if kind in (int, float) else {}
        if isinstance(kind, str):
            how = {"metavar": kind, "type": int if kind == "N" else str}
        made.append(click.option(*names.split(), default=None, help=text, **how))
    return stack(*made)


@click.command(
    cls=Sectioned,
    help=__doc__
    + "\n\nRECIPE is the name of a shipped recipe or a TOML file; options change it. --option "
    "NAME=VALUE sets any other field, such as crop_px, brightness, lr_decay, clip_norm or keep; a "
    "wrong name lists them all.",
)
@click.argument("recipe", required=False)
@options.recipe_data
@options.own_data_options
@options.network
@_options(NETWORK)
@_options(OPTIMISATION)
@_options(CHANGES)
@options.device
@options.path_option("--output", folder=True, help="Folder of the run. [default: runs/NAME]")
@click.option(
    "--resume",
    is_flag=True,
    help="Resume from the last finished epoch in --output, or start if there is none.",
)
@click.option(
    "--save-every", type=int, metavar="N", help="Keep the weights of every Nth epoch in epochs/."
)
def command(
    recipe, data_dir, device, output, resume, save_every, more, about_data, top_value, **flags
):
    """Train one network."""
    from capsviz import data
    from capsviz.commands.evaluate import balance
    from capsviz.data import folder
    from capsviz.inputs.opening import choose_device
    from capsviz.training import distributed, run
    from capsviz.training.evaluate import Evaluation
    from capsviz.training.history import STATE, read_about

    flags["options"] = options.named_values(more)
    flags["dataset_options"] = options.of_data(about_data, top_value)
    name, recipe = run.prepare(recipe, flags)
    if name == "folder" and data_dir is not None:
        name = folder.own_name(data_dir)
    output = output or Path("runs") / name
    device = choose_device(device)
    try:
        with distributed.team(device) as (team, device):
            splits = team.in_turn(
                lambda: {split: run.load(recipe, split, data_dir) for split in data.SPLITS}
            )
            if team.leads and (notice := splits["test"].notice):
                writing.line(notice)
            weights = output / f"{name}.safetensors"
            if team.leads and resume and not (output / STATE).exists() and not weights.exists():
                writing.line(
                    f"there is no earlier run in {output}: training starts from the beginning"
                )
            past = team.agree(read_about(output) if team.leads and resume else None)
            recipe = run.suited(
                recipe, splits["train"], earlier=past and past["recipe"],
                report=writing.line if team.leads else lambda line: None,
            )  # fmt: skip
            path, card = run.run(
                name, recipe, splits, output, device=device, resume=resume,
                save_every=save_every, team=team, report=writing.line,
            )  # fmt: skip
    except KeyboardInterrupt:
        again = shlex.join(a for a in sys.argv[1:] if a != "--resume")
        if not (output / STATE).exists():
            raise click.ClickException("stopped before an epoch was finished") from None
        raise click.ClickException(
            f"stopped; finished epochs are in {output}. Resume with: capsviz {again} --resume"
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
    tested = Evaluation(**test)
    click.echo(f"balanced accuracy {balance(tested.balanced_accuracy, tested.largest_share)}")
    for doubt in tested.doubts(card):
        writing.line(doubt)
