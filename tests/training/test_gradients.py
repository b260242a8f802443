"""Training steps as one CUDA graph: what can be recorded, and that the training is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.bright_thirds import RECIPE
from torch import nn

from capsviz.nn import models
from capsviz.training import gradients
from capsviz.training.gradients import Graph
from capsviz.training.train import fit

ROUTING = "from capsviz.nn.routing.dynamic import route"


class Own(nn.Linear):
    """Somebody's network."""


def test_ones_own_network_or_routing_is_not_of_capsviz(plugin):
    assert not models.of_capsviz(Own(2, 2))
    plugin("routing/mine.py", ROUTING)
    options = {"types": 2, "channels": 8, "routing": "mine"}
    assert not models.of_capsviz(models.build("capsnet", (1, 28, 28), 3, **options))


def test_a_recording_that_fails_leaves_no_gradients_and_no_statistics(monkeypatch):
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model(torch.rand(4, 3)).sum().backward()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}

    def fails(self, function):
        function(*self.inputs)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Graph, "_record", fails)
    with pytest.raises(RuntimeError, match="out of memory"):
        Graph(lambda images: model(images).sum().backward(), model, [torch.rand(4, 3)])
    assert all(p.grad is None for p in model.parameters())
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, before[name])


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")
NETWORKS = {
    "capsnet": RECIPE,
    "batch norm": replace(RECIPE, options={**RECIPE.options, "decoder_norm": True}),
    "cnn": replace(RECIPE, model="cnn", options={"dropout": 0.0, "channels": (4, 4, 4)}),
}


def refused(*inputs):
    raise RuntimeError("it waits\nfor a long time")


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("name", NETWORKS)
def test_steps_as_one_graph_are_the_steps_one_by_one(name, parts, tmp_path, monkeypatch):
    recipe, lines = replace(NETWORKS[name], epochs=2, precision="fp32"), []
    graph, _ = fit(recipe, *parts, tmp_path / "graph", device="cuda", report=lines.append)
    assert lines == []
    monkeypatch.setattr(gradients, "Graph", refused)
    single, _ = fit(recipe, *parts, tmp_path / "single", device="cuda", report=lines.append)
    assert len(lines) == 1 and lines[0].endswith("so they are slower: it waits")
    for key, value in single.state_dict().items():
        torch.testing.assert_close(graph.state_dict()[key], value, rtol=1e-3, atol=1e-4)


@needs_gpu
@pytest.mark.gpu
def test_a_network_that_waits_for_the_gpu_is_trained_step_by_step(parts, tmp_path):
    model, lines = models.build("capsnet", (1, 21, 21), 3, **RECIPE.options), []
    objective = model.objective

    def waits(output, images, labels):
        result = objective(output, images, labels)
        assert float(result.loss.detach()) > 0
        return result

    model.objective = waits
    _, history = fit(
        RECIPE, *parts, tmp_path / "a", model=model, device="cuda", report=lines.append
    )
    assert len(history) == RECIPE.epochs
    assert len(lines) == 1 and lines[0].startswith("training steps cannot be one CUDA graph")
    torch.rand(2, device="cuda")  # random numbers go on
    fit(RECIPE, *parts, tmp_path / "b", device="cuda", report=lines.append)
    assert len(lines) == 1
