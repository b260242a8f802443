"""What `capsviz affnist` does: the series, its tables, its figure."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from capsviz import discovery, options

FOLDER = Path("runs/affnist")


def shipped() -> list[dict]:
    """The results that come with capsviz; none if there are none."""
    from capsviz import generalisation

    return generalisation.read(discovery.folder("trained") / "affnist")


def run(make, networks, seeds, folder, picture, data_dir, device, figure, as_json, plan) -> None:
    """The command, with its options."""
    from analyses import affnist
    from capsviz import data, figures, generalisation
    from capsviz.subject import choose_device

    given = options.typed(
        "seeds", "target", "full", "epochs", "batch_size", "ema", "limit", "train_limit", "device"
    )
    if given and not make:
        raise ValueError(f"these say how to run: drop {', '.join(sorted(given))} or add --run")
    if picture and (given := options.typed("make", "networks", "folder")):
        raise ValueError(f"--picture shows no results: drop {', '.join(sorted(given))}")
    if seeds < 1:
        raise ValueError(f"expected at least 1 seed, got {seeds}")
    for name in networks:
        if name not in generalisation.NETWORKS:
            known = list(generalisation.NETWORKS)
            raise ValueError(discovery.unknown("network", name, known))
    if picture:
        result, stem = (
            affnist.variants(data.load("mnist", "test", data_dir)),
            "affnist-like-variants",
        )
    else:
        where = folder or FOLDER
        if make:
            plan = generalisation.Plan(folder=where, **plan)
            _series(
                networks or generalisation.NETWORKS, seeds, plan, data_dir, choose_device(device)
            )
        found = generalisation.read(where)
        if not found and folder is None and not make and (found := shipped()):
            click.echo("no results in runs/affnist: these are the shipped ones", err=True)
        chosen = [r for r in found if not networks or r["network"] in networks]
        result, stem = affnist.compute(chosen), "affnist"
    paths = figures.save(
        figure["output"] / stem, "affnist", result, formats=figure["formats"],
        width=figure["width"], command=options.command_line(),
    )  # fmt: skip
    options.report(result, affnist.findings(result), paths, as_json)


def _series(networks, seeds: int, plan, data_dir, device) -> None:
    from tqdm import tqdm

    from capsviz import generalisation

    for seed in range(seeds):
        for network in networks:
            with tqdm(disable=None, unit="step", desc=f"{network}-{seed}", smoothing=0.05) as bar:
                generalisation.run(
                    network, seed, plan, root=data_dir, device=device,
                    report=lambda line: tqdm.write(line, file=sys.stderr),
                    on_step=lambda *_, bar=bar: bar.update(),
                )  # fmt: skip
