"""Steps as one CUDA graph: the same training, and a network that cannot be recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.bright_thirds import RECIPE, one_third

from capsviz.nn import models
from capsviz.training import gradients
from capsviz.training.train import fit

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here"),
]
NETWORKS = {
    "capsnet": RECIPE,
    "batch norm": replace(RECIPE, options={**RECIPE.options, "decoder_norm": True}),
    "cnn": replace(RECIPE, model="cnn", options={"dropout": 0.0, "channels": (4, 4, 4)}),
}


@pytest.fixture
def parts(generator):
    return one_third(generator)


def refused(*inputs):
    raise RuntimeError("it waits\nfor a long time")


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
