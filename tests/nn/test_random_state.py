"""What is drawn from a seed inside leaves no trace outside, on no device."""

import torch
from conftest import build_tiny

from capsviz.checkpoint import untrained
from capsviz.nn.random_state import seeded


def test_a_seed_holds_inside_alone():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with seeded(7):
        inside = torch.rand(4)
    assert torch.equal(torch.rand(4), expected)
    with seeded(7):
        assert torch.equal(torch.rand(4), inside)


def test_a_fresh_network_seeds_no_gpu(monkeypatch):
    network, seeds = build_tiny(), []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    before = torch.get_rng_state()
    untrained.fresh(network, 7)
    assert seeds == [] and torch.equal(torch.get_rng_state(), before)
