"""Several processes fill one table, as a scheduler would start them."""

import itertools
import json
import os
from functools import partial

import pytest
from helpers.distributed_ranks import Ranks, capsviz

from capsviz.experiments import reproduce

TABLE = '''"""A tiny table.

Of the embedded digits.
"""

from capsviz.experiments.reproductions import Cell
from capsviz.training.recipe import Recipe

LABELS = ("Iterations",)


def cells():
    rows = []
    for iterations in (1, 2):
        options = {"channels": 8, "types": 2, "hidden": [16, 16], "iterations": iterations}
        recipe = Recipe("digits", options=options)
        rows.append(Cell(f"tiny-{iterations}", (str(iterations),), recipe))
    return rows
'''


def reproduced(plugins, *words):
    """Run the command with the table in these plug-ins."""
    os.environ["CAPSVIZ_PLUGINS"] = str(plugins)
    capsviz("reproduce", "tiny", *words)


@pytest.mark.slow
def test_two_processes_fill_one_table(tmp_path):
    folder, shared = tmp_path / "plugins" / "reproductions", tmp_path / "shared"
    folder.mkdir(parents=True)
    (folder / "tiny.py").write_text(TABLE)
    words = ["--seeds", 2, "--epochs", 3, "--limit", 40, "--precision", "fp32", "--folder", shared]
    started = []
    for task in ("1/2", "2/2"):
        logs = tmp_path / f"log-{task[0]}"
        logs.mkdir()
        work = partial(reproduced, folder.parent, *words, "--task", task)
        started.append(Ranks(work, logs, 1))
    for run in started:
        assert run.wait() == [0], run.printed("err")
    results = sorted(path.stem for path in (shared / "3-epochs").glob("*.json"))
    assert results == ["tiny-1-0", "tiny-1-1", "tiny-2-0", "tiny-2-1"]
    table = json.loads((shared / "3-epochs" / "tiny-1-1.json").read_text())
    assert table["training"]["epoch"] <= 3 and table["recipe"]["seed"] == 1
    text = (shared / "tables" / "tiny.md").read_text()
    assert text.count("| 3 | 2 |") == 2, text  # epochs and seeds of every row


def test_tasks_share_the_runs_without_overlap():
    runs = list(range(7))
    shares = [reproduce.share(runs, (i, 3)) for i in (1, 2, 3)]
    assert sorted(itertools.chain(*shares)) == runs and all(shares)
