"""Several processes train as one does: the same curve, one set of files, a clear end.

One run is started by torchrun itself; elsewhere `ranks` starts the processes.
"""

import csv
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from helpers import command_line
from helpers.distributed_ranks import Ranks, capsviz

from capsviz.cli import errors
from capsviz.nn import models
from capsviz.training.distributed import _Processes, has_unused_weights, team

needs_accelerate = pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None, reason="Accelerate is not installed"
)
TRAIN = [
    "train", "--dataset", "digits", "--types", "2", "--channels", "8", "--precision", "fp32",
    "--batch-size", "50", "--limit", "330",
]  # fmt: skip


def alone(*words):
    """The same in one process, this one."""
    return command_line.fine(command_line.run(*words))


def train_on_host(folder, *words):
    """Train into a folder of this host's own."""
    capsviz(*words, "--output", folder / os.environ["GROUP_RANK"])


def together(logs, action, **hosts):
    """What each of two processes wrote to stdout and to stderr, after they ended well."""
    ranks = Ranks(action, logs, **hosts)
    assert ranks.wait() == [0, 0], ranks.printed("err")
    return ranks.printed("out"), ranks.printed("err")


def curve(folder):
    with (folder / "epochs.csv").open() as file:
        lines = list(csv.DictReader(file))
    columns = ("train_loss", "train_accuracy", "validation_accuracy", "validation_margin_loss")
    return torch.tensor([[float(line[k]) for k in columns] for line in lines])


def wait_for(path, ended):
    for _ in range(6000):
        if path.exists() or ended():
            return
        time.sleep(0.05)


def of(rank, size):
    return _Processes(SimpleNamespace(process_index=rank, num_processes=size))


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


@needs_accelerate
def test_all_processes_agree_when_to_stop_though_their_batch_norms_differ(tmp_path):
    words = ["train", "--dataset", "digits", "--model", "resnet", "--precision", "fp32"]
    words += ["--batch-size", 16, "--limit", 120, "--learning-rate", "0.005", "--seed", 1]
    words += ["--early-stop", 1, "--epochs", 10, "--output", tmp_path / "run"]
    _, err = together(tmp_path, partial(capsviz, *words))
    assert len(curve(tmp_path / "run")) < 10 and err[0].count("stopped early") == 1


@needs_accelerate
def test_two_hosts_go_on_as_one_process_does_with_all_that_a_state_holds(tmp_path):
    options = ["--ema", "0.9", "--option", "clip_norm=1", "--option", "decoder_learning_rate=0.002"]
    options += ["--batch-size", 21, "--limit", 312]  # the last batch has 18, 9 for each
    one, two = tmp_path / "one", tmp_path / "0"
    alone(*TRAIN, *options, "--epochs", 3, "--output", one)
    train = partial(train_on_host, tmp_path, *TRAIN, *options, "--epochs")
    out, err = together(tmp_path, partial(train, 2), hosts=2)
    assert not (tmp_path / "1").exists()
    assert out[0].count("test accuracy") == 1 and err[0].count("epoch 2/2") == 1
    assert out[1] == "" and "epoch" not in err[1], "the first one alone writes"
    names, others = ({path.name.split("-")[0] for path in run.iterdir()} for run in (one, two))
    assert others == names >= {"best", "digits.safetensors", "digits.json"}
    together(tmp_path, partial(train, 3, "--resume"), hosts=2)
    apart = (curve(two) - curve(one)).abs()
    assert (apart[:, [0, 3]] < 1e-3 * curve(one)[:, [0, 3]]).all()  # losses
    assert (apart[:, 1] < 3.5 / 312).all() and (apart[:, 2] < 1.5 / 180).all()  # images that flip


def test_batch_norm_left_with_one_image_is_refused_before_training(tmp_path):
    words = ["train", "--dataset", "digits", "--option", "decoder_norm=true", "--limit", "257"]
    run = command_line.run(*words, "--output", tmp_path)
    assert run.exit_code == 2 and "leave one: choose another --batch-size" in run.output
    assert not (tmp_path / "state.safetensors").exists()


def assert_resumed(folder):
    """One process goes on for an epoch with what a run of several left."""
    epochs = len(curve(folder))
    assert epochs >= 1
    run = alone(*TRAIN, "--output", folder, "--epochs", epochs + 1, "--resume")
    assert f"epoch {epochs + 1}/{epochs + 1}" in run.stderr and "test accuracy" in run.stdout


@needs_accelerate
def test_a_process_killed_under_torchrun_ends_the_run_in_words_and_it_can_be_resumed(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    words = [*torchrun, "-m", "capsviz", *TRAIN, "--epochs", "400", "--output", str(tmp_path)]
    several = subprocess.Popen(
        words, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True
    )
    wait_for(tmp_path / "epochs.csv", several.poll)
    children = subprocess.run(
        ["ps", "--ppid", str(several.pid), "-o", "pid="], capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(children) == 2
    os.kill(int(children[0]), signal.SIGKILL)
    _, err = several.communicate(timeout=300)
    assert several.returncode != 0
    assert "exitcode  : -9" in err  # torchrun says which one was killed
    assert_resumed(tmp_path)


@needs_accelerate
def test_losing_the_other_process_while_training_is_one_line_and_the_run_can_be_resumed(tmp_path):
    run = tmp_path / "run"
    ranks = Ranks(partial(capsviz, *TRAIN, "--epochs", 400, "--output", run), tmp_path)
    wait_for(run / "epochs.csv", lambda: not ranks.processes[0].is_alive())
    ranks.processes[1].kill()
    codes = ranks.wait()
    assert codes[0] == 1 and codes[1] == -signal.SIGKILL
    err = ranks.printed("err")[0]
    assert "another process of this run ended: finished epochs are kept" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert_resumed(run)


def load_where_host_1_lacks_it():
    host = os.environ["GROUP_RANK"]
    socket.gethostname = lambda: f"host-{host}"

    def load():
        if host == "1":
            raise FileNotFoundError("MNIST is not here")

    with errors(), team(torch.device("cpu")) as (several, _):
        several.in_turn(load)


@needs_accelerate
def test_what_one_host_lacks_ends_the_run_in_the_same_words_on_all(tmp_path):
    hosts = Ranks(load_where_host_1_lacks_it, tmp_path, hosts=2)
    assert 0 not in hosts.wait()
    first, second = hosts.printed("err")
    assert "on host-1: MNIST is not here" in first
    assert "MNIST is not here" in second and "on host-1" not in second


def test_weights_of_poses_have_no_say_by_self_routing_without_a_decoder():
    size = {"types": [2, 2, 2], "channels": 8}
    left = {
        name: has_unused_weights(
            models.build("matrix_capsnet", (1, 20, 20), 10, routing=name, **size)
        )
        for name in ("dynamic", "em", "self_routing")
    }
    assert left == {"dynamic": False, "em": False, "self_routing": True}
