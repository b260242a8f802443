"""What `capsviz affnist` does: the series, its tables, its figure."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import numpy as np

from capsviz import discovery, options

FOLDER = Path("runs/affnist")
HEADER = (
    "Network", "Parameters", "Weights", "Seeds", "Held-out %", "Test %",
    "affnist_like %", "Range over seeds", "Gap to CapsNet", "affNIST %",
)  # fmt: skip


def shipped() -> list[dict]:
    """The results that come with capsviz; none if there are none."""
    from capsviz import generalisation

    return generalisation.read(discovery.folder("trained") / "affnist")


def run(make, networks, seeds, folder, picture, data_dir, device, figure, as_json, plan) -> None:
    """The command, with its options."""
    from analyses import affnist
    from capsviz import data, figures, generalisation, tables
    from capsviz.subject import choose_device

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
    if stem == "affnist":
        stem = figure["output"] / stem
        paths = [*tables.write(stem, HEADER, cells(result), affnist.caption(result)), *paths]
    options.report(result, affnist.findings(result), paths, as_json)


def _series(networks, seeds: int, plan, data_dir, device) -> None:
    from tqdm import tqdm

    from capsviz import allocator, generalisation

    allocator.keep_freed_memory()
    for seed in range(seeds):
        for network in networks:
            with tqdm(disable=None, unit="step", desc=f"{network}-{seed}", smoothing=0.05) as bar:
                generalisation.run(
                    network, seed, plan, root=data_dir, device=device,
                    report=lambda line: tqdm.write(line, file=sys.stderr),
                    on_step=lambda *_, bar=bar: bar.update(),
                )  # fmt: skip


def cells(result) -> list[list[str]]:
    """The rows of the table."""
    from analyses.affnist import TITLES

    def percent(value):
        return "–" if np.isnan(value) else f"{100 * value:.2f}"

    rows = []
    for i, network in enumerate(result.networks):
        low, high = result.affine_range[i]
        gap, ends = result.gap[i], result.gap_ci95[i]
        rows.append(
            [
                TITLES.get(network, network),
                f"{result.parameters[i] / 1e6:.2f} M",
                result.states[i],
                str(len(result.seeds[i])),
                percent(result.held_out[i]),
                percent(result.test[i]),
                percent(result.affine[i]),
                f"{percent(low)} to {percent(high)}" if len(result.seeds[i]) > 1 else "–",
                "–"
                if np.isnan(gap)
                else f"{100 * gap:+.2f} [{100 * ends[0]:+.2f}, {100 * ends[1]:+.2f}]",
                percent(result.affnist[i]),
            ]
        )
    return rows
