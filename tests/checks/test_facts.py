"""Arguments that are not valid, or cannot be true of the network, are refused in one line."""

import pytest
import torch
from helpers import planted_bugs as planted
from helpers.planted_bugs import SHAPE, examined
from helpers.public_layouts import Plain
from torch import nn

from capsviz import checks


def boom():
    raise KeyError("boom")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"iterations": 0}, "at least 1, got 0"),
        ({"scores": "nope"}, "unknown scores 'nope'"),
        ({"pair": "nope"}, "pair 'nope' names 0 of the softmaxes: 24 children to 5 parents"),
        ({"decode": 3}, "decode= must be a function .*, got 3"),
        ({"call": 3}, "call= must be a function .*, got 3"),
        ({"new": 3}, "new= must be a network, a torch.nn.Module, got 3"),
        ({"train_data": 3}, r"train_data= must be images \(N, C, H, W\), .*, got 3"),
        ({"train_data": boom}, "train_data= raises KeyError: 'boom'"),
        ({"train_data": torch.rand(0, *SHAPE)}, "train_data= holds no images"),
        ({"normalise": (0.1, 0)}, r"standard deviation above 0\), .* got \(0.1, 0\)"),
        ({"images": torch.rand(SHAPE)}, "expected float images"),
        ({"images": torch.rand(3, 1, 13, 11)}, r"images \(B, 1, 11, 13\), got \(3, 1, 13, 11\)"),
        ({"images": 2 * torch.ones(3, *SHAPE)}, r"in \[0, 1\]"),
    ],
)
def test_facts_that_are_not_valid_are_refused(facts, words):
    with pytest.raises(ValueError, match=words) as error:
        examined(planted.Correct(), only="nan_output", **facts)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("network", "size", "words"),
    [
        (planted.Correct(), (None, None), "expected a number of classes"),
        (planted.Correct(), ((3, 11, 13), 5), "the network refuses"),
        (planted.Correct(), (12, 3), "expected image_shape as"),
        (planted.Correct(), (SHAPE, "3"), "expected a number of classes"),
        (planted.Correct(), (SHAPE, 4), "expected 4 classes, .* 24 children to 5 parents in the"),
        (planted.digits, (SHAPE, 5), r"expected a network, a torch.nn.Module, got function"),
    ],
)
def test_a_network_of_another_size_is_refused(network, size, words):
    with pytest.raises((ValueError, TypeError), match=words) as error:
        checks.run(network, *size)
    assert "\n" not in str(error.value)


def test_a_network_without_capsules_has_no_pair():
    with pytest.raises(ValueError, match="pair 'a' names none: no softmax weighs votes for 3"):
        checks.run(Plain(), (1, 12, 10), 3, pair="a")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"classes": planted.CLASSES, "decode": False}, "none, as given"),
        ({"capsules": planted.CLASSES}, "the capsules are no classes, of which one is decoded"),
    ],
)
def test_no_decoder_and_no_classes_are_facts(facts, words):
    facts |= {"loss": planted.loss, "only": ("decoder_without_class", "wrong_margin_loss")}
    report = checks.run(planted.Correct(), SHAPE, **facts)
    assert report.verdict("decoder_without_class").message == f"decoder: {words}"
    judged = report.verdict("wrong_margin_loss").status == "PASS"
    assert judged == ("classes" in facts)


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
def test_a_network_whose_last_routing_is_not_found_is_checked_for_the_rest(head):
    report = checks.run(Voting(head), SHAPE, 3, only=("mixed_batch", "handwritten_softmax"))
    assert report.verdict("mixed_batch").status == "PASS"
    message = report.verdict("handwritten_softmax").message
    said = "no softmax weighs votes for 3 parents; 24 children to 5 parents in the network"
    assert message.startswith(said)
