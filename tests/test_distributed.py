"""Several processes train as one does: the same curve, one set of files, a clear end."""

import csv
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner

from capsviz.cli import main
from capsviz.distributed import Team, _Several
from capsviz.explorer.serve import free_port

needs_accelerate = pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None, reason="Accelerate is not installed"
)
TRAIN = [
    "-m", "capsviz", "train", "--dataset", "digits", "--types", "2", "--channels", "8",
    "--precision", "fp32", "--batch-size", "50",
]  # fmt: skip
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node=2"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def start(*words):
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def curve(folder):
    with (folder / "epochs.csv").open() as file:
        lines = list(csv.DictReader(file))
    columns = ("train_loss", "train_accuracy", "validation_accuracy", "validation_margin_loss")
    return torch.tensor([[float(line[k]) for k in columns] for line in lines])


def wait_for(path, process):
    for _ in range(600):
        if path.exists() or process.poll() is not None:
            return
        time.sleep(0.1)


def of(rank, size):
    return _Several(SimpleNamespace(process_index=rank, num_processes=size))


def test_one_process_is_a_team_of_its_own():
    team, batch = Team(), torch.arange(5)
    assert team.leads and team.size == 1
    assert team.share(batch) == (batch, 1.0)
    assert team.sum(batch) is batch and team.prepare(batch) is batch
    assert team.agree(batch) is batch and team.in_turn(lambda: batch) is batch
    with pytest.raises(FileNotFoundError, match="not here"):
        team.in_turn(Path("not here").stat)


@pytest.mark.parametrize(("n", "size"), [(8, 2), (7, 3), (2, 4), (128, 1)])
def test_the_smallest_share_is_the_smallest(n, size):
    shares = [of(rank, size).share(torch.arange(n))[0] for rank in range(size)]
    assert of(0, size).smallest(n) == min(map(len, shares))


@pytest.mark.parametrize(("n", "size"), [(8, 2), (7, 3), (2, 4), (1, 2)])
def test_shares_are_the_whole_batch_and_their_weights_make_its_mean(n, size):
    batch = torch.randperm(n)
    shares = [of(rank, size).share(batch) for rank in range(size)]
    taken = torch.cat([share for share, weight in shares if weight > 0])
    assert taken.sort().values.tolist() == list(range(n))
    assert all(len(share) > 0 for share, _ in shares)  # no process may sit a step out
    values = torch.rand(n)
    mean_over_processes = sum(w * values[share].mean() for share, w in shares) / size
    torch.testing.assert_close(mean_over_processes, values.mean())


def test_only_the_first_process_leads():
    assert [of(rank, 3).leads for rank in range(3)] == [True, False, False]


@needs_accelerate
def test_two_processes_have_the_curve_of_one(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    alone = start(*TRAIN, "--epochs", 2, "--output", one)
    alone.communicate(timeout=120)
    assert alone.returncode == 0
    several = start(*TORCHRUN, *TRAIN, "--epochs", 2, "--output", two)
    out, err = several.communicate(timeout=120)
    assert several.returncode == 0, err
    torch.testing.assert_close(curve(two), curve(one), rtol=1e-4, atol=1e-6)
    assert out.count("test accuracy") == 1 and err.count("epoch 2/2") == 1
    names = {path.name for path in one.iterdir()}
    assert {path.name for path in two.iterdir()} == names >= {"digits.safetensors", "digits.json"}


@needs_accelerate
def test_all_processes_agree_when_to_stop_though_their_batch_norms_differ(tmp_path):
    words = ["-m", "capsviz", "train", "--dataset", "digits", "--model", "resnet", "--precision"]
    words += ["fp32", "--batch-size", 16, "--limit", 300, "--learning-rate", "0.005", "--seed", 1]
    words += ["--early-stop", 1, "--epochs", 10, "--output", tmp_path]
    several = start(*TORCHRUN, *words)
    _, err = several.communicate(timeout=120)
    assert several.returncode == 0, err
    assert len(curve(tmp_path)) < 10 and err.count("stopped early") == 1


@needs_accelerate
def test_two_processes_go_on_as_one_does_with_all_that_a_state_holds(tmp_path):
    options = ["--ema", "0.9", "--clip-norm", "1", "--decoder-learning-rate", "0.002"]
    options += ["--batch-size", 21]  # of 1,257 images: the last batch has 18, 9 for each
    one, two = tmp_path / "one", tmp_path / "two"
    for words in (
        [*TRAIN, *options, "--epochs", 3, "--output", one],
        [*TORCHRUN, *TRAIN, *options, "--epochs", 2, "--output", two],
        [*TORCHRUN, *TRAIN, *options, "--epochs", 3, "--output", two, "--resume"],
    ):
        run = start(*words)
        _, err = run.communicate(timeout=120)
        assert run.returncode == 0, err
    apart = (curve(two) - curve(one)).abs()
    assert (apart[:, [0, 3]] < 1e-3 * curve(one)[:, [0, 3]]).all()  # losses
    assert (apart[:, 1] < 3.5 / 1257).all() and (apart[:, 2] < 1.5 / 180).all()  # images that flip


def test_batch_norm_left_with_one_image_is_refused_before_training(tmp_path):
    words = ["train", "--dataset", "digits", "--option", "decoder_norm=true", "--limit", "257"]
    run = CliRunner().invoke(main, [*words, "--output", str(tmp_path)])
    assert run.exit_code == 2 and "leave one: choose another --batch-size" in run.output
    assert not (tmp_path / "state.safetensors").exists()


@needs_accelerate
@pytest.mark.parametrize("which", [0, 1])
def test_a_killed_process_ends_the_run_in_words_and_it_can_be_resumed(tmp_path, which):
    words = [*TRAIN, "--output", tmp_path]
    several = start(*TORCHRUN, *words, "--epochs", 400)
    wait_for(tmp_path / "epochs.csv", several)
    children = subprocess.run(
        ["ps", "--ppid", str(several.pid), "-o", "pid="], capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(children) == 2
    os.kill(int(children[which]), signal.SIGKILL)
    _, err = several.communicate(timeout=60)
    assert several.returncode != 0
    assert "exitcode  : -9" in err  # torchrun says which one was killed
    done = len(curve(tmp_path))
    assert done >= 1
    again = start(*words, "--epochs", done + 1, "--resume")
    out, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    assert f"epoch {done + 1}/{done + 1}" in err and "test accuracy" in out


@needs_accelerate
def test_losing_another_process_is_one_line(tmp_path):
    code = (
        "import os, torch\nfrom capsviz.distributed import team\n"
        "from capsviz.errors import errors\n"
        "with errors(), team(torch.device('cpu')) as (several, device):\n"
        "    if several.rank == 1:\n        os._exit(0)\n"
        "    several.sum(torch.ones(3))\n"
    )
    script = tmp_path / "lost.py"
    script.write_text(code)
    several = start(*TORCHRUN, script)
    _, err = several.communicate(timeout=60)
    assert several.returncode != 0
    assert "another process of this run ended: finished epochs are kept" in err


def on_two_hosts(*words, port):
    """Two launchers of one process each: what two hosts run, here side by side."""
    torchrun = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    torchrun += ["--master-addr=127.0.0.1", f"--master-port={port}"]
    return [start(*torchrun, f"--node-rank={host}", *words) for host in range(2)]


@needs_accelerate
def test_two_hosts_have_the_curve_of_one_process_and_the_first_alone_writes(tmp_path):
    alone = start(*TRAIN, "--epochs", 1, "--output", tmp_path / "alone")
    alone.communicate(timeout=120)
    script = tmp_path / "train.py"  # a folder for each host: they share none
    script.write_text(
        "import os, sys\nfrom capsviz.cli import main\n"
        f"main([*sys.argv[1:], '--output', {str(tmp_path)!r} + '/' + os.environ['GROUP_RANK']])\n"
    )
    hosts = on_two_hosts(script, *TRAIN[2:], "--epochs", 1, port=free_port(0))
    said = [host.communicate(timeout=120) for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0], said
    torch.testing.assert_close(curve(tmp_path / "0"), curve(tmp_path / "alone"), rtol=1e-4, atol=0)
    assert not (tmp_path / "1").exists() and said[1][0] == ""


@needs_accelerate
def test_what_one_host_lacks_ends_the_run_in_the_same_words_on_all(tmp_path):
    script = tmp_path / "load.py"
    script.write_text(
        "import os, socket, torch\nfrom capsviz.distributed import team\n"
        "from capsviz.errors import errors\n"
        "host = os.environ['GROUP_RANK']\nsocket.gethostname = lambda: f'host-{host}'\n"
        "def load():\n"
        "    if host == '1':\n        raise FileNotFoundError('MNIST is not here')\n"
        "with errors(), team(torch.device('cpu')) as (several, device):\n"
        "    several.in_turn(load)\n"
    )
    hosts = on_two_hosts(script, port=free_port(0))
    first, second = (host.communicate(timeout=60)[1] for host in hosts)
    assert all(host.returncode != 0 for host in hosts)
    assert "on host-1: MNIST is not here" in first
    assert "MNIST is not here" in second and "on host-1" not in second
