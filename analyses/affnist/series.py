"""A series of `affnist`: train and score missing networks, and read the results."""

from pathlib import Path

import click
from tqdm import tqdm

from capsviz import discovery
from capsviz.cli import options, writing
from capsviz.experiments import affnist as experiment
from capsviz.experiments.reproduce import share
from capsviz.inputs.opening import choose_device

FOLDER = Path("runs/affnist")
HOW_TO_RUN = ("seeds", "task", "target", "full", "epochs", "batch_size", "ema", "limit",
              "train_limit", "device")  # fmt: skip
SHIPPED = discovery.folder("capsviz.trained") / "affnist"


def check(make, networks, seeds: int, picture) -> None:
    """Raise ValueError for options without effect, an unknown network, or less than 1 seed."""
    typed = options.typed(*HOW_TO_RUN)
    if typed and not make:
        raise ValueError(f"only --run uses these: drop {', '.join(sorted(typed))} or add --run")
    if picture and (typed := options.typed("make", "networks", "folder")):
        raise ValueError(f"--picture shows no results: drop {', '.join(sorted(typed))}")
    if seeds < 1:
        raise ValueError(f"expected at least 1 seed, got {seeds}")
    for name in networks:
        discovery.require_known("network", name, experiment.NETWORKS)


def run(networks, seeds: int, folder, terms: dict, root, device: str, task) -> None:
    """Train and score the missing runs of a task's share of the networks times seeds.

    Raises ClickException if all ran and none reached the accuracy to match.
    """
    plan = experiment.Plan(folder=folder or FOLDER, **terms)
    runs = [(network, seed) for seed in range(seeds) for network in networks or experiment.NETWORKS]
    if options.is_empty(task, len(runs)):
        return
    for network, seed in share(runs, task):
        with tqdm(disable=None, unit="step", desc=f"{network}-{seed}", smoothing=0.05) as bar:
            experiment.run(
                network, seed, plan, root=root, device=choose_device(device),
                report=writing.line,
                on_step=lambda *_, bar=bar: bar.update(),
            )  # fmt: skip
    if task == (1, 1) and not read(networks, folder, make=True):
        raise click.ClickException(
            f"no network reached a held-out accuracy of {plan.target:.2%} in {plan.epochs} epochs: "
            "ask for more --epochs, for --full, or for a lower --match-accuracy in another --folder"
        )


def read(networks, folder, make) -> list[dict]:
    """Return the results of these networks, or of all.

    Without a folder, runs and results, the shipped results are returned.
    """
    if folder is not None and not folder.is_dir():
        raise FileNotFoundError(f"there is no folder '{folder}'")
    results = experiment.read(folder or FOLDER)
    if not results and folder is None and not make and (results := experiment.read(SHIPPED)):
        click.echo("no results in runs/affnist: these are the shipped ones", err=True)
    return [r for r in results if not networks or r["network"] in networks]
