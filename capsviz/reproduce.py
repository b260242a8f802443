"""Make published tables anew: train what is missing, gather the results of each row.

Every run leaves its card as `NAME-SEED.json`; an interrupted series goes on where it stopped, and a
run that stands in several tables is made once. Weights are chosen on the held-out images, the test
set is read once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from capsviz import data, pipeline
from capsviz.files import write_text
from capsviz.intervals import wilson
from capsviz.recipe import Recipe
from capsviz.reproductions import Cell, get

MEASURES = ("Parameters", "Seeds", "Test error %", "Margin loss", "SSE", "Published")


@dataclass(frozen=True)
class Plan:
    """What the runs of a series share, whatever their own recipes say."""

    folder: Path  # of the results, and below it of the runs
    epochs: int = 50
    batch_size: int = 128
    schedule: str = "exponential"
    precision: str = "auto"
    limit: int | None = None  # first training images only, for trials

    @property
    def shared(self) -> dict:
        """The fields of `Recipe` that it sets."""
        return {k: v for k, v in vars(self).items() if k != "folder"}


def recipe(cell: Cell, seed: int, plan: Plan) -> Recipe:
    """How a row's network is trained from a seed."""
    return replace(cell.recipe, seed=seed, **plan.shared)


def run(
    table: str,
    seeds: int,
    plan: Plan,
    *,
    root=None,
    device: torch.device | str = "cpu",
    report: Callable[[str], None] = lambda line: None,
) -> None:
    """Train what a table lacks, seed by seed; rows whose data are not there are reported.

    Parameters
    ----------
    table   a file of capsviz/reproductions.
    seeds   0, 1, ... of each row.
    root    folder of the data; None as in `data.load`.
    report  is given a line for each epoch and result.

    Raises
    ------
    ValueError         for an unknown table, no seeds, or a folder with results by other recipes.
    FileNotFoundError  if the data of no row are there.
    """
    if seeds < 1:
        raise ValueError(f"expected at least 1 seed, got {seeds}")
    cells = get(table).cells()
    missing = {}
    for seed in range(seeds):
        for cell in cells:
            if cell.recipe.dataset in missing:
                continue
            try:
                _run(cell, seed, plan, root, torch.device(device), report)
            except FileNotFoundError as error:
                missing[cell.recipe.dataset] = error
                report(f"{cell.run}: not run, {error}")
    if len(missing) == len({cell.recipe.dataset for cell in cells}):
        raise next(iter(missing.values()))


def _run(cell: Cell, seed: int, plan: Plan, root, device, report) -> None:
    wanted, path = recipe(cell, seed, plan), result_path(plan.folder, cell.run, seed)
    if path.exists():
        found = _read_one(path)["recipe"]
        if other := sorted(k for k, v in asdict(wanted).items() if found.get(k, v) != v):
            raise ValueError(
                f"{path} was made by another recipe (it differs in {', '.join(other)}): "
                "ask for the same, or choose another --folder"
            )
        return
    splits = {split: pipeline.load(wanted, split, root) for split in data.SPLITS}
    output = plan.folder / "runs" / f"{cell.run}-{seed}"
    _, card = pipeline.run(
        cell.run, wanted, splits, output, device=device, resume=True, report=report
    )
    write_text(path, json.dumps(card) + "\n")
    report(f"{cell.run}-{seed}: test error {card['results']['test']['error_percent']:.2f} %")


def result_path(folder: Path, name: str, seed: int) -> Path:
    """Where the result of one run lies."""
    return folder / f"{name}-{seed}.json"


def gather(table: str, folder: Path) -> tuple[list[str], list[list[str]], str]:
    """A table from the results in a folder: header, rows, and what to know of it.

    Errors are means over seeds ± their standard deviation; of one seed, the test error with its
    Wilson interval at 95 %. Rows without results say so.

    Raises
    ------
    ValueError  if there are no results of the table, or unlike ones.
    """
    module = get(table)
    cells = module.cells()
    found = {c.run: [_read_one(p) for p in sorted(folder.glob(f"{c.run}-*.json")) if
                     p.stem.removeprefix(f"{c.run}-").isdigit()] for c in cells}  # fmt: skip
    cards = [card for some in found.values() for card in some]
    if not cards:
        raise ValueError(f"no results of the table '{table}' in {folder}")
    rows = [[*cell.labels, *_measures(found[cell.run]), cell.published] for cell in cells]
    return [*module.LABELS, *MEASURES], rows, _caption(module, cards)


def _measures(cards: list[dict]) -> list[str]:
    if not cards:
        return ["–", "not run", "–", "–", "–"]
    tests = [card["results"]["test"] for card in cards]
    errors = [test["error_percent"] for test in tests]
    if len(errors) > 1:
        error = f"{np.mean(errors):.2f} ± {np.std(errors, ddof=1):.3f}"
    else:
        n = tests[0]["n"]
        low, high = (100 * end for end in wilson(round(errors[0] * n / 100), n))
        error = f"{errors[0]:.2f} [{low:.2f}, {high:.2f}]"
    sses = [test["reconstruction_sse"] for test in tests if test["reconstruction_sse"] is not None]
    margin = np.mean([test["margin_loss"] for test in tests])
    parameters = f"{cards[0]['weights']['parameters']:,}"
    sse = f"{np.mean(sses):.1f}" if sses else "–"
    return [parameters, str(len(cards)), error, f"{margin:.4f}", sse]


def _caption(module, cards: list[dict]) -> str:
    """What the table shows and how its networks were trained; ValueError if unlike one another."""
    said = {}
    for name in ("epochs", "batch_size", "schedule", "limit", "precision"):
        values = {card["recipe"][name] for card in cards}
        if len(values) > 1:
            values = ", ".join(sorted(map(str, values)))
            raise ValueError(f"the results differ in {name}: {values}; gather them apart")
        said[name] = values.pop()
    images = "" if said["limit"] is None else f" of {said['limit']:,} images"
    title = module.__doc__.partition("\n")[0].rstrip(".")
    hardware = sorted({card["training"]["hardware"] for card in cards})
    epochs = f"{said['epochs']} epoch{'' if said['epochs'] == 1 else 's'}{images}"
    return (
        f"{title}. {epochs}, batches of {said['batch_size']}, schedule {said['schedule']}, "
        f"{'; '.join(hardware)}. Errors: mean ± standard deviation over seeds; "
        "of one seed, its 95 % interval over test images, which leaves out how seeds differ."
    )


def _read_one(path: Path) -> dict:
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        card["recipe"]["seed"], card["training"]["hardware"], card["results"]["test"]["n"]
        card["weights"]["parameters"]
        return card
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not the result of a run ({type(error).__name__}: {error})"
        ) from error
