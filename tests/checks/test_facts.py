"""What is said of a network and cannot be true of it is refused in one line, before any check."""

import numpy as np
import pytest
import torch
from helpers import planted_bugs as planted
from helpers.planted_bugs import CLASSES, SHAPE
from helpers.public_layouts import Plain
from torch import nn

from capsviz import checks
from capsviz.testing import assert_capsnet


def boom():
    raise KeyError("boom")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"iterations": 0}, "iterations= must be a whole number, at least 1, got 0"),
        ({"iterations": -3}, "iterations= must be .*, got -3"),
        ({"iterations": "three"}, "iterations= must be .*, got 'three'"),
        ({"iterations": True}, "iterations= must be .*, got True"),
        ({"scores": "nope"}, "unknown scores 'nope', expected a function or one of"),
        ({"scores": 3}, "scores= must be a function, a name or None, got 3"),
        ({"pair": "nope"}, "pair 'nope' names 0 of the softmaxes: 24 children to 5 parents"),
        ({"decode": 3}, "decode= must be a function .*, got 3"),
        ({"call": 3}, "call= must be a function .*, got 3"),
        ({"new": 3}, r"new= must be a network, a torch.nn.Module, got 3"),
        ({"new": planted.Correct}, "new= must be a network, a torch.nn.Module, got type"),
        ({"train_data": 3}, r"train_data= must be images \(N, C, H, W\), or a sequence .*, got 3"),
        ({"train_data": boom}, "train_data= raises KeyError: 'boom'"),
        ({"train_data": torch.rand(0, *SHAPE)}, "train_data= holds no images"),
        ({"test_data": []}, "test_data= holds no images"),
        ({"normalise": (0.1, 0)}, r"a deviation above 0, got \(0.1, 0\)"),
        ({"normalise": (0.1, -1)}, r"a deviation above 0, got \(0.1, -1\)"),
    ],
)
def test_facts_that_are_none_are_refused(facts, said):
    with pytest.raises(ValueError, match=said) as error:
        checks.run(planted.Correct(), SHAPE, CLASSES, only="finite", **facts)
    assert "\n" not in str(error.value)


def test_iterations_may_be_of_any_kind_of_whole_number():
    report = checks.run(
        planted.Correct(), SHAPE, CLASSES, only="iterations", iterations=np.int64(3)
    )
    assert report.verdict("iterations").status == "passes"


def test_a_network_without_capsules_has_no_pair():
    with pytest.raises(ValueError, match="pair 'a' names none: no softmax weighs votes for 3"):
        checks.run(Plain(), (1, 12, 10), 3, pair="a")


def test_no_decoder_is_a_fact():
    report = checks.run(planted.Correct(), SHAPE, CLASSES, decode=False, only="decoder_class")
    assert report.verdict("decoder_class").said == "decoder: none, as given"


def test_another_number_of_classes_is_refused():
    said = "expected 4 classes, the network has 24 children to 5 parents in the network, planted.py"
    with pytest.raises(ValueError, match=said):
        assert_capsnet(planted.Correct(), SHAPE, 4)


class Voting(planted.Correct):
    """Classes of a layer that is routed by other means, after one of capsules."""

    def __init__(self, head):
        super().__init__()
        self.last = nn.Linear(planted.J * planted.E, 3)
        self.head = head

    def forward(self, x, labels=None):
        v = self.poses(x)
        scores = self.last(v.flatten(1)).sigmoid()
        return (scores, v) if self.head else (scores.amax(1, keepdim=True), v.mean(1))


@pytest.mark.parametrize("head", [True, False])
def test_a_network_whose_last_routing_is_not_seen_is_checked_for_the_rest(head):
    report = checks.run(Voting(head), SHAPE, 3, only=("batch", "own_softmax"))
    assert report.verdict("batch").status == "passes"
    said = report.verdict("own_softmax").said
    assert said.startswith("no softmax weighs votes for 3 parents; softmax in the network")
    assert "; 24 children to 5 parents in the network" in said
