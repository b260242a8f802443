"""Fill README.md: outputs of its commands, results from the cards, the list of commands.

`python -m benchmarks.readme` rewrites the marked parts, docs/claims.md and docs/leaderboard.md;
`--no-run` keeps the commands' outputs.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from benchmarks import RESULTS, claims, leaderboard, parity, robustness
from benchmarks.table import table
from capsviz import checkpoint, discovery
from capsviz.cli import PACKAGES
from capsviz.experiments import reproductions
from capsviz.experiments.reproduce import READING, gather
from capsviz.figures import tables

ROOT = Path(__file__).resolve().parent.parent
PART = re.compile(
    r"<!-- (?P<what>run: [^>]+|results|speed|robustness|reproduced|commands) -->\n.*?<!-- end -->",
    re.DOTALL,
)


def results() -> str:
    """The table of shipped weights, from their cards."""
    rows = [
        "| weights | parameters | test accuracy (95 % interval) | n | SSE per image | training |",
        "|---|---|---|---|---|---|",
    ]
    several = []
    for name in checkpoint.shipped():
        card = checkpoint.read_card(discovery.folder("capsviz.trained") / f"{name}.safetensors")
        test, made = card["results"]["test"], card["training"]
        low, high = test["accuracy_ci95"]
        if card["dataset"].get("things", 1) > 1:
            several.append(
                f"`{name}`: all digits of an image are right; SSE of each from its own. The "
                "interval takes the images as independent; a test digit is in several of them, so "
                "it is too narrow."
            )
        rows.append(
            f"| `{name}` | {card['weights']['parameters']:,} "
            f"| **{test['accuracy']:.2%}** ({low:.2%} to {high:.2%}) | {test['n']:,} "
            f"| {_sse(test['reconstruction_sse'])} "
            f"| {made['epochs']} epochs of {made['images']:,} images, {made['precision']}, "
            f"{made['hardware']}; `capsviz train {name}` |"
        )
    return "\n".join([*rows, *(["", *several] if several else [])])


def _sse(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def commands() -> str:
    """One row for each command, from the first line of its file."""
    rows = [
        f"| `capsviz {name.replace('_', '-')}` | {discovery.summary(package, name)} |"
        for package in reversed(PACKAGES)
        for name in discovery.names(package)
    ]
    return "\n".join(["| command | |", "|---|---|", *rows])


def speeds() -> str:
    """The table of speed and memory, and parity, from benchmarks/results."""
    speed, gathered = (json.loads((RESULTS / f"{k}.json").read_text()) for k in ("speed", "parity"))
    return table(speed) + "\n\n" + parity.sentence(gathered)


def reproduced() -> str:
    """Every table of `capsviz reproduce` with rows to compare among the shipped; others by name."""
    parts, without = [READING], []
    for name in reproductions.available():
        title = discovery.summary("capsviz.experiments.reproductions", name)
        try:
            header, rows, caption, made = gather(
                name, discovery.folder("capsviz.trained") / "reproduce"
            )
        except ValueError:
            rows = []
        if sum("not run" not in row for row in rows) < 2:
            without.append(f"`{name}` ({title.rstrip('.')})")
            continue
        caption = caption.replace(f" {READING}", "")
        commands = "\n".join(["```", *made, "```"])
        parts += [f"**{name}**", tables.markdown(header, rows), caption, commands]
    if without:
        parts.append(f"No results are shipped of {'; '.join(without)}.")
    return "\n\n".join(part.rstrip() for part in parts)


def output(command: str) -> str:
    """A command and what it prints, as a code block."""
    words = shlex.split(command)
    if words[1] != "evaluate":  # the figure at the top is one of them
        words += ["--output", "runs/readme" if "--evaluate" in words else "figures"]
    run = [sys.executable, "-m", *words]
    text = subprocess.run(run, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return f"```\n$ {command}\n{text.rstrip()}\n```"


def fill(text: str, *, run: bool) -> str:
    """The README with its marked parts made anew."""

    def replace(match: re.Match) -> str:
        what = match["what"]
        if what.startswith("run: "):
            if not run:
                return match[0]
            body = output(what.removeprefix("run: "))
        else:
            body = {
                "results": results,
                "speed": speeds,
                "robustness": robustness.table,
                "reproduced": reproduced,
                "commands": commands,
            }[what]()
        return f"<!-- {what} -->\n{body}\n<!-- end -->"

    return PART.sub(replace, text)


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(fill(readme.read_text("utf-8"), run="--no-run" not in sys.argv), "utf-8")
    claims.write()
    leaderboard.write()
