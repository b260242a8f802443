"""Make a table from the results of training runs: a row for each network, averaged over seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capsviz.experiments import reproductions
from capsviz.experiments.reproductions import Cell, get
from capsviz.training.recipe import Recipe, differing

TERMS = ("batch_size", "schedule", "limit")  # equal in all runs of a table, and the precision
MEASURES = ("Parameters", "Epochs", "Seeds", "Test error %", "Margin loss", "SSE", "Published")
READING = (
    "Several seeds: mean ± standard deviation. One seed: the test error with its 95 % interval "
    "over test images, which leaves out how seeds differ."
)


@dataclass(frozen=True)
class Plan:
    """Settings of all runs of a series; None: as in each row's recipe."""

    folder: Path  # of results and runs
    epochs: int | None = None  # None: as the published runs of the table, or 50
    batch_size: int | None = None
    schedule: str | None = "linear"
    precision: str | None = "auto"
    limit: int | None = None  # first training images only, for trials


class Table(NamedTuple):
    """A table as text."""

    header: list[str]
    rows: list[list[str]]
    caption: str  # contents, and training of the networks
    commands: list[str]  # that reproduce its results


def gather(table: str, folder: Path, *, epochs: int | None = None) -> Table:
    """Make a table from the results in a folder.

    Values are means over seeds ± standard deviation; for one seed, the test error has its 95 %
    Wilson interval. Rows without results say so.

    Parameters
    ----------
    epochs  of the runs; None: the number that fills the most rows, and of these the largest. If
            rows are not compared with each other, each has its longest runs.

    Raises
    ------
    ValueError  if there are no results of the table, or different recipes in one row.
    """
    about = get(table)
    cells = about.cells()
    series = {
        n: {c.run: paths_of(c, length) for c in cells} for n, length in _by_length(folder).items()
    }
    filled = {n: sum(map(bool, row.values())) for n, row in series.items() if epochs in (None, n)}
    if not any(filled.values()):
        what = "" if epochs is None else f" after {epochs} epochs"
        raise ValueError(f"no results of the table '{table}'{what} in {folder}")
    fullest, results = max(filled, key=lambda n: (filled[n], n)), {}
    for cell in cells:
        lengths = [n for n in filled if series[n][cell.run]] if about.apart else [fullest]
        results[cell.run] = results_of(cell, series[max(lengths, default=fullest)][cell.run])
    rows = [[*cell.labels, *_measures(cell, results[cell.run]), cell.published] for cell in cells]
    cards = [card for some in results.values() for card in some]
    for some in results.values() if about.apart else [cards]:
        _require_alike(some)
    caption = _caption(about, cards)
    return Table([*about.labels, *MEASURES], rows, caption, _commands(table, results))


def lengths(table: str, folder: Path) -> list[int]:
    """Return numbers of epochs for which two rows or more have results."""
    runs = {cell.run for cell in get(table).cells()}
    by_length = {
        n: runs & {path.stem.rpartition("-")[0] for path in length.glob("*-[0-9]*.json")}
        for n, length in _by_length(folder).items()
    }
    return sorted(n for n, rows in by_length.items() if len(rows) > 1)


def _by_length(folder: Path) -> dict[int, Path]:
    """Return the folders N-epochs by N."""
    names = {path.name.removesuffix("-epochs"): path for path in folder.glob("[0-9]*-epochs")}
    return {int(name): path for name, path in names.items() if name.isdecimal()}


def paths_of(cell: Cell, folder: Path) -> list[Path]:
    """Return the results of one row, by seed."""
    by_seed = {p.stem.removeprefix(f"{cell.run}-"): p for p in folder.glob(f"{cell.run}-*.json")}
    return [by_seed[seed] for seed in sorted(filter(str.isdecimal, by_seed), key=int)]


def results_of(cell: Cell, paths: Sequence[Path]) -> list[dict]:
    """Return the cards of one row; ValueError if they have another recipe."""
    cards, shared = [], ("seed", *(name for name in vars(Plan(Path())) if name != "folder"))
    for path in paths:
        cards.append(read_card(path))
        _require_name(path, cards[-1]["recipe"])
        require_equal(path, cards[-1]["recipe"], cell.recipe, apart=shared)
    return cards


def _require_name(path: Path, recipe: dict) -> None:
    """Raise ValueError for a file N-epochs/RUN-SEED.json of another length or seed."""
    folder, ending = f"{recipe['epochs']}-epochs", f"-{recipe['seed']}.json"
    if path.parent.name != folder or not path.name.endswith(ending):
        raise ValueError(f"{path} is in the wrong place: expected {folder}/RUN{ending}")


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
    sse = _mean(sses, 1) if sses else "–"
    return [parameters, _epochs(cards), str(len(cards)), error, margin, sse]


def _epochs(cards: list[dict]) -> str:
    """Return their number; and the best epochs, unless the last one is kept in every run."""
    epochs = cards[0]["recipe"]["epochs"]
    kept = [card["training"]["epoch"] for card in cards]
    return f"{epochs}" if set(kept) == {epochs} else f"{epochs} (best: {', '.join(map(str, kept))})"


def _mean(values: list[float], digits: int) -> str:
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {np.std(values, ddof=1):.{digits + 1}f}"


def _terms_of(card: dict) -> dict:
    """Return the settings that all runs of a table share."""
    recipe = {name: card["recipe"][name] for name in TERMS}
    return recipe | {"precision": card["training"]["precision"]}


def _require_alike(cards: list[dict]) -> None:
    """Raise ValueError for runs with different settings."""
    for name in (*TERMS, "precision"):
        values = {_terms_of(card)[name] for card in cards}
        if len(values) > 1:
            listed = ", ".join(sorted(map(str, values)))
            raise ValueError(f"the results differ in {name} ({listed}): put them into two folders")


def _caption(about: reproductions.Table, cards: list[dict]) -> str:
    """Return the contents of a table and the training of its networks."""

    def listed(name: str) -> str:
        return " or ".join(sorted({str(_terms_of(card)[name]) for card in cards}))

    lengths = sorted({card["recipe"]["epochs"] for card in cards})
    images = " or ".join(f"{n:,}" for n in sorted({card["training"]["images"] for card in cards}))
    epochs = f"{' or '.join(map(str, lengths))} epoch{'' if lengths == [1] else 's'}"
    notices = sorted({card["dataset"].get("notice") or "" for card in cards} - {""})
    each = (card["training"]["hardware"].split("; ") for card in cards)  # resumed: several
    hardware = sorted({part.replace(" 1 threads", " 1 thread") for parts in each for part in parts})
    tests = sorted({card["results"]["test"]["n"] for card in cards})
    return " ".join(
        [
            " ".join(about.caption.split()),
            f"{epochs} of {images} training images, batches of {listed('batch_size')}, schedule "
            f"{listed('schedule')}, {listed('precision')}, {'; '.join(hardware)}; "
            f"{' and '.join(f'{n:,}' for n in tests)} test images.",
            READING,
            *(f"Note: {notice}." for notice in notices),
        ]
    )


def _commands(table: str, results: dict[str, list[dict]]) -> list[str]:
    """Return the commands that make exactly these runs, given the cards of each row.

    Rows with equal epochs and seeds share a command; a seed above a missing one has its own.
    """
    groups: dict[tuple[int, str, int], list[str]] = {}
    alone = []
    for run, cards in results.items():
        for epochs in {card["recipe"]["epochs"] for card in cards}:
            some = [card for card in cards if card["recipe"]["epochs"] == epochs]
            seeds = {card["recipe"]["seed"] for card in some}
            whole, terms = next(n for n in range(len(seeds) + 1) if n not in seeds), _flags(some[0])
            if whole:
                groups.setdefault((epochs, terms, whole), []).append(run)
            alone += [(epochs, seed, run, terms) for seed in seeds if seed > whole]
    lines = []
    for (epochs, terms, count), runs in sorted(groups.items()):
        rows = "" if len(runs) == len(results) else f" --rows {','.join(runs)}"
        lines.append((epochs, f"--seeds {count}{rows}{terms}"))
    lines += [
        (epochs, f"--seeds {seed + 1} --rows {run} --task {seed + 1}/{seed + 1}{terms}")
        for epochs, seed, run, terms in sorted(alone)
    ]
    return [f"capsviz reproduce {table} --epochs {epochs} {which}" for epochs, which in lines]


def _flags(card: dict) -> str:
    """Return the options that a run was made with."""
    how, limit = card["recipe"], card["recipe"]["limit"]
    return (
        f" --batch-size {how['batch_size']} --schedule {how['schedule']} "
        f"--precision {card['training']['precision']}{'' if limit is None else f' --limit {limit}'}"
    )


def require_equal(path: Path, stored: dict, recipe: Recipe, *, apart: Sequence[str] = ()) -> None:
    """Raise ValueError if a stored recipe differs in more than the fields `apart`."""
    if names := differing(stored, recipe) - set(apart):
        raise ValueError(
            f"{path} was made by another recipe (it differs in {', '.join(sorted(names))}): "
            "ask for the same, or choose another --folder"
        )


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
