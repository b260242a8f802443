"""Measure statistics over training runs of one recipe, to be shipped without the weights.

    python -m benchmarks.seeds NAME 'GLOB' [--n N]
    python -m benchmarks.seeds NAME 'GLOB' --only cards     # accuracies alone
    python -m benchmarks.seeds NAME [--n N]

Each analysis of `COMMANDS` runs by its command over all runs that the globs match, if the networks
have the required parts. Its numbers are written to trained/seeds/NAME, and those of the cards to
runs.json; both replace those of an earlier call. In commands and results, the runs are named
runs/NAME-SEED. Without globs, the shipped network NAME is measured, by the analyses that have a
column in the leaderboard, and results go to figures/leaderboard/NAME.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from click.testing import CliRunner

from benchmarks import ROOT
from capsviz import checkpoint
from capsviz.cli import main
from capsviz.files import write_text
from capsviz.inputs import runs
from capsviz.results import leaderboard

FOLDER = ROOT / "trained/seeds"
DIGITS = 4  # significant digits of stored numbers
LEFT_OUT = {  # fields that are not stored: pictures, and values of the first run alone
    **dict.fromkeys(("affine", "corrupt", "detect", "parts"), ("examples",)),
    "routing": ("type_coupling",),
}
DECIMALS = {"coupling": 3, "values": 2, "validation": 2}  # decimals of fields with many numbers
OF = {"law": "equivariance", "dose": "transplant"}  # names of commands, if different
CARDS = "cards"  # not an analysis: writes runs.json alone
MANY = 1000  # default number of test images
FEW = {"detect": 100, "faithfulness": 100, "importance": 200, "parts": 200}  # slow analyses
COMMANDS = {  # options of each analysis; the number of images follows
    "affine": ["--n"],
    "corrupt": ["--n"],
    "detect": ["--eps", "0.1", "--eps", "0.3", "--n"],
    "dose": ["--by", "dose", "--n"],
    "equivariance": ["--warp", "rotation", "--fit", "100", "--n"],
    "faithfulness": ["--n"],
    "importance": ["--n"],
    "law": ["--law", "--warp", "rotation", "--n"],
    "parse-tree": ["--n"],
    "parts": ["--n"],
    "probes": ["--n"],
    "routing": ["--n"],
    "sweep": ["--step", "15", "--grid", "3", "--n"],
    "transplant": ["--n"],
}


@click.command(help=__doc__.partition("\n")[0])
@click.argument("name")
@click.argument("patterns", nargs=-1, metavar="['GLOB']...")
@click.option(
    "--n",
    type=click.IntRange(1),
    help="Test images, or all if fewer. [default: 1000, or fewer if it takes long]",
)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice([*COMMANDS, CARDS]),
    help="These alone; may be given several times.",
)
def command(name, patterns, n, only):
    """Run the commands over the runs, and store their numbers."""
    named = runs.named((), patterns) if patterns else [name]
    cards = [checkpoint.read_card(checkpoint.find(run)) for run in named]
    if patterns:
        folder, usual = FOLDER / name, list(COMMANDS)
        networks = ["--seeds-of", f"runs/{name}-*"]
    else:
        columns = {one for column in leaderboard.columns.COLUMNS for one in column.analyses}
        folder, usual = ROOT / "figures/leaderboard" / name, sorted(columns & COMMANDS.keys())
        networks = ["--checkpoint", name]
    folder.mkdir(parents=True, exist_ok=True)
    if patterns:
        renew(folder, summary(name, cards))
    total = cards[0]["results"]["test"]["n"]
    with gathered(name, named, [card["recipe"]["seed"] for card in cards]):
        for one in only or usual:
            if one != CARDS:
                images = min(n or FEW.get(one, MANY), total)
                click.echo(f"{one}: {measure(folder, one, images, networks)}", err=True)
    size = sum(path.stat().st_size for path in folder.iterdir())
    click.echo(f"{folder.relative_to(ROOT)}: {size / 1e3:.0f} kB")


@contextlib.contextmanager
def gathered(name: str, named: Sequence[str], seeds: Sequence[int]) -> Iterator[None]:
    """Change to a temporary folder that has the runs as runs/NAME-SEED."""
    weights = [checkpoint.find(run).resolve() for run in named]
    if "CAPSVIZ_DATA" in os.environ:
        os.environ["CAPSVIZ_DATA"] = str(Path(os.environ["CAPSVIZ_DATA"]).resolve())
    with tempfile.TemporaryDirectory() as place:
        for file, seed in zip(weights, seeds, strict=True):
            run = Path(place) / "runs" / f"{name}-{seed}"
            run.mkdir(parents=True)
            for part in (file, file.with_suffix(".json")):
                (run / part.name).symlink_to(part)
        with contextlib.chdir(place):
            yield


def renew(folder: Path, about: dict) -> None:
    """Write runs.json, which describes the runs of a folder, and remove numbers of other runs."""
    place = folder / "runs.json"
    if place.exists():
        earlier = json.loads(place.read_text(encoding="utf-8"))["runs"]
        digests = [[one["weights_sha256"] for one in runs] for runs in (earlier, about["runs"])]
        if digests[0] != digests[1]:
            for path in folder.glob("*.json"):
                path.unlink()
    write_text(place, json.dumps(about, separators=(",", ":")) + "\n")


def summary(name: str, cards: list[dict]) -> dict:
    """Return seeds, accuracies, sizes and times of the runs, from their cards."""
    return {
        "recipe": name,
        "dataset": cards[0]["dataset"]["name"],
        "notice": cards[0]["dataset"].get("notice"),
        "model": cards[0]["model"],
        "parameters": cards[0]["weights"]["parameters"],
        "terms": {k: v for k, v in cards[0]["recipe"].items() if k != "seed"},
        "runs": [
            {
                "seed": card["recipe"]["seed"],
                "weights_sha256": card["weights"]["sha256"],
                "n": card["results"]["test"]["n"],
                "accuracy": card["results"]["test"]["accuracy"],
                "accuracy_ci95": card["results"]["test"]["accuracy_ci95"],
                "epochs": card["training"]["epochs"],
                "seconds": card["training"]["seconds"],
                "hardware": card["training"]["hardware"],
            }
            for card in cards
        ],
    }


def measure(folder: Path, name: str, images: int, networks: Sequence[str]) -> str:
    """Run one command over networks, store its JSON in the folder, and return a report."""
    begin = time.process_time()
    words = [OF.get(name, name), *networks, *COMMANDS[name], str(images)]
    words += ["--format", "png", "--output", f"seeds/{name}"]
    argv, sys.argv = sys.argv, ["capsviz", *words]  # recorded in the result
    try:
        outcome = CliRunner().invoke(main, words)
    finally:
        sys.argv = argv
    results = sorted(Path(f"seeds/{name}").glob("*.json"))
    if outcome.exit_code or not results:
        return f"left out: {(outcome.stderr or str(outcome.exception)).strip().splitlines()[-1]}"
    for earlier in folder.glob(f"{results[0].name.split('-')[0]}-*"):
        if kind(earlier.name) == kind(results[0].name):
            earlier.unlink()
    for path in results:
        values = rounded(json.loads(path.read_text(encoding="utf-8")))
        values["result"] |= dict.fromkeys(LEFT_OUT.get(name, ()))
        write_text(folder / path.name, json.dumps(values, separators=(",", ":")) + "\n")
    for path in Path(f"seeds/{name}").glob("*.npz"):
        shutil.copy(path, folder / path.name)
    return f"{time.process_time() - begin:.0f} s of CPU"


def kind(name: str) -> tuple[bool, ...]:
    """Return whether a file name has a law, a dose, and a fixed number of iterations."""
    iterations = re.search(r"-iterations-\d+\.json$", name) is not None
    return "-law" in name, "-by-dose-" in name, iterations


def rounded(value, decimals: int | None = None):
    """Round the numbers in a JSON value to some decimals, or to `DIGITS` significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if decimals is None else round(value, decimals) + 0.0
    if isinstance(value, dict):
        return {key: rounded(one, DECIMALS.get(key, decimals)) for key, one in value.items()}
    return [rounded(one, decimals) for one in value] if isinstance(value, list) else value


if __name__ == "__main__":
    command()
