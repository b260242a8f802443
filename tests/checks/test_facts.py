"""Arguments that are not valid are refused in one line; what `wrap` was given is known."""

import pytest
import torch
from helpers import planted_bugs as planted
from helpers import public_layouts as zoo
from helpers.planted_bugs import CLASSES, SHAPE, I, examined
from torch import nn

import capsviz
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
        checks.run(zoo.Plain(), zoo.SHAPE, zoo.CLASSES, pair="a")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"classes": CLASSES, "decode": False}, "none, as given"),
        ({"capsules": CLASSES}, "the capsules are not classes, of which one is decoded"),
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


def test_the_softmax_of_a_wrapped_pair_is_looked_at():
    def unseen(network, *size, **facts):
        return (
            "equal claim" in checks.run(network, *size, only="wrong_softmax_axis", **facts).text()
        )

    network, size = zoo.TwoHeads(), (zoo.SHAPE, zoo.CLASSES)
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
