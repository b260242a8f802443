"""Make published tables anew: train what is missing, gather the results of each row.

Every run leaves its card as `N-epochs/NAME-SEED.json`; an interrupted series goes on where it
stopped, and a run that stands in several tables is made once. Weights are chosen on the held-out
images, the test set is read once.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import torch

from capsviz import data
from capsviz.discovery import unknown
from capsviz.experiments.gathering import (
    TERMS,
    Plan,
    paths_of,
    read_card,
    require_equal,
    results_of,
)
from capsviz.experiments.reproductions import Cell, get
from capsviz.files import write_text
from capsviz.training import history
from capsviz.training.distributed import Team
from capsviz.training.recipe import Recipe, resolve_precision
from capsviz.training.run import load as load_split
from capsviz.training.run import run as train

EPOCHS = 50


def recipe(cell: Cell, seed: int, plan: Plan) -> Recipe:
    """How a row's network is trained from a seed, by a plan whose epochs are set."""
    shared = {k: v for k, v in vars(plan).items() if k != "folder" and v is not None}
    return replace(cell.recipe, seed=seed, **shared)


def run(
    table: str,
    seeds: int,
    plan: Plan,
    *,
    root=None,
    device: torch.device | str = "cpu",
    team: Team | None = None,
    report: Callable[[str], None] = lambda line: None,
    rows: Sequence[str] = (),
    task: tuple[int, int] = (1, 1),
) -> int:
    """Train what a table lacks, seed by seed; rows whose data are not there are reported.

    Any number of processes and machines may fill one folder, each with a `task` of its own.

    Parameters
    ----------
    table   a file of capsviz/experiments/reproductions.
    seeds   0, 1, ... of each row.
    root    folder of the data; None as in `data.load`.
    team    as `train.fit` takes it.
    report  is given a line for each epoch and result.
    rows    of the table, by the names of their runs; none for all.
    task    (i, n): the i-th of n shares of the runs, rows times seeds, counted from 1.

    Returns
    -------
    The epochs of each run.

    Raises
    ------
    ValueError         for an unknown table, no seeds, or a folder with results of the table by
                       other recipes or in another precision.
    FileNotFoundError  if the data of no row are there.
    """
    team, epochs = team or Team(), _epochs(plan, table)
    own_share = share(runs(table, seeds, plan, rows), task)
    device, missing = torch.device(device), {}
    team.in_turn(lambda: _require_all_usable(table, plan.folder, own_share, device))
    for cell, own in own_share:
        path, name = result_path(plan.folder, cell.run, own), own.dataset
        if team.agree(team.leads and path.exists()) or name in missing:
            continue
        try:
            splits = team.in_turn(
                lambda own=own: {split: load_split(own, split, root) for split in data.SPLITS}
            )
        except FileNotFoundError as error:
            missing[name] = error
            report(f"{cell.run}: not run, {error}")
            continue
        _, card = train(
            cell.run, own, splits, _run_folder(path),
            device=device, resume=True, team=team, report=report,
        )  # fmt: skip
        if team.leads:
            write_text(path, json.dumps(card) + "\n")
        report(f"{path.stem}: test error {card['results']['test']['error_percent']:.2f} %")
    if missing and len(missing) == len({own.dataset for _, own in own_share}):
        raise next(iter(missing.values()))
    return epochs


def runs(table: str, seeds: int, plan: Plan, rows: Sequence[str] = ()) -> list[tuple[Cell, Recipe]]:
    """Every run of a table, seed by seed: its row, and how it is trained. Raises as `run`."""
    if seeds < 1:
        raise ValueError(f"expected at least 1 seed, got {seeds}")
    plan, cells = replace(plan, epochs=_epochs(plan, table)), choose_rows(table, rows)
    return [(cell, recipe(cell, seed, plan)) for seed in range(seeds) for cell in cells]


def _epochs(plan: Plan, table: str) -> int:
    """Of each run: the plan's, or those of the table."""
    return getattr(get(table), "EPOCHS", EPOCHS) if plan.epochs is None else plan.epochs


def choose_rows(table: str, rows: Sequence[str]) -> list[Cell]:
    """The rows of a table by the names of their runs, all for none; ValueError for others."""
    cells = get(table).cells()
    for name in rows:
        if name not in (known := [cell.run for cell in cells]):
            raise ValueError(unknown("row", name, known))
    return [cell for cell in cells if not rows or cell.run in rows]


def share(runs: Sequence, task: tuple[int, int]) -> list:
    """Every n-th of the runs, from the i-th on; ValueError unless 1 <= i <= n."""
    i, n = task
    if not 1 <= i <= n:
        raise ValueError(f"expected a task I/N with I from 1 to N, got {i}/{n}")
    return list(runs[i - 1 :: n])


def _require_all_usable(table: str, folder: Path, runs: Sequence, device: torch.device) -> None:
    """ValueError for runs of a table, of any row and seed, beside which these cannot stand.

    Results are looked at, and what runs that have begun say of themselves.

    Parameters
    ----------
    runs  (row, recipe) of each; all are of one length and on the same terms.
    """
    for cell, own in runs:
        _require_usable(folder, cell, own, device)
    for _, own in runs[:1]:
        aside = [field.name for field in fields(own) if field.name not in TERMS]
        for cell in get(table).cells():
            paths = paths_of(cell, result_path(folder, cell.run, own).parent)
            for path, card in zip(paths, results_of(cell, paths), strict=True):
                require_equal(path, card["recipe"], own, apart=aside)
                _require_precision(path, card["training"]["precision"], own, device)
            place = _run_folder(result_path(folder, cell.run, own)).parent
            for run in sorted(place.glob(f"{glob.escape(cell.run)}-[0-9]*")):
                if begun := history.read_about(run):
                    require_equal(run, begun["recipe"], own, apart=aside)
                    _require_precision(run, begun.get("precision"), own, device)


def _require_usable(folder: Path, cell: Cell, own: Recipe, device: torch.device) -> None:
    """ValueError for a result, or a begun run, in place of which this one cannot be."""
    path = result_path(folder, cell.run, own)
    if path.exists():
        card = read_card(path)
        stored, precision = card["recipe"], card["training"]["precision"]
    elif begun := history.read_about(_run_folder(path)):
        path, stored = _run_folder(path), begun["recipe"]
        precision = begun.get("precision")
    else:
        return
    require_equal(path, stored, own, apart=("precision",))
    _require_precision(path, precision, own, device)


def _require_precision(
    path: Path, precision: str | None, own: Recipe, device: torch.device
) -> None:
    """ValueError for another precision than these have; None, of older states, is none."""
    if precision is not None and precision != (
        expected := resolve_precision(own.precision, device)
    ):
        raise ValueError(
            f"{path} was made in {precision}, the others would be in {expected}: "
            f"ask for --precision {precision}, or choose another --folder"
        )


def result_path(folder: Path, name: str, recipe: Recipe) -> Path:
    """Where the result of one run lies."""
    return folder / f"{recipe.epochs}-epochs" / f"{name}-{recipe.seed}.json"


def _run_folder(path: Path) -> Path:
    """Where the run is kept whose result is to lie at a path."""
    return path.parent / "runs" / path.stem
