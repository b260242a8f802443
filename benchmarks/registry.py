"""Build, wrap, trace, check and compare public networks, and make tables of the results.

`python -m benchmarks.registry --folder FOLDER` reads checkouts FOLDER/OWNER+NAME, which should be
at the commits in docs/networks.json, and writes its measurements to that file. It downloads
nothing. `--show NAME` prints the file that builds a network. The tables of docs/networks.md are
made from docs/networks.json.
"""

from __future__ import annotations

import ast
import copy
import json
import os
import re
import signal
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path

import click
import torch

import capsviz
from benchmarks import ROOT
from benchmarks.variables import compared
from capsviz import checks
from capsviz.checks import calling
from capsviz.checks.verdict import STATUSES
from capsviz.results.tables import markdown
from capsviz.wrapping import Wrapped, open_function, open_module

FILE = ROOT / "docs/networks.json"
SECONDS = 900  # limit of computing time for one network
EXACT = 1e-6  # largest difference that counts as equal, for numbers near 1


def described(network, trace: capsviz.Trace) -> str:
    """Describe in one line what `wrap` found."""
    R, _, I, J = trace.couplings.shape
    grid = " × ".join(map(str, network.grid)) if network.grid else f"{I:,}"
    places = "" if network.grid else " without positions"
    shown = f"{R} iteration{'s' * (R > 1)}"
    shown = "the last iteration alone" if network.inferred.last_alone else shown
    words = [f"{grid} capsules{places} below {J}", shown]
    return ", ".join(words + ["decoder"] * (network.decoder is not None))


def verdicts(network, path: Path, shape: str) -> dict[str, dict[str, str]]:
    """Return the messages of the checks by status and name; of `plain` if the file defines it."""
    text, own = path.read_text("utf-8"), ""
    if "def plain(" in text:
        network, own = open_module(f"{path}:plain")[0], "plain_"
    calling.SECONDS = SECONDS  # run all checks on slow networks, too
    facts = {"new": copy.deepcopy(network)}
    if not isinstance(network, Wrapped):  # `wrap` refuses it
        facts |= {"image_shape": tuple(map(int, re.findall(r"\d+", shape))), "classes": 10}
    if f"def {own}loss(" in text:
        facts["loss"] = open_function(f"{path}:{own}loss", arguments=3)
    found: dict[str, dict[str, str]] = {status: {} for status in STATUSES}
    for one in checks.run(network, **facts).verdicts:
        found[one.status][one.check] = one.message
    return found


def late(*_) -> None:
    """Raise TimeoutError, as a signal handler."""
    raise TimeoutError(f"more than {SECONDS} s of computing")


def measure(entry: dict, checkout: Path, check: bool) -> dict:
    """Measure one network; runs in a separate process."""
    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    os.chdir(checkout / entry["folder"])
    sys.path.insert(0, os.getcwd())
    path = Path(tempfile.mkdtemp()) / "check.py"
    path.write_text(entry["file"], "utf-8")
    torch.manual_seed(0)
    result = {"torch": torch.__version__.partition("+")[0], "capsviz": capsviz.__version__}
    try:
        network = open_module(f"{path}:build")[0]
        result |= {"found": entry.get("refused"), "compared": {}}
        if isinstance(network, Wrapped):
            trace, result["compared"] = compared(network, str(checkout))
            result["found"] = described(network, trace)
        if check:
            try:
                result["checks"] = verdicts(network, path, entry["input"])
            except ValueError as error:
                result["unchecked"] = str(error)
    except Exception as error:  # public code may raise anything
        result["error"] = f"{type(error).__name__}: {error}"
    return result


@click.command()
@click.option("--show", help="Print the file that builds this network.")
@click.option("--folder", type=click.Path(exists=True, file_okay=False), default=".")
@click.option("--only", default="", help="Networks whose names contain this.")
@click.option("--jobs", default=1, help="Networks at a time.")
@click.option("--check/--no-check", default=True, help="Whether to make the checks anew.")
def main(show: str | None, folder: str, only: str, jobs: int, check: bool) -> None:
    """Measure public networks in a folder of checkouts."""
    entries = json.loads(FILE.read_text("utf-8"))
    if show:
        found = {entry["name"]: entry for entry in entries}
        if show not in found:
            raise click.BadParameter(f"no network {show}; one of: {'; '.join(found)}")
        place = f"# to be run in {found[show]['folder']}" * (found[show]["folder"] != ".")
        click.echo(f"{place}\n{found[show]['file']}".strip())
        return
    with get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        runs = []
        for entry in entries:
            checkout = Path(folder, entry["repository"].replace("/", "+")).resolve()
            if only in entry["name"] and checkout.is_dir():
                runs.append((entry, pool.apply_async(measure, (entry, checkout, check))))
        for entry, run in runs:
            found = run.get()
            click.echo(f"{entry['name']}: {json.dumps(found, ensure_ascii=False)}")
            if "error" not in found:
                entry["measured"] = entry.get("measured", {}) | found
                FILE.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n", "utf-8")


def networks(words: str = "what") -> str:
    """Return a text about public networks: the table "what" or "checks", or a summary "count"."""
    entries = json.loads(FILE.read_text("utf-8"))
    return {"what": _what, "checks": _checks, "count": _count}[words](entries)


def exact(entry: dict) -> bool:
    """Return whether poses and votes or couplings were compared, and all parts are equal."""
    found = entry["measured"]["compared"]
    inside = "poses" in found and {"votes", "couplings"} & set(found)
    return bool(inside) and all(off <= EXACT for _, off in found.values())


def _count(entries: list[dict]) -> str:
    checked = sum("checks" in entry["measured"] for entry in entries)
    tried = sum(bool(entry["ran"]) for entry in entries)
    return (
        f"The table lists {len(entries)} networks, of which {checked} were checked. In "
        f"{sum(map(exact, entries))} of them every part that was compared differs by 1e-6 at most. "
        f"`routing`, `tsne`, `sweep` and `transplant` were tried on {tried} networks and ran, "
        "`perturb` and `detect` on those with a decoder."
    )


def _link(entry: dict) -> str:
    url = f"https://github.com/{entry['repository']}"
    return f"[{entry['name']}]({url}) `{entry['commit'][:7]}`"


def _what(entries: list[dict]) -> str:
    header = ["repository, commit", "input", "arguments of `wrap`", "found", "compared"]
    rows = []
    for entry in entries:
        changed = f" ({entry['changed']})" * bool(entry["changed"])
        found = entry["measured"]["compared"]
        parts = [f"{name}{f' {off:.1g}' * (off > EXACT)}" for name, (_, off) in found.items()]
        rows.append([
            _link(entry) + changed, entry["input"], _arguments(entry["file"]),
            entry["measured"]["found"], ", ".join(parts) or "none",
        ])  # fmt: skip
    return markdown(header, rows).replace("--:", ":--")


def _arguments(file: str) -> str:
    """Return the keyword arguments of `capsviz.wrap` in a file."""
    calls = (node for node in ast.walk(ast.parse(file)) if isinstance(node, ast.Call))
    call = next((node for node in calls if ast.unparse(node.func) == "capsviz.wrap"), None)
    if call is None:
        return ""
    given = {one.arg: ast.unparse(one.value) for one in call.keywords}
    if "example" in given:
        given["example"] = "..."
    return ", ".join(f"`{key}={value}`".replace("|", "\\|") for key, value in given.items())


def _checks(entries: list[dict]) -> str:
    header = ["repository", "FAIL", "WARN", "SKIPPED"]
    rows = []
    for entry in entries:
        if (found := entry["measured"].get("checks")) is None:
            continue
        said = [
            " · ".join(f"`{name}`: {_short(text)}" for name, text in found[status].items())
            for status in ("FAIL", "WARN")
        ]
        rows.append([entry["name"], *said, str(len(found["SKIPPED"]))])
    return markdown(header, rows).replace("--:", ":--")


def _short(text: str) -> str:
    """Return the measurement in a verdict's message, without the expected value."""
    for end in (", expected", "; expected", ": expected", " (expected", ": the decoder gets"):
        text = text.partition(end)[0]
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
