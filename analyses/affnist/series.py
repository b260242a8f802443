"""A series of `affnist`: what is missing is trained and scored."""

from __future__ import annotations

import sys

from tqdm import tqdm

from capsviz.experiments import affnist as experiment
from capsviz.experiments.affnist import transforms


def run(networks, seeds: int, plan, root, device) -> None:
    """Train and score what is missing; store the transforms of the images beside the results."""
    for seed in range(seeds):
        for network in networks:
            with tqdm(disable=None, unit="step", desc=f"{network}-{seed}", smoothing=0.05) as bar:
                experiment.run(
                    network, seed, plan, root=root, device=device,
                    report=lambda line: tqdm.write(line, file=sys.stderr),
                    on_step=lambda *_, bar=bar: bar.update(),
                )  # fmt: skip
    transforms.store(plan.folder, plan.n, root)
