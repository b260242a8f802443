"""What `wrap` was told by hand is the checks' too: which softmax, and where the children are."""

import pytest
import torch
from helpers import planted_bugs as planted
from helpers.planted_bugs import CLASSES, SHAPE, I
from helpers.public_layouts import CLASSES as HEADS_CLASSES
from helpers.public_layouts import SHAPE as HEADS_SHAPE
from helpers.public_layouts import TwoHeads
from torch import nn

import capsviz
from capsviz import checks


def test_the_softmax_of_a_wrapped_pair_is_looked_at():
    def unseen(network, *size, **facts):
        return (
            "equal claim" in checks.run(network, *size, only="wrong_softmax_axis", **facts).text()
        )

    network, size = TwoHeads(), (HEADS_SHAPE, HEADS_CLASSES)
    wrapped = capsviz.wrap(network, *size, pair="right")
    assert unseen(network, *size)
    assert not unseen(network, *size, pair="right")
    assert not unseen(wrapped)
    assert (
        "3 iterations made, 2 declared"
        in checks.run(wrapped, only="wrong_iterations", iterations=2).text()
    )
    report = checks.run(wrapped, only="wrong_iterations", iterations=2, pair="left")
    assert report.verdict("wrong_iterations").status == "PASS"


class Looped(planted.Correct):
    """Votes are put together one by one, so that children are not seen."""

    def __init__(self):
        super().__init__()
        self.id = nn.Identity()

    def poses(self, x):
        u = self.id(self.capsules(self.features(x)))
        self.shown = u.transpose(1, 2)
        votes = torch.stack([self.weight[i] @ u[:, i, None, :, None] for i in range(I)], 1)
        return self.routed(votes[..., 0], self.zeros(u))

    def forward(self, x, labels=None):
        return *super().forward(x, labels), self.shown


class LoopedAcrossPlaces(Looped, planted.AcrossPlaces):
    pass


@pytest.mark.parametrize("children", ["poses:u", "id", lambda output: output[2].transpose(1, 2)])
def test_children_of_a_wrapped_network_are_looked_at(children):
    def verdict(network, **told):
        net = capsviz.wrap(network, SHAPE, CLASSES, grid=None, **told)
        return checks.run(net, only=("mixed_positions", "unsquashed_primary")).verdict(
            "mixed_positions"
        )

    assert "capsules are not found" in verdict(Looped()).message
    assert verdict(Looped(), children=children).status == "PASS"
    assert verdict(LoopedAcrossPlaces(), children=children).status == "FAIL"
