"""Reproduce published tables: train the runs that are missing.

Every run leaves its card as `N-epochs/NAME-SEED.json`, so that an interrupted series goes on where
it stopped, and a run of several tables is made once. Weights are chosen on held-out images; the
test set is evaluated once.
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


def recipe(cell: Cell, seed: int, plan: Plan) -> Recipe:
    """Return the recipe of a row's run, by a plan whose epochs are set."""
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
    """Train the missing runs of a table, seed by seed; return the epochs of each run.

    Rows without data are reported. Processes on several machines may fill one folder, each with its
    own `task`.

    Parameters
    ----------
    table   one of `reproductions.available`.
    seeds   number of seeds 0, 1, ... for each row.
    root    folder of the data; None as in `data.load`.
    team    as for `train.fit`.
    report  called with a line for each epoch and result.
    rows    of the table, by the names of their runs; none for all.
    task    (i, n): the i-th of n shares of the runs, rows times seeds, counted from 1.

    Raises
    ------
    ValueError         for an unknown table, no seeds, or a folder with results of the table by
                       other recipes or in another precision.
    FileNotFoundError  if no row has its data.
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
    """Return row and recipe of every run of a table, seed by seed; raises as `run`."""
    if seeds < 1:
        raise ValueError(f"expected at least 1 seed, got {seeds}")
    plan, cells = replace(plan, epochs=_epochs(plan, table)), choose_rows(table, rows)
    return [(cell, recipe(cell, seed, plan)) for seed in range(seeds) for cell in cells]


def _epochs(plan: Plan, table: str) -> int:
    return get(table).epochs if plan.epochs is None else plan.epochs


def choose_rows(table: str, rows: Sequence[str]) -> list[Cell]:
    """Return rows of a table by the names of their runs, all for none; ValueError for others."""
    cells = get(table).cells()
    for name in rows:
        if name not in (known := [cell.run for cell in cells]):
            raise ValueError(unknown("row", name, known))
    return [cell for cell in cells if not rows or cell.run in rows]


def share(runs: Sequence, task: tuple[int, int]) -> list:
    """Return every n-th of the runs, from the i-th on; ValueError unless 1 <= i <= n."""
    i, n = task
    if not 1 <= i <= n:
        raise ValueError(f"expected a task I/N with I from 1 to N, got {i}/{n}")
    return list(runs[i - 1 :: n])


def _require_all_usable(table: str, folder: Path, runs: Sequence, device: torch.device) -> None:
    """Raise ValueError for results or begun runs of a table that do not fit these runs.

    Parameters
    ----------
    runs  (row, recipe) of each; all have one length and the same settings.
    """
    for cell, own in runs:
        _require_fit(result_path(folder, cell.run, own), own, device, apart=("precision",))
    for _, own in runs[:1]:
        aside = [field.name for field in fields(own) if field.name not in TERMS]
        place = result_path(folder, "", own).parent
        for cell in get(table).cells():
            paths = paths_of(cell, place)
            results_of(cell, paths)
            begun = (place / "runs").glob(f"{glob.escape(cell.run)}-[0-9]*")
            for path in {*paths, *(place / f"{run.name}.json" for run in begun)}:
                _require_fit(path, own, device, apart=aside)


def _require_fit(path: Path, own: Recipe, device: torch.device, *, apart: Sequence[str]) -> None:
    """Raise ValueError for a result, or a run begun for it, with another recipe or precision."""
    if path.exists():
        card = read_card(path)
        stored, precision = card["recipe"], card["training"]["precision"]
    elif begun := history.read_about(_run_folder(path)):
        path, stored, precision = _run_folder(path), begun["recipe"], begun["precision"]
    else:
        return
    require_equal(path, stored, own, apart=apart)
    if precision != (expected := resolve_precision(own.precision, device)):
        raise ValueError(
            f"{path} was made in {precision}, the others would be in {expected}: "
            f"choose --precision {precision}, or another --folder"
        )


def result_path(folder: Path, name: str, recipe: Recipe) -> Path:
    """Return the path of one run's result."""
    return folder / f"{recipe.epochs}-epochs" / f"{name}-{recipe.seed}.json"


def _run_folder(path: Path) -> Path:
    """Return the folder of the run whose result has this path."""
    return path.parent / "runs" / path.stem
