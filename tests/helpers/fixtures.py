"""Fixtures: tiny networks, the embedded digits, MNIST where it is."""

from __future__ import annotations

import gc
import os
import sys
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from capsviz import data, discovery, results
from capsviz.cli import options
from capsviz.inputs.opening import Inputs
from capsviz.nn import models
from capsviz.transforms.augment import to_float
from helpers import cached_text_size as letters
from helpers import command_line
from helpers.bright_thirds import one_third
from helpers.explorer_visitor import address, browser, hold, shared, visit  # noqa: F401
from helpers.plain_capsnet import Foreign

# Tests run side by side, and so does what they start: one thread each.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)
letters.remember()
gc.set_threshold(50_000, 20, 50)  # what is imported stays: no need to look through it again


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def tiny():
    """A CapsNet of 3 classes for 1 x 21 x 19 images: I = 2 * 3 * 2 = 12, D = 4, E = 6."""
    return build_strong()


def build_tiny(shape=(1, 21, 19), classes=3, **options):
    small = {"channels": 5, "types": 2, "primary_dimensions": 4, "class_dimensions": 6}
    small |= {"hidden": (8, 9)} | options
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return models.build("capsnet", shape, classes, **small).eval()


def build_strong(**options):
    """`build_tiny` with matrices so large that routing matters: its couplings are far from even."""
    model = build_tiny(**options)
    with torch.no_grad():
        model.primary.convolution.weight.mul_(4)
        model.capsules.weight.mul_(8)
    return model


def build_self_routing():
    """`build_tiny` of self-routing; its couplings are even until trained, and made uneven here."""
    model = build_tiny(routing="self_routing")
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        model.stem.primary.weight.mul_(20)
        model.capsules.learned.weight.normal_().mul_(8)
    return model


def build_matrix(shape=(1, 21, 19), **options):
    """Matrix capsules; the weights of all layers are so large that couplings are far from even."""
    small = {"channels": 5, "types": (2, 3, 4), "hidden": (6, 7)}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = models.build("matrix_capsnet", shape, 3, **{**small, **options}).eval()
        for layer in model.layers:
            torch.nn.init.normal_(layer.weight, std=0.8)
    return model


@pytest.fixture(params=["tiny", "with bias", "foreign"])
def network(request):
    """Our network in two forms, and one that shares no layer with it; images (·, 1, 21, 19)."""
    if request.param == "foreign":
        return Foreign((1, 21, 19), classes=3, grid=(2, 3, 2)).eval()
    return build_strong(routing_bias=request.param == "with bias")


@pytest.fixture
def tiny_images(generator):
    """(8, 1, 21, 19) in [0, 1] for `tiny`."""
    return torch.rand(8, 1, 21, 19, generator=generator)


@pytest.fixture(scope="session")
def digits(embedded):
    """scikit-learn's digits, test split: images (360, 1, 28, 28) in [0, 1], labels (360,)."""
    part = embedded("test")
    return to_float(part.images), part.labels


@pytest.fixture(scope="session")
def mnist_root():
    """The folder that holds MNIST, or a skip."""
    for folder in data.search_path():
        if (folder / "MNIST" / "raw" / "t10k-images-idx3-ubyte").is_file():
            return Path(folder)
    pytest.skip("MNIST is not here: set CAPSVIZ_DATA to the folder that holds MNIST/raw")


@pytest.fixture(scope="session")
def embedded():
    """The embedded digits by split, read once."""
    return cache(partial(data.load, "digits"))


def empty_page(analysis, result, width="double", part="", **panels):
    """In place of `results.draw`."""
    return Figure((results.inches(width), 1))


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """Runs commands in an empty folder, with no data at hand but the embedded digits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CAPSVIZ_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return command_line.run


@pytest.fixture
def blank(monkeypatch):
    """For tests of what a command says and writes: its pictures, drawn elsewhere, are empty."""
    monkeypatch.setattr(results, "draw", empty_page)


@pytest.fixture
def analyse(monkeypatch, tmp_path, embedded):
    """Runs the command of an analysis on a foreign network and the embedded digits.

    With --json, which is for the numbers, its pictures are empty.
    """
    inputs = Inputs(Foreign().eval(), embedded("test"), None)
    monkeypatch.setattr(options, "open_inputs", lambda chosen, **how: inputs)
    monkeypatch.setattr(options, "open_networks", lambda chosen, **how: [inputs])
    monkeypatch.setattr(Inputs, "load", lambda self, split: embedded(split))

    def run(name, *words):
        chosen = [name.replace("_", "-"), "--output", tmp_path, "--format", "svg", *words]
        if "--json" in words:
            monkeypatch.setattr(results, "draw", empty_page)
        return command_line.run(*chosen)

    return run


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Writes a module into a folder that `$CAPSVIZ_PLUGINS` names."""
    monkeypatch.setenv(discovery.PLUGINS, str(tmp_path))

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        discovery._entries.cache_clear()
        return path

    yield write
    for name in [name for name in sys.modules if name.startswith("capsviz_plugin_")]:
        del sys.modules[name]


@pytest.fixture
def parts(generator):
    return one_third(generator)


@pytest.fixture(scope="session")
def splits(embedded):
    """Those of the embedded digits, by name."""
    return {split: embedded(split) for split in data.SPLITS}


@pytest.fixture
def digits_for_mnist(monkeypatch, embedded):
    """The embedded digits stand for MNIST."""
    monkeypatch.setattr("capsviz.data.mnist.load", lambda split, root, **how: embedded(split))
