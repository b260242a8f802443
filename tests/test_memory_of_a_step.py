"""Memory of a training step, each measured in a process of its own: the votes are never held."""

import json
import os
import subprocess
import sys

import pytest
import torch

from benchmarks import clock
from capsviz import discovery, models


def measurable():
    """Whether this system tells a process's peak memory, and takes back what it frees."""
    try:
        return clock.peak_bytes(lambda: bytearray(50_000_000)) > 40_000_000
    except (OSError, AttributeError, ValueError):
        return False


measured = pytest.mark.skipif(not measurable(), reason="peak memory cannot be measured here")


def step(network, **settings):
    """Transient bytes of a step, and more; settings are those of benchmarks/steps.py."""
    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    words = ["-m", "benchmarks.steps", "--network", network, "--rounds", "0", *flags]
    out = subprocess.check_output(
        [sys.executable, *words],
        text=True,
        cwd=discovery.folder(""),
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )
    return json.loads(out)


@pytest.mark.slow
@measured
def test_a_step_takes_little_more_than_its_convolutions_and_a_literal_one_much_more():
    floor, ours, literal = (
        step(network, batch=64)["transient_bytes"] for network in ("floor", "capsviz", "literal")
    )
    assert ours <= 1.30 * floor
    assert literal > 3 * floor, "then this test could not fail"


@pytest.mark.slow
@measured
@pytest.mark.parametrize(
    "settings",
    [{"batch": 1}, {"batch": 96}, {"batch": 8, "classes": 100}, {"batch": 4, "size": 56}],
    ids=str,
)
def test_the_memory_that_training_asks_for_in_advance_is_what_it_takes(settings):
    found = step("capsviz", **settings)
    taken = found["transient_bytes"] + 16 * found["parameters"]  # weights, gradients, Adam
    assert 0.8 * taken <= found["estimate_bytes"] <= 2 * taken


def test_the_estimate_grows_with_every_size(monkeypatch):
    def needed(batch=32, size=28, **options):
        with torch.device("meta"):
            return models.build("capsnet", (1, size, size), 10, **options).training_bytes(batch)

    monkeypatch.setattr("capsviz.allocator.kept", lambda: False)  # a command may have set it
    least = needed()
    more = [needed(batch=64), needed(size=40), needed(types=64), needed(channels=300)]
    assert all(least < other for other in more)
    monkeypatch.setattr("capsviz.allocator.kept", lambda: True)
    assert needed() > least
