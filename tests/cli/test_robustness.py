"""`capsviz robustness` collects the numbers of four commands in one table, each measured once."""

import json
import os

import click
import numpy as np
import pytest
from helpers.command_line import refused, run
from helpers.fixtures import empty_page

from capsviz import checkpoint, data, results
from capsviz.cli import main, naming

SMALL = ("--n", "5", "--format", "png")  # so few that all numbers of the row differ
WORDS = ("digits-uniform", *SMALL)
DIGITS = np.pad(np.full((30, 4, 4), 200, np.uint8), ((0, 0), (2, 2), (2, 2)))
OWN = "import capsviz\n\n\ndef build():\n    return capsviz.load('digits-uniform')\n"


def identity(command, words):
    group = click.Context(main)
    return naming.identity(main.get_command(group, command).make_context(command, [*words], group))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Run the command once; the pictures of the four commands, tested elsewhere, are empty."""
    place = tmp_path_factory.mktemp("robustness")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "draw", empty_page)
        assert run("robustness", *WORDS, "--output", place).exit_code == 0
    return place


def test_the_table_has_the_numbers_of_the_commands_and_does_not_rerun_them(folder):
    names = ("affine", "sweep", "corrupt", "attack")
    paths = [path for name in names for path in folder.glob(f"{name}-*.json")]
    before = [path.stat().st_mtime_ns for path in paths]
    again = run("robustness", *WORDS, "--output", folder)
    assert again.stderr.count(": reusing ") == len(paths) == 4
    assert [path.stat().st_mtime_ns for path in paths] == before
    affine, sweep, corrupt, attack = (results.read_result(path)[0] for path in paths)
    each = (
        attack.clean[0], *affine.accuracy[0, [1, 2]], sweep.area[0], corrupt.mean[0],
        attack.worst[0, 0],
    )  # fmt: skip
    row = again.stdout.splitlines()[2].split("|")[4:10]
    assert [cell.split()[0] for cell in row] == [f"{100 * float(one.value):.1f}" for one in each]
    assert {path.suffix for path in folder.glob("robustness-*")} == {".md", ".tex", ".png"}


@pytest.mark.parametrize("command", ["affine", "figures"])
def test_numbers_of_a_changed_network_or_changed_data_are_not_kept(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    (tmp_path / "models/layers").mkdir(parents=True)
    (tmp_path / "models/__init__.py").touch()
    (tmp_path / "models/layers/routing.py").touch()
    np.savez(tmp_path / "x.npz", images=DIGITS, labels=np.arange(30) % 10)
    words = ["--network", "mine.py:build", "--dataset", "npz", "--data-dir", "x.npz"]
    known = identity(command, words)
    assert identity(command, words) == known
    for name in ("mine.py", "models/layers/routing.py", "x.npz"):
        os.utime(tmp_path / name, (1, 1))
        assert identity(command, words) != known
        known = identity(command, words)


@pytest.mark.parametrize("words", ["--seeds-of ~/runs/x-*", "--checkpoint {}/runs/x-[1]"])
def test_changed_weights_are_noticed_however_they_are_named(tmp_path, monkeypatch, words):
    monkeypatch.setenv("HOME", str(tmp_path))
    weights = tmp_path / "runs/x-[1]/x.safetensors"
    weights.parent.mkdir(parents=True)
    weights.touch()
    words = words.format(tmp_path).split()
    known = identity("affine", words)
    os.utime(weights, (1, 1))
    assert identity("affine", words) != known


@pytest.mark.parametrize("words", [("digits",), (), ("digits", "--dataset", "digits")])
def test_shipped_weights_of_another_version_are_noticed(monkeypatch, words):
    known = identity("affine", words)
    assert identity("affine", words) == known
    monkeypatch.setattr(checkpoint, "read_card", lambda path: {"weights": {"sha256": "other"}})
    assert identity("affine", words) != known


def test_data_that_are_downloaded_meanwhile_are_no_error(tmp_path, monkeypatch):
    load = data.load

    def downloaded(*given, **options):
        (tmp_path / "data/digits.gz").touch()
        return load(*given, **options)

    (tmp_path / "data").mkdir()
    monkeypatch.setattr(data, "load", downloaded)
    monkeypatch.setattr("capsviz.commands.robustness.ANALYSES", ("attack",))
    words = ("--dataset", "digits", "--data-dir", tmp_path / "data", "--output", tmp_path / "out")
    done = run("robustness", *WORDS, "--n", 2, *words)
    assert done.exit_code == 0 and "digits-uniform" in done.stdout, done.exception


def test_a_figure_set_of_a_changed_network_is_refused(blank, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    words = ("figures", "--network", "mine.py:build", "--dataset", "digits", "--only", "rotate")
    assert run(*words, "--n", 4, "--output", "x").exit_code == 0
    assert "rotate: kept" in run(*words, "--n", 4, "--output", "x").stderr
    (tmp_path / "mine.py").write_text(OWN.replace("-uniform", ""))
    refused(run(*words, "--n", 4, "--output", "x"), "network files differ", "delete that folder")


def test_a_user_defined_network_has_a_row_and_a_typo_is_one_line(blank, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    words = ("--network", "mine.py:build", "--dataset", "digits", "--n", 2, *SMALL[2:])
    done = run("robustness", *words, "--output", tmp_path / "out", "--json")
    assert [row["name"] for row in json.loads(done.stdout)] == ["mine-build"]
    refused(run("robustness", "digts", "--output", tmp_path), "unknown checkpoint 'digts'")
