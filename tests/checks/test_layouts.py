"""One network written in the ways of public code: the same trace, and no alarm."""

import pytest
import torch
from helpers import planted_bugs as planted
from helpers.planted_bugs import CLASSES, SHAPE, D, E, I, J
from torch import nn
from torch.nn import functional

import capsviz
from capsviz import checks

SIZE = {"image_shape": SHAPE, "classes": CLASSES}


class Tiled(planted.Correct):
    """Children repeated for each number of each vote, as the authors' TensorFlow code does."""

    def poses(self, x):
        u = self.capsules(self.features(x)).unsqueeze(-1).tile(1, 1, 1, J * E)
        weight = self.weight.permute(0, 3, 1, 2).reshape(I, D, J * E)
        votes = (u * weight).sum(2).view(-1, I, J, E)
        return self.routed(votes, u.new_zeros(len(u), I, J))


class Step(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.of = [of]  # hidden: no submodule of itself

    def forward(self, votes, logits):
        (network,) = self.of
        v = network.short(network.summed(network.couplings(logits), votes))
        return network.agreed(logits, votes, v), v


class Steps(planted.Correct):
    """A module of its own for each pass."""

    def __init__(self):
        super().__init__()
        self.steps = nn.ModuleList(Step(self) for _ in range(3))

    def routed(self, votes, logits):
        for step in self.steps:
            logits, v = step(votes, logits)
        return v


class EvenFirst(planted.Correct):
    """The first pass is a mean of the votes, without a softmax."""

    def routed(self, votes, logits):
        v = self.short(votes.sum(dim=1) / J)
        for _ in range(self.iterations - 1):
            logits = self.agreed(logits, votes, v)
            v = self.short(self.summed(self.couplings(logits), votes))
        return v


class Pooled(planted.Correct):
    """Positions of the features are pooled."""

    def features(self, x):
        fine = functional.interpolate(super().features(x), scale_factor=2.0, mode="bilinear")
        return functional.avg_pool2d(fine, 2)


class Split(planted.Correct):
    """Leaky, as the authors write it: the first of J + 1 couplings is split off."""

    def couplings(self, logits):
        leak = torch.zeros_like(logits[..., :1])
        return torch.split(torch.cat([leak, logits], 2).softmax(2), [1, J], 2)[1]


@pytest.fixture
def images():
    return torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("network", [Tiled, Steps])
def test_the_same_network_has_the_same_trace(network, images):
    own = capsviz.trace(capsviz.wrap(network(), **SIZE), images)
    plain = capsviz.trace(capsviz.wrap(planted.Correct(), **SIZE), images)
    for part in ("children", "votes", "couplings", "poses", "lengths", "reconstruction"):
        torch.testing.assert_close(getattr(own, part), getattr(plain, part), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("network", [Tiled, Steps, EvenFirst, Pooled, Split])
def test_no_alarm_is_raised(network):
    facts = {"iterations": 3} if network is Steps else {}
    report = checks.run(network(), **SIZE, **facts)
    assert not report.failures, report.text()
    assert report.verdict("wrong_iterations").status == "PASS"
    assert report.verdict("wrong_agreement").status == "PASS"


def test_poses_of_no_pass_are_left_out(images):
    network = planted.AgreementBeforeSquash()
    traced = capsviz.trace(capsviz.wrap(network, **SIZE), images)
    assert len(traced.couplings) == 3 and len(traced.poses) <= 3
    torch.testing.assert_close(traced.poses[-1], network.poses(images), atol=1e-6, rtol=1e-5)
    capsviz.plot.evidence(traced, parent=0)


def test_what_is_split_off_is_not_traced(images):
    traced = capsviz.trace(capsviz.wrap(Split(), **SIZE), images)
    assert traced.couplings.shape == (3, 4, I, J) and traced.logits is None
    assert float(traced.couplings[-1].sum(2).max()) < 0.99


class Named(planted.LabelTaken):
    """The label among keywords of any name."""

    def forward(self, x, **kwargs):
        return super().forward(x, kwargs.get("y"))


def test_a_label_among_any_arguments_is_not_overlooked():
    verdict = checks.run(Named(), **SIZE).verdict("label_leak")
    assert verdict.status == "SKIPPED" and "**kwargs" in verdict.message
    parallel = checks.run(nn.DataParallel(planted.LabelTaken()), **SIZE)
    assert parallel.verdict("label_leak").status == "FAIL"


def test_a_call_may_give_the_label():
    def call(network, x):
        return network(x, functional.one_hot(torch.zeros(len(x), dtype=torch.long), J).float())

    verdict = checks.run(planted.LabelTaken(), **SIZE, call=call).verdict("label_leak")
    assert verdict.status == "SKIPPED" and "call=" in verdict.message
    report = checks.run(planted.LabelTaken(), **SIZE, call=lambda net, x: net(x), only="label_leak")
    assert report.verdict("label_leak").message == "it is given no labels"


class Apart(planted.Correct):
    """Logits of every number of a vote: agreement is not summed over the pose."""

    def summed(self, c, votes):
        return (c * votes).sum(1)

    def agreed(self, logits, votes, v):
        return logits + votes * v.unsqueeze(1)

    def routed(self, votes, logits):
        return super().routed(votes, torch.zeros_like(votes))


class ApartAfterTheLoop(Apart):
    def routed(self, votes, logits):
        logits = torch.zeros_like(votes)
        for _ in range(self.iterations - 1):
            logits = self.agreed(logits, votes, self.short(self.summed(logits.softmax(2), votes)))
        return self.short((logits.softmax(2) * votes).sum(1))


@pytest.mark.parametrize("network", [Apart, ApartAfterTheLoop])
def test_couplings_of_each_number_of_a_pose_are_none_of_a_child_and_a_parent(network):
    with pytest.raises(ValueError, match="differ between the numbers of a pose"):
        capsviz.wrap(network(), **SIZE)
    report = checks.run(network(), **SIZE)
    assert [one.check for one in report.failures] == ["wrong_agreement"], report.text()
    assert report.verdict("wrong_softmax_axis").status == "SKIPPED"


class BeginsAtOne(planted.Correct):
    """Responsibilities begin at 1, as in public code of EM, and later sum to 1 over parents."""

    def routed(self, votes, logits):
        r = torch.ones_like(logits)
        for _ in range(self.iterations):
            v = self.short(self.summed(r, votes))
            r = (votes * v.unsqueeze(1)).sum(-1).softmax(2)
        return v


def test_even_couplings_give_what_later_passes_give(images):
    network = BeginsAtOne()
    net = capsviz.wrap(network, **SIZE)
    own = capsviz.trace(net, images)
    totals = own.couplings.sum(3)
    torch.testing.assert_close(totals[0], torch.full_like(totals[0], J))
    torch.testing.assert_close(totals[1:], torch.ones_like(totals[1:]))
    even = capsviz.trace(net, images, couplings="uniform")
    with torch.no_grad():
        u = network.capsules(network.features(images))
        votes = torch.einsum("ijed,bid->bije", network.weight, u)
    torch.testing.assert_close(
        even.lengths, network.short(votes.sum(1) / J).norm(dim=-1), atol=1e-5, rtol=1e-4
    )


def test_capsules_that_are_whole_maps_are_a_design():
    class WholeMaps(planted.Correct):
        def __init__(self):
            super().__init__()
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(2)
                numbers = self.features(torch.rand(1, *SHAPE))[0, 0].numel()
                self.weight = nn.Parameter(0.05 * torch.randn(8, J, E, numbers))

        def capsules(self, features):
            return self.squash(features[:, :8].flatten(2))

        def zeros(self, u):
            return u.new_zeros(len(u), 8, J)

    verdict = checks.run(WholeMaps(), **SIZE, only="mixed_positions").verdict("mixed_positions")
    assert verdict.status == "WARN" and "a whole feature map" in verdict.message


def test_a_batch_of_one_size_is_thought_of():
    class Fixed(planted.Correct):
        def capsules(self, features):
            return self.squash(features.reshape(50, D, -1).transpose(1, 2))

    with pytest.raises(ValueError, match="a batch of one size alone"):
        capsviz.wrap(Fixed(), **SIZE)
