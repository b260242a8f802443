"""What may be recorded as a graph, and that a recording that fails leaves nothing behind."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from capsviz.nn import models
from capsviz.training.gradients import Graph

ROUTING = "from capsviz.nn.routing.dynamic import route"


class Own(nn.Linear):
    """Somebody's network."""


@pytest.mark.parametrize("name", ["capsnet", "cnn", "resnet", "average"])
def test_networks_of_capsviz_are_known(name):
    options = {"types": 2, "channels": 8} if name == "capsnet" else {}
    assert models.of_capsviz(models.build(name, (1, 28, 28), 3, **options))


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
