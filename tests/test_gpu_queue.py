"""The trainings that wait for a GPU: each is a recipe that can be built, none is begun twice."""

import tarfile
from pathlib import Path

from benchmarks import gpu_queue
from capsviz.training import run as pipeline


def test_every_training_has_a_recipe_whose_network_can_be_described():
    jobs = gpu_queue.jobs()
    recipes = {
        name: pipeline.prepare(source, dict(flags))[1] for name, (source, flags) in jobs.items()
    }
    assert len({str(recipe) for recipe in recipes.values()}) == len(jobs)
    assert {r.seed for n, r in recipes.items() if n.startswith("iterations-")} == set(range(10, 30))


def test_a_job_is_trained_once_and_what_is_kept_of_it_is_packed(tmp_path, monkeypatch, capsys):
    terms = {"dataset": "digits", "epochs": 1, "limit": 64, "options": {"types": 1, "channels": 4}}
    broken = {"dataset": "digits", "options": {"types": -1}}
    monkeypatch.setattr(
        gpu_queue, "jobs", lambda: {"good-0": (None, dict(terms)), "bad-0": (None, dict(broken))}
    )
    for _ in range(2):
        gpu_queue.work(tmp_path / "runs", 1e6, 1, "", "cpu", {})
    assert capsys.readouterr().out.count("good-0") == 1
    assert "types" in (tmp_path / "runs/bad-0/failed.txt").read_text()
    gpu_queue.work(tmp_path / "late", 1, 60, "", "cpu", {})
    assert not (tmp_path / "late").exists()
    gpu_queue.pack(tmp_path / "runs", tmp_path / "packed", "good", "")
    with tarfile.open(tmp_path / "packed/runs-0.tar.gz") as archive:
        kept = {Path(name).name for name in archive.getnames()}
    assert kept == {"good-0.safetensors", "good-0.json", "epochs.csv", "seconds.txt"}
