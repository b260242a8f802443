"""The parts of a candidate, each by itself."""

import pytest
import torch
from helpers import planted_bugs as planted
from helpers.planted_bugs import CLASSES, SHAPE, D, E, I, J

from capsviz.checks.calling import Caller
from capsviz.checks.capsules import Capsules
from capsviz.checks.inside import Inside
from capsviz.checks.losses import Loss
from capsviz.checks.primary import PrimaryCapsules, noise
from capsviz.checks.verdict import SkippedError


@pytest.fixture
def caller():
    caller = Caller(planted.Correct(), SHAPE, CLASSES)
    with caller.still():
        yield caller


def test_a_caller_finds_how_a_network_is_called(caller):
    assert caller.way == "images" and caller.call(caller.images(2))[0].shape == (2, J)
    assert Caller(planted.LabelAtTest(), SHAPE, CLASSES).way == "one-hot"
    assert torch.equal(caller.images(3), caller.images(3))
    assert not torch.equal(caller.images(3), caller.images(3, seed=1))


def test_a_recorded_pass_shows_the_layer_of_the_classes(caller):
    layer = Inside(caller).layer
    assert (layer.children, layer.parents, len(layer.rounds)) == (I, J, 3)


def test_class_capsules_follow_other_sums_of_votes(caller):
    capsules = Capsules(caller, Inside(caller))
    zero = capsules.with_sums(torch.zeros_like, caller.images(2), "poses")[-1]
    assert zero.shape == (2, J, E) and not zero.any()
    assert capsules.by_length and capsules.before == []


def test_primary_capsules_follow_other_features(caller):
    primary = PrimaryCapsules(Capsules(caller, Inside(caller)))
    assert primary.of(noise(seed=0), caller.images(2)).shape == (2, I, D)
    torch.testing.assert_close(primary.lengths(1e4), torch.ones(7, I), atol=1e-3, rtol=0)


def test_a_loss_is_a_finite_number(caller):
    images, labels = caller.images(2), torch.tensor([0, 1])
    output = caller.output(images)
    assert Loss(caller, planted.loss)(output, images, labels) > 0
    with pytest.raises(SkippedError, match="not finite"):
        Loss(caller, lambda *_: torch.inf)(output, images, labels)
