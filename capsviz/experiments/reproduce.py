"""Reproduce published tables: train the missing runs, and make a table of the results.

Each run writes its card to `N-epochs/NAME-SEED.json`. So an interrupted series resumes where it
stopped, and a run that is in several tables is trained once. Weights are selected on held-out
images; the test set is evaluated once. A table has a row for each network, averaged over seeds.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from capsviz import data
from capsviz.discovery import require_known
from capsviz.experiments import reproductions
from capsviz.experiments.reproductions import Cell, get
from capsviz.files import write_text
from capsviz.nn import models
from capsviz.training.distributed import Team
from capsviz.training.recipe import Recipe, differing, resolve_precision
from capsviz.training.run import load as load_split
from capsviz.training.run import run as train

TERMS = ("batch_size", "schedule", "limit")  # must be equal in a table, as must the precision
MEASURES = ("Parameters", "Epochs", "Seeds", "Test error %", "Margin loss", "SSE", "Published")
READING = (
    "Several seeds: mean ± standard deviation. One seed: the test error with its 95 % interval "
    "over test images, which leaves out how seeds differ."
)


@dataclass(frozen=True)
class Plan:
    """Settings of all runs of a series; None: as in each row's recipe."""

    folder: Path  # for results and runs
    epochs: int | None = None  # None: those of the table's published runs, or 50
    batch_size: int | None = None
    schedule: str | None = "linear"
    precision: str | None = "auto"
    limit: int | None = None  # use only the first training images, for trials


class Table(NamedTuple):
    """A table as text."""

    header: list[str]
    rows: list[list[str]]
    caption: str  # contents, and how the networks were trained
    commands: list[str]  # reproduce the results


def recipe(cell: Cell, seed: int, plan: Plan) -> Recipe:
    """Return the recipe of a row's run; the plan's epochs must be set."""
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

    Rows without data are reported and skipped. Processes on several machines may fill one folder if
    each has its own `task` (i, n): the i-th of n shares of the runs (rows times seeds). `rows` are
    names of runs; none for all. `root` is as for `data.load`, `team` as for `train.fit`.

    Raises
    ------
    ValueError         for an unknown table or row, `seeds` < 1, or results or unfinished runs of
                       these rows with other recipes or another precision.
    FileNotFoundError  if no row has its data.
    """
    team, device = team or Team(), torch.device(device)
    plan = _with_epochs(plan, table)
    own_share = share(runs(table, seeds, plan, rows), task)
    missing: dict[str, FileNotFoundError] = {}
    for cell, own in own_share:
        path, name = result_path(plan.folder, cell.run, own), own.dataset
        if team.agree(team.leads and path.exists()):
            team.in_turn(partial(_require_fit, path, own, device))
            continue
        if name in missing:
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
            cell.run, own, splits, path.parent / "runs" / path.stem,
            device=device, resume=True, team=team, report=report,
        )  # fmt: skip
        if team.leads:
            write_text(path, json.dumps(card) + "\n")
        report(f"{path.stem}: test error {card['results']['test']['error_percent']:.2f} %")
    if missing and len(missing) == len({own.dataset for _, own in own_share}):
        raise next(iter(missing.values()))
    assert plan.epochs is not None
    return plan.epochs


def runs(table: str, seeds: int, plan: Plan, rows: Sequence[str] = ()) -> list[tuple[Cell, Recipe]]:
    """Return the row and recipe of each run of a table, seed by seed; ValueError as for `run`."""
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    plan, cells = _with_epochs(plan, table), get(table).cells()
    known = [cell.run for cell in cells]
    for name in rows:
        require_known("row", name, known)
    cells = [cell for cell in cells if not rows or cell.run in rows]
    return [(cell, recipe(cell, seed, plan)) for seed in range(seeds) for cell in cells]


def _with_epochs(plan: Plan, table: str) -> Plan:
    return replace(plan, epochs=get(table).epochs) if plan.epochs is None else plan


def share(runs: Sequence, task: tuple[int, int]) -> list:
    """Return every n-th run from the i-th on, for `task` (i, n) counted from 1."""
    i, n = task
    return list(runs[i - 1 :: n])


def _require_fit(path: Path, own: Recipe, device: torch.device) -> None:
    """Raise ValueError for a result with another recipe, plug-in or precision."""
    if not path.exists():  # it is on the machine of the first process
        return
    card = read_card(path)
    if kinds := models.changed(card.get("model", {})):
        raise ValueError(
            f"{path} was made with another {' and '.join(kinds)}: the code of a plug-in has "
            "changed since; choose another --folder"
        )
    stored = card["recipe"] | {"precision": card["training"]["precision"]}
    expected: Any = resolve_precision(own.precision, device)
    _require_equal(path, stored, replace(own, precision=expected))


def _require_equal(path: Path, stored: dict, recipe: Recipe, *, apart: Sequence[str] = ()) -> None:
    """Raise ValueError if a stored recipe differs in more than the fields `apart`."""
    if names := differing(stored, recipe) - set(apart):
        raise ValueError(
            f"{path} was made by another recipe (it differs in {', '.join(sorted(names))}): "
            "use the same one, or choose another --folder"
        )


def result_path(folder: Path, name: str, recipe: Recipe) -> Path:
    """Return the path of one run's result."""
    return folder / f"{recipe.epochs}-epochs" / f"{name}-{recipe.seed}.json"


def gather(table: str, folder: Path, *, epochs: int | None = None, only_run: bool = False) -> Table:
    """Make a table from the results in a folder; rows without results are marked "not run".

    `only_run` omits rows that were never run, such as a routing that was added later. `epochs`
    selects runs by their length; None: the length that fills the most rows, or the largest of
    several. If rows stand apart, each shows its longest runs. ValueError if there are no results of
    the table, or results that differ in recipe, terms, plug-ins or images.
    """
    about = get(table)
    cells = about.cells()
    folders = {path.name.removesuffix("-epochs"): path for path in folder.glob("[0-9]*-epochs")}
    series = {
        int(n): {cell.run: paths_of(cell, place) for cell in cells}
        for n, place in folders.items()
        if n.isdecimal()
    }
    if only_run:
        cells = [cell for cell in cells if any(row[cell.run] for row in series.values())]
    filled = {n: sum(map(bool, row.values())) for n, row in series.items() if epochs in (None, n)}
    if not any(filled.values()):
        what = "" if epochs is None else f" after {epochs} epochs"
        raise ValueError(f"no results of the table '{table}'{what} in {folder}")
    fullest, results = max(filled, key=lambda n: (filled[n], n)), {}
    for cell in cells:
        lengths = [n for n in filled if series[n][cell.run]] if about.apart else [fullest]
        results[cell.run] = _results_of(cell, series[max(lengths, default=fullest)][cell.run])
    rows = [[*cell.labels, *_measures(cell, results[cell.run]), cell.published] for cell in cells]
    cards = [card for some in results.values() for card in some]
    for some in results.values() if about.apart else [cards]:
        for name in (*TERMS, "precision"):
            if len(values := {str((card["recipe"] | card["training"])[name]) for card in some}) > 1:
                raise ValueError(
                    f"the results differ in {name} ({', '.join(sorted(values))}): put them into "
                    "two folders"
                )
    _require_same_made(results)
    caption = _caption(about, cards)
    return Table([*about.labels, *MEASURES], rows, caption, _commands(table, results))


def _require_same_made(results: dict[str, list[dict]]) -> None:
    """Raise ValueError if plug-ins differ within a row, or images within a data set."""
    known: dict[str, dict] = {}
    for run, card in [(run, card) for run, cards in results.items() for card in cards]:
        part = card["dataset"]  # cards of older runs have no digests
        images = f"the images of {part['name']} with the options {part.get('options', {})}"
        made = {
            f"the plug-ins of {run}": card.get("model", {}).get("plugins"),
            images: part.get("images"),
        }
        for what, one in made.items():
            if one and known.setdefault(what, one) != one:
                raise ValueError(f"the results differ in {what}: put them into two folders")


def paths_of(cell: Cell, folder: Path) -> list[Path]:
    """Return the paths of the results of one row, in order of seeds."""
    by_seed = {p.stem.removeprefix(f"{cell.run}-"): p for p in folder.glob(f"{cell.run}-*.json")}
    return [by_seed[seed] for seed in sorted(filter(str.isdecimal, by_seed), key=int)]


def _results_of(cell: Cell, paths: Sequence[Path]) -> list[dict]:
    """Return the cards of one row; ValueError for another recipe or a file in the wrong place."""
    cards, shared = [], ("seed", *(name for name in vars(Plan(Path())) if name != "folder"))
    for path in paths:
        cards.append(read_card(path))
        recipe = cards[-1]["recipe"]
        folder, ending = f"{recipe['epochs']}-epochs", f"-{recipe['seed']}.json"
        if path.parent.name != folder or not path.name.endswith(ending):
            raise ValueError(f"{path} is in the wrong place: expected {folder}/RUN{ending}")
        _require_equal(path, recipe, cell.recipe, apart=shared)
    return cards


def _measures(cell: Cell, cards: list[dict]) -> list[str]:
    if not cards:
        return ["–", "–", "not run", "–", "–", "–"]
    tests = [card["results"]["test"] for card in cards]
    error = _mean([test["error_percent"] for test in tests], 2)
    if len(tests) == 1:
        low, high = (100 * (1 - end) for end in reversed(tests[0]["accuracy_ci95"]))
        error = f"{error} [{low:.2f}, {high:.2f}]"
    sses = [test["reconstruction_sse"] for test in tests if test["reconstruction_sse"] is not None]
    margin = _mean([test["margin_loss"] for test in tests], 4) if cell.margin else "–"
    parameters = f"{cards[0]['weights']['parameters']:,}"
    length = str(cards[0]["recipe"]["epochs"])
    kept = [str(card["training"]["epoch"]) for card in cards]
    if set(kept) != {length}:
        length += f" (best: {', '.join(kept)})"
    return [parameters, length, str(len(cards)), error, margin, _mean(sses, 1) if sses else "–"]


def _mean(values: list[float], digits: int) -> str:
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {np.std(values, ddof=1):.{digits + 1}f}"


def _caption(about: reproductions.Table, cards: list[Any]) -> str:
    """Return the contents of a table and the training of its networks."""

    def listed(*keys: str) -> str:
        values = {reduce(getitem, keys, card) for card in cards}
        return " or ".join(f"{v:,}" if isinstance(v, int) else v for v in sorted(values))

    epochs = listed("recipe", "epochs")
    notices = sorted({card["dataset"].get("notice") or "" for card in cards} - {""})
    each = (card["training"]["hardware"].split("; ") for card in cards)  # several if resumed
    hardware = sorted({part.replace(" 1 threads", " 1 thread") for parts in each for part in parts})
    trained = (
        f"{epochs} epoch{'s' * (epochs != '1')} of {listed('training', 'images')} training "
        f"images, batches of {listed('recipe', 'batch_size')}, schedule "
        f"{listed('recipe', 'schedule')}, {listed('training', 'precision')}, "
        f"{'; '.join(hardware)}; {listed('results', 'test', 'n')} test images."
    )
    notes = [f"Note: {notice}." for notice in notices]
    return " ".join([*about.caption.split(), trained, READING, *notes])


def _commands(table: str, results: dict[str, list[dict]]) -> list[str]:
    """Return the commands that make these runs; rows with equal settings share one."""
    groups: dict[tuple[int, str, int], list[str]] = {}
    for run, cards in results.items():
        for epochs in {card["recipe"]["epochs"] for card in cards}:
            some = [card for card in cards if card["recipe"]["epochs"] == epochs]
            how, limit = some[0]["recipe"], some[0]["recipe"]["limit"]
            terms = f" --batch-size {how['batch_size']} --schedule {how['schedule']}"
            terms += f" --precision {some[0]['training']['precision']}"
            terms += "" if limit is None else f" --limit {limit}"
            count = 1 + max(card["recipe"]["seed"] for card in some)
            groups.setdefault((epochs, terms, count), []).append(run)
    lines = []
    for (epochs, terms, count), runs in sorted(groups.items()):
        rows = "" if len(runs) == len(results) else f" --rows {','.join(runs)}"
        lines.append(f"capsviz reproduce {table} --epochs {epochs} --seeds {count}{rows}{terms}")
    return lines


def read_card(path: Path) -> dict:
    """Return the card of a finished run; ValueError for any other file."""
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        card["recipe"]["seed"], card["weights"]["parameters"], card["dataset"]["name"]
        for name in ("hardware", "precision", "epoch", "images"):
            card["training"][name]
        for name in ("n", "error_percent", "accuracy_ci95", "margin_loss", "reconstruction_sse"):
            card["results"]["test"][name]
        return card
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not the result of a run ({type(error).__name__}: {error})"
        ) from error
