"""Shipped statistics over seeds: the numbers of the commands, without weights."""

import pytest
import torch
from click.testing import CliRunner
from helpers.fixtures import empty_page
from helpers.training_runs import train

from benchmarks import seeds
from capsviz import checkpoint, discovery, results
from capsviz.results import leaderboard
from capsviz.results.leaderboard.columns import COLUMNS

SHIPPED = sorted((discovery.folder(checkpoint.SHIPPED) / "seeds").glob("*"))
SINGLES = sorted((discovery.root() / "figures/leaderboard").glob("*"))


@pytest.fixture(scope="module")
def folder_of_seeds(tmp_path_factory):
    """Run two commands over three runs, on three in ten of the digits."""
    tmp_path = tmp_path_factory.mktemp("seeds-of")
    with torch.random.fork_rng():
        for seed in range(3):
            train(tmp_path / f"x-{seed}", seed)
    words = f"small {tmp_path}/x-* --n 30 --only sweep --only transplant".split()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seeds, "FOLDER", tmp_path / "seeds")
        patch.setattr(seeds, "ROOT", tmp_path)
        patch.setattr(results, "draw", empty_page)
        done = CliRunner().invoke(seeds.command, words)
    assert done.exit_code == 0, done.output
    return tmp_path / "seeds/small", done


def test_numbers_are_stored_but_neither_weights_nor_pictures(folder_of_seeds):
    folder, done = folder_of_seeds
    names = ["runs.json", "sweep-small-rotation-digits-30-images-3-runs-step-15-grid-3.json",
             "transplant-small-digits-30-images-3-runs.json"]  # fmt: skip
    assert sorted(path.name for path in folder.iterdir()) == names
    result, about = results.read_result(folder / names[1])
    assert len(result.accuracy.runs) == 3
    assert about["command"].startswith("capsviz sweep --seeds-of 'runs/small-*'")
    assert "seeds/small: " in done.stdout and "s of CPU" in done.stderr


def test_numbers_of_other_runs_are_deleted(tmp_path):
    def of(*digests):
        return {"runs": [{"weights_sha256": digest} for digest in digests]}

    seeds.renew(tmp_path, of("a", "b"))
    (tmp_path / "affine-x.json").write_text("{}")
    seeds.renew(tmp_path, of("a", "b"))
    assert (tmp_path / "affine-x.json").exists()
    seeds.renew(tmp_path, of("a", "c"))
    assert [path.name for path in tmp_path.iterdir()] == ["runs.json"]


def test_a_leaderboard_reads_the_statistics(folder_of_seeds):
    (row,) = leaderboard.table([folder_of_seeds[0]])
    assert row.network.seeds == [0, 1, 2] and row.cells["donor's class"].runs == 3
    assert row.network.accuracy.runs.tolist() == [0.1] * 3 and row.network.seconds == 60


def test_a_failed_command_is_left_out_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = seeds.measure(tmp_path, "sweep", 30, ["--seeds-of", "runs/x-*"])
    assert words.startswith("left out: Error: --seeds-of") and "matches no training run" in words
    assert not list(tmp_path.iterdir())


def test_results_of_one_network_are_stored_by_command(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "draw", empty_page)
    for n in (100, 99):  # the second in place of the first
        place = tmp_path / f"of-{n}"
        place.mkdir()
        monkeypatch.chdir(place)
        told = seeds.measure(tmp_path, "transplant", n, ["--checkpoint", "digits-uniform"])
        assert told.endswith("s of CPU"), told
    (path,) = tmp_path.glob("*.json")
    assert "-99-images" in path.name
    rows = leaderboard.rows(*leaderboard.read(["digits-uniform", tmp_path]))
    assert set(rows[0].cells) == {"donor's class"}


@pytest.mark.parametrize("folder", SINGLES, ids=[path.name for path in SINGLES])
def test_results_of_single_networks_are_from_the_shipped_weights(folder):
    digest = checkpoint.read_card(checkpoint.find(folder.name))["weights"]["sha256"]
    for path in folder.iterdir():
        assert results.read_result(path)[1]["provenance"]["weights_sha256"] == digest


@pytest.mark.parametrize("folder", SHIPPED, ids=[path.name for path in SHIPPED])
def test_shipped_statistics_are_of_several_runs_and_small(folder):
    (row,) = leaderboard.table([folder])
    assert len(row.network.seeds) >= 3
    assert set(row.cells) <= {column.title for column in COLUMNS}
    own = [cell for cell in row.cells.values() if cell.file.parent == folder]
    assert all(cell.runs == len(row.network.seeds) for cell in own)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1e6
