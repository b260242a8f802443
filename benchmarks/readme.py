"""Fill README.md and pages of docs/: outputs of commands, results from the cards, lists.

`python -m benchmarks.readme` rewrites the marked parts of `PAGES`,
docs/findings.md and docs/leaderboard.md; `--no-run` keeps the commands' outputs.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from benchmarks import RESULTS, blocks, findings, layers, parity, robustness
from benchmarks import durations as analyses
from benchmarks.gpu_table import gpu_table
from benchmarks.leaderboard import write as write_leaderboard
from benchmarks.shipped import cards
from benchmarks.table import table
from capsviz import discovery
from capsviz.cli import PACKAGES
from capsviz.experiments import reproductions
from capsviz.experiments.gathering import READING, gather, lengths
from capsviz.results import tables

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "weights",
            "commands",
            "robustness",
            "speed",
            "published",
            "faq",
            "howto",
            "gallery",
        )
    ),
)
HEAD = (  # networks and columns of the leaderboard that the README shows
    ("mnist", "mnist-attention", "mnist-resnet", "mnist-slim-dynamic-10-epochs",
     "mnist-slim-uniform-10-epochs", "mnist-slim-pooled-10-epochs"),
    ("network", "runs", "accuracy, %", "affine, within, %", "affine, beyond, %", "transplant, %",
     "parents, %", "parameters"),
)  # fmt: skip
PART = re.compile(r"<!-- (?P<what>run: [^>]+|[a-z]+) -->\n.*?<!-- end -->", re.DOTALL)


def results() -> str:
    """The table of shipped weights, from their cards."""
    rows = [
        "| weights | parameters | test accuracy (95 % interval) | n | SSE per image | training |",
        "|---|---|---|---|---|---|",
    ]
    notes = []
    for name, card in cards().items():
        test, training = card["results"]["test"], card["training"]
        low, high = test["accuracy_ci95"]
        if notice := card["dataset"].get("notice"):
            notes.append(f"`{name}`: {notice}.")
        if card["dataset"].get("things", 1) > 1:
            notes.append(
                f"`{name}`: all digits of an image are right; SSE of each from its own. The "
                "interval takes the images as independent; a test digit is in several of them, so "
                "it is too narrow."
            )
        rows.append(
            f"| `{name}` | {card['weights']['parameters']:,} "
            f"| **{test['accuracy']:.2%}** ({low:.2%} to {high:.2%}) | {test['n']:,} "
            f"| {_sse(test['reconstruction_sse'])} "
            f"| {training['epochs']} epochs of {training['images']:,} images, "
            f"{training['precision']}, {training['hardware']}; `capsviz train {name}` |"
        )
    return "\n".join([*rows, *(["", *notes] if notes else [])])


def leaderboard_head() -> str:
    """Of docs/leaderboard.md some networks and columns, and what these are."""
    page = (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8")
    text = page.partition("\n|")[2].split("\n\n")[0]
    cells = [line.strip("| ").split(" | ") for line in ("|" + text).splitlines()]
    names, columns = HEAD
    rows = sorted((r for r in cells[2:] if r[0] in names), key=lambda r: names.index(r[0]))
    numbers = [cells[0].index(column) for column in columns]
    lines = [[row[k] for k in numbers] for row in (*cells[:2], *rows)]
    head = ["| " + " | ".join(line) + " |" for line in lines]
    note = (
        "Affine: test images rotated, sheared, scaled and moved, no further than in training or "
        "beyond, read right. Transplant: read as the image whose couplings they got. Parents: how "
        "many parents a capsule effectively has, of all, by its couplings above 0 (self-attention "
        "has others, too). `mnist-slim-*`: one small stem, trained alike, with dynamic routing, "
        "with even couplings, and pooled, without capsules. –: no result; †: by construction. "
        "With 95 % intervals; all networks and numbers: [docs/leaderboard.md](docs/leaderboard.md)."
    )
    return "\n".join([*head, "", note])


def contents(text: str) -> str:
    """A page's headings of the second level as links."""
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    titles = re.findall(r"^## (.+)$", plain, re.MULTILINE)
    return "\n".join(f"- [{title}](#{anchor(title)})" for title in titles)


def anchor(title: str) -> str:
    """Of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def durations() -> str:
    """How long commands take, as measured, and shipped weights took, by their cards."""
    rows = ["| what | time |", "|---|---|"]
    for words, measured in sorted(analyses.read().items(), key=lambda one: one[1]["seconds"]):
        rows.append(f"| `capsviz {words}` | {_clock(measured['seconds'])} |")
    for name, card in cards().items():
        seconds, epochs = card["training"]["seconds"], card["training"]["epochs"]
        rows.append(f"| `capsviz train {name}`, {epochs} epochs | {_clock(seconds)} |")
    return "\n".join(rows)


def _clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


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
    """Every table of `capsviz reproduce` with rows to compare among the shipped; others by name.

    Rows that there are of longer training, too, follow in a table of their own.
    """
    parts, without, folder = [READING], [], discovery.folder("capsviz.trained") / "reproduce"
    for name in reproductions.available():
        title = discovery.summary("capsviz.experiments.reproductions", name)
        try:
            header, rows, caption, notes = gather(name, folder)
        except ValueError:
            rows = []
        if sum("not run" not in row for row in rows) < 2:
            without.append(f"`{name}` ({title.rstrip('.')})")
            continue
        caption = caption.replace(f" {READING}", "")
        commands = "\n".join(["```", *notes, "```"])
        parts += [f"**{name}**", tables.markdown(header, rows), caption, commands]
        epochs = header.index("Epochs")
        longest = max(int(row[epochs].split()[0]) for row in rows if "not run" not in row)
        for length in lengths(name, folder):
            if length > longest:
                parts += _longer(name, folder, length)
    if without:
        parts.append(f"No results are shipped of {'; '.join(without)}.")
    return "\n\n".join(part.rstrip() for part in parts)


def _longer(name: str, folder, epochs: int) -> list[str]:
    """The rows of a table that are trained for so many epochs."""
    header, rows, caption, notes = gather(name, folder, epochs=epochs)
    trained = caption.replace(f" {READING}", "").partition(f"{epochs} epoch")
    return [
        f"**{name}, {epochs} epochs**",
        tables.markdown(header, [row for row in rows if "not run" not in row]),
        "The same table, " + "".join(trained[1:]),
        "\n".join(["```", *notes, "```"]),
    ]


def output(command: str) -> str:
    """A command and what it prints, as a code block."""
    words = shlex.split(command)
    if words[1] != "evaluate":  # the figure at the top is one of them
        words += ["--force", "--output", "runs/readme" if "--n" in words else "figures"]
    run = [sys.executable, "-m", *words]
    text = subprocess.run(run, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return f"```\n$ {command}\n{text.rstrip()}\n```"


def fill(text: str, *, run: bool) -> str:
    """A page with its marked parts made anew."""

    def replace(match: re.Match) -> str:
        what = match["what"]
        if what.startswith("run: "):
            if not run:
                return match[0]
            body = output(what.removeprefix("run: "))
        else:
            body = {
                "leaderboard": leaderboard_head,
                "contents": lambda: contents(text),
                "durations": durations,
                "blocks": blocks.sentence,
                "results": results,
                "speed": speeds,
                "gpu": gpu_table,
                "layers": layers.table,
                "analyses": analyses.table,
                "robustness": robustness.table,
                "reproduced": reproduced,
                "commands": commands,
            }[what]()
        return f"<!-- {what} -->\n{body}\n<!-- end -->"

    return PART.sub(replace, text)


if __name__ == "__main__":
    write_leaderboard()  # whose head README shows
    for path in (ROOT / name for name in PAGES):
        text = fill(path.read_text("utf-8"), run="--no-run" not in sys.argv)
        path.write_text(text, "utf-8")
    findings.write()
