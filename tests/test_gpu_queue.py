"""The queue of a GPU's half hour: its commands are today's, and it goes on where it stopped."""

import csv
import json
import sys
import tarfile
import time
from types import SimpleNamespace

import pytest
from helpers.mnist_files import write_idx

from benchmarks import gpu_queue
from benchmarks.gpu_queue import archives, processes
from benchmarks.gpu_queue.archives import MOST_BYTES
from benchmarks.gpu_queue.jobs import PAPER, Job, Size
from capsviz.cli import main
from capsviz.experiments.affnist import NETWORKS
from capsviz.experiments.reproductions import get


def script(tmp_path, name, text="", seconds=0.0, *, leaves=True, alone=False):
    """A job that runs a line of Python and leaves a file."""
    result = tmp_path / f"{name}.result"
    text += f"\nfrom pathlib import Path\nPath({str(result)!r}).touch()" if leaves else ""
    return Job(name, seconds, [sys.executable, "-S", "-c", text], [result], alone)


def run(tmp_path, jobs, seconds=60, **flags):
    return gpu_queue.run(jobs, tmp_path / "work", seconds, report=lambda line: None, **flags)


def test_every_command_is_one_of_today_s_and_names_are_single(tmp_path):
    jobs = gpu_queue.queue(tmp_path, Size(), "cuda")
    assert len({job.name for job in jobs}) == len(jobs)
    assert len({path for job in jobs for path in job.results}) == sum(
        len(job.results) for job in jobs
    )
    for job in jobs:
        if "capsviz" in job.command:
            name, *words = job.command[job.command.index("capsviz") + 1 :]
            context = main.make_context("capsviz", [name])
            with main.get_command(context, name).make_context(name, words) as parsed:
                assert parsed.params["device"] == "cuda"
                assert len(job.results) == 1


def test_what_is_wanted_most_comes_first_and_everything_is_there(tmp_path):
    names = [job.name for job in gpu_queue.queue(tmp_path, Size(), "cuda")]
    first = ["epochs", "steps", "tests", "precision", *(f"{PAPER}-{seed}" for seed in range(3))]
    assert names[:7] == first
    for table in ("paper", "routings", "resnet"):
        for cell in get(table).cells():
            assert any(name.startswith(cell.run) for name in names), cell.run
    for state in ("matched", "full"):
        rows = {f"affnist-{name}-{seed}-{state}" for name in NETWORKS for seed in range(3)}
        assert rows <= set(names)
    assert {"mnist-routing-4-0", "mnist-routing-5-2", "cifar10-0", "fashion_mnist-0"} <= set(names)
    timed = [job.name for job in gpu_queue.queue(tmp_path, Size(), "cuda") if job.alone]
    assert timed == ["epochs", "steps"]


def test_it_skips_what_is_there_and_what_fails_stops_nothing(tmp_path):
    jobs = [
        script(tmp_path, "there", "raise SystemExit(9)"),
        script(tmp_path, "broken", "raise SystemExit(3)"),
        script(tmp_path, "empty", leaves=False),
        script(tmp_path, "long", seconds=1000),
        script(tmp_path, "good"),
    ]
    jobs[0].results[0].touch()
    became = run(tmp_path, jobs)
    assert list(became) == [job.name for job in jobs]  # by priority
    assert became == {
        "there": "there",
        "broken": "failed: exit 3",
        "empty": "failed: it left no empty.result",
        "long": "no time",
        "good": "done",
    }
    assert run(tmp_path, jobs)["good"] == "there"


def test_what_says_that_it_failed_is_tried_again(tmp_path):
    result, report = tmp_path / "speed.json", tmp_path / "tests.xml"
    text = f'from pathlib import Path\nPath({str(result)!r}).write_text(\'{{"failed": "x"}}\')'
    job = Job("speed", 0, [sys.executable, "-S", "-c", text], [result])
    assert run(tmp_path, [job]) == {"speed": "failed: so says speed.json"}
    assert run(tmp_path, [job]) == {"speed": "failed: so says speed.json"}  # not "there"
    report.write_text('<testsuite errors="2" failures="0"/>')
    assert not processes.finished(report)
    report.write_text('<testsuite errors="0" failures="0"/>')
    assert processes.finished(report)


def test_the_tests_that_want_a_gpu_are_named(tmp_path):
    (job,) = (job for job in gpu_queue.queue(tmp_path, Size(), "cuda") if job.name == "tests")
    files = [word for word in job.command if word.endswith(".py")]
    assert len(files) >= 5 and any(word.endswith("test_train.py") for word in files)


def test_parts_are_linked_where_nothing_is_installed(tmp_path, monkeypatch):
    (tmp_path / "capsviz").mkdir()
    monkeypatch.setattr(gpu_queue.importlib.util, "find_spec", lambda name: None)
    gpu_queue.link_parts(tmp_path)
    assert (tmp_path / "capsviz" / "analyses").readlink().as_posix() == "../analyses"


def test_what_is_interrupted_goes_on_though_less_time_is_left(tmp_path, monkeypatch):
    state = tmp_path / "epochs"
    text = (
        "import time\nfrom pathlib import Path\n"
        f"state = Path({str(state)!r})\n"
        "if not state.exists():\n    state.touch()\n    time.sleep(600)"
    )
    jobs = [script(tmp_path, "training", text, seconds=1.5), script(tmp_path, "next", seconds=1)]
    assert run(tmp_path, jobs, 2) == {"training": "interrupted", "next": "no time"}
    assert state.exists() and not jobs[0].results[0].exists()
    monkeypatch.setattr(processes, "GOING_ON", 0)
    jobs[0] = jobs[0]._replace(seconds=1000)
    assert run(tmp_path, jobs[:1], 60) == {"training": "done"}


def test_what_is_timed_runs_alone_and_the_rest_side_by_side(tmp_path):
    lines = tmp_path / "lines"
    lines.touch()
    text = (
        f"import time\nlines = open({str(lines)!r}, 'a+', buffering=1)\n"
        "lines.write('+{0}\\n')\n"
        "while {1!r} not in open(lines.name).read():\n    time.sleep(0.01)\n"
        "lines.write('-{0}\\n')"
    )
    awaited = {"a": "+b", "b": "+a", "c": "+c", "d": "+d"}  # a and b do not end but together
    jobs = [
        script(tmp_path, name, text.format(name, other), alone=name == "c")
        for name, other in awaited.items()
    ]
    assert set(run(tmp_path, jobs, side_by_side=2).values()) == {"done"}
    assert lines.read_text().split()[4:] == ["+c", "-c", "+d", "-d"]


def finished(work, row, seed, validation, test=0.5, size=10, epochs=50):
    """A run of a table as `capsviz reproduce` leaves it."""
    folder = work / "reproduce" / f"{epochs}-epochs"
    weights = folder / "runs" / f"{row}-{seed}" / f"{row}.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(bytes(size))
    results = {"validation": {"accuracy": validation}, "test": {"accuracy": test}}
    (folder / f"{row}-{seed}.json").write_text(json.dumps({"results": results}))
    with (weights.parent / "epochs.csv").open("w") as file:
        lines = csv.writer(file)
        lines.writerow(["seconds", "validation_accuracy"])
        lines.writerows([[2.0, 0.99], [3.0, 0.996]])


def test_archives_stay_below_their_size_and_hold_the_best_first(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_FILES", 2)
    work, large = tmp_path / "work", MOST_BYTES - 4000
    finished(work, PAPER, 0, 0.990, size=large)
    finished(work, PAPER, 1, 0.995, size=large)
    finished(work, "cifar10", 0, 0.7)
    left_out = gpu_queue.pack(work, tmp_path / "out")
    packed = {path.name: path for path in (tmp_path / "out").iterdir()}
    assert set(packed) == {"results.tar.gz", "weights-1.tar", "weights-2.tar"}
    assert all(path.stat().st_size < 16 * 2**20 for path in packed.values())
    with tarfile.open(packed["weights-1.tar"]) as archive:
        assert f"{PAPER}-1" in archive.getnames()[0]  # the better seed
    with tarfile.open(packed["weights-2.tar"]) as archive:
        assert "cifar10-0" in archive.getnames()[0]
    assert left_out == [f"reproduce/50-epochs/runs/{PAPER}-0/{PAPER}.safetensors"]


def test_of_an_earlier_archive_no_job_counts_as_begun(tmp_path):
    """Its state is not in there: what its log says was lost with the machine."""
    work = tmp_path / "work"
    finished(work, PAPER, 0, 0.99)
    (work / "logs").mkdir()
    (work / "logs/mnist-routing-3-1.log").write_text("epoch 3/50")
    gpu_queue.pack(work, tmp_path / "out")
    again = tmp_path / "again"
    words = [str(tmp_path / "more"), "--work", str(again), "--seconds", "0"]
    assert gpu_queue.main([*words, "--earlier", str(tmp_path / "out/results.tar.gz")]) == 0
    assert (again / f"reproduce/50-epochs/{PAPER}-0.json").exists()
    assert not list(again.glob("logs/*"))


def test_goals_are_means_over_seeds_and_say_what_did_not_run(tmp_path):
    for seed, accuracy in enumerate((0.996, 0.998, 0.9976)):
        finished(tmp_path, PAPER, seed, 0.99, accuracy)
    finished(tmp_path, "cifar10", 0, 0.7, 0.70)
    found = {line["goal"]: line for line in gpu_queue.goals(tmp_path, Size())}
    best = found["MNIST, best cell of the paper's table: mean test accuracy"]
    assert best["measured"] == pytest.approx(0.9972) and best["met"] and best["seeds"] == 3
    assert found["CIFAR-10: mean test accuracy"]["met"] is False
    assert found["Fashion-MNIST: mean test accuracy"]["met"] is None
    assert found["seconds to 99.5% of the validation images"]["measured"] == [5.0] * 3
    assert found["seconds to 99.7% of the validation images"]["measured"] == [None] * 3


def test_a_trial_on_the_cpu_trains_packs_and_is_not_made_again(tmp_path, monkeypatch, capsys):
    write_idx(tmp_path / "data" / "MNIST", 5_100, 20)
    monkeypatch.setenv("CAPSVIZ_DATA", str(tmp_path / "data"))
    command = [str(tmp_path / "out"), "--work", str(tmp_path / "work"), "--device", "cpu"]
    command += ["--trial", "--only", "mnist-slim-pooled", "--seconds", "400"]
    assert gpu_queue.main(command) == 0
    said = capsys.readouterr().out
    assert "mnist-slim-pooled-0: done" in said
    state = json.loads((tmp_path / "out/jobs.json").read_text())
    assert state == {"jobs": {"mnist-slim-pooled-0": "done"}, "weights left out": []}
    with tarfile.open(tmp_path / "out/results.tar.gz") as archive:
        assert "reproduce/1-epochs/mnist-slim-pooled-0.json" in archive.getnames()
    with tarfile.open(tmp_path / "out/weights-1.tar") as archive:
        (weights,) = archive.getmembers()
        assert weights.size < 600_000  # float16
    again = [str(tmp_path / "again"), "--earlier", str(tmp_path / "out/results.tar.gz")]
    again += ["--work", str(tmp_path / "another"), *command[3:]]
    assert gpu_queue.main(again) == 0
    assert "done" not in capsys.readouterr().out  # the results of the other machine are there


def test_an_unknown_job_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as error:
        gpu_queue.main([str(tmp_path / "out"), "--only", "nothing"])
    assert error.value.code == 2 and "no job's name begins with nothing" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_runs_is_ended_with_the_queue(tmp_path, monkeypatch):
    state = tmp_path / "began"
    text = f"import time\nfrom pathlib import Path\nPath({str(state)!r}).touch()\ntime.sleep(600)"
    begun: list = []
    popen = processes.subprocess.Popen

    def started(*words, **more):
        begun.append(popen(*words, **more))
        return begun[-1]

    def ended(_):
        if state.exists():
            raise SystemExit(143)

    monkeypatch.setattr(processes.subprocess, "Popen", started)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=ended)
    monkeypatch.setattr(processes, "time", clock)
    with pytest.raises(SystemExit):
        run(tmp_path, [script(tmp_path, "training", text, seconds=1)], 60)
    assert [process.poll() is None for process in begun] == [False]
