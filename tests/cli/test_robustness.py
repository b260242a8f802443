"""`capsviz robustness`: the numbers of four commands in one table, each measured once."""

import json

import pytest
from helpers.command_line import run

from capsviz.results import read_result

WORDS = ("digits-uniform", "--n", "8", "--format", "png")
OWN = "import capsviz\n\n\ndef build():\n    return capsviz.load('digits-uniform')\n"


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("robustness")
    return folder, run("robustness", *WORDS, "--output", folder)


def test_the_table_has_the_numbers_of_the_commands(measured):
    folder, done = measured
    assert done.exit_code == 0, done.stderr
    found = {}
    for name in ("affine", "sweep", "corrupt", "attack"):
        (path,) = folder.glob(f"{name}-*.json")
        found[name], _ = read_result(path)
    each = (
        found["attack"].clean[0], *found["affine"].accuracy[0, [1, 2]], found["sweep"].area[0],
        found["corrupt"].mean[0], found["attack"].worst[0, 0],
    )  # fmt: skip
    row = done.stdout.splitlines()[2].split("|")[4:10]
    assert [cell.split()[0] for cell in row] == [f"{100 * float(one.value):.1f}" for one in each]
    assert {path.suffix for path in folder.glob("robustness-*")} == {".md", ".tex", ".png"}


def test_what_is_there_is_not_measured_again(measured):
    folder, first = measured
    before = {path: path.stat().st_mtime_ns for path in folder.glob("[acs]*.json")}
    again = run("robustness", *WORDS, "--output", folder, "--json")
    assert again.stderr.count(" is kept: ") == len(before) == 4
    assert {path: path.stat().st_mtime_ns for path in folder.glob("[acs]*.json")} == before
    (row,) = json.loads(again.stdout)
    assert row["cells"]["attacked"]["estimate"]["n"] == 8 and first.exit_code == 0


def test_your_own_network_has_a_row(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    words = ("--network", "mine.py:build", "--dataset", "digits", *WORDS[1:])
    done = run("robustness", *words, "--output", tmp_path / "out")
    assert done.exit_code == 0 and "| mine-build | digits | 1 |" in done.stdout, done.stderr


def test_a_slip_is_one_line(tmp_path):
    done = run("robustness", "digts", "--n", "8", "--output", tmp_path)
    assert done.exit_code == 2 and "unknown checkpoint 'digts'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
