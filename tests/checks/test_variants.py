"""Code that is right, and unlike the paper's, raises no alarm; one cause raises one."""

import pytest
import torch
from helpers import planted_bugs as planted
from helpers.planted_bugs import CLASSES, SHAPE, TYPES, D, E, I, J
from torch import nn
from torch.nn import functional

import capsviz
from capsviz import checks, discovery
from capsviz.nn import models
from capsviz.wrapping.environment import restored

CHANNELS, MAP = TYPES * D, (planted.ROWS, planted.COLUMNS)


def examined(network, **facts):
    return checks.run(network, SHAPE, CLASSES, **facts)


def of_status(report, status):
    return [one.check for one in report.verdicts if one.status == status]


class Between(planted.Correct):
    """Something between the primary convolution and the squash."""

    def __init__(self, between):
        super().__init__()
        self.between = between

    def features(self, x):
        return self.between(super().features(x))


class OfEach(nn.Module):
    """Layer normalisation of each capsule by itself."""

    def __init__(self):
        super().__init__()
        self.normal = nn.LayerNorm(D)

    def forward(self, features):
        parts = features.view(len(features), TYPES, D, *MAP).movedim(2, -1)
        return self.normal(parts).movedim(-1, 2).reshape(features.shape)


class ByHand(nn.Module):
    def forward(self, features):
        axes = (1, 2, 3)
        centred = features - features.mean(axes, keepdim=True)
        return centred / (features.var(axes, keepdim=True) + 1e-5).sqrt()


NORMALISATIONS = {
    "groups": lambda: nn.GroupNorm(2, CHANNELS),
    "instance": lambda: nn.InstanceNorm2d(CHANNELS),
    "layer": lambda: nn.LayerNorm([CHANNELS, *MAP]),
    "rms": lambda: nn.RMSNorm([CHANNELS, *MAP]),
    "of each capsule": OfEach,
}


@pytest.mark.parametrize("kind", NORMALISATIONS)
def test_a_normalisation_before_the_squash_is_no_alarm(kind):
    report = examined(Between(NORMALISATIONS[kind]()))
    assert of_status(report, "fails") == of_status(report, "told") == [], report.text()
    for check in ("primary_squash", "squash_axis", "places"):
        assert report.verdict(check).status == "passes", report.text()


def test_a_normalisation_in_other_words_is_no_alarm():
    report = examined(Between(ByHand()))
    assert of_status(report, "fails") == [], report.text()
    assert "normalised before the squash" in report.verdict("squash_axis").said


def test_a_squash_over_another_axis_is_seen_after_a_normalisation():
    class Planted(Between, planted.SquashOverChildren):
        pass

    report = examined(Planted(nn.GroupNorm(2, CHANNELS)))
    assert of_status(report, "fails") == ["squash_axis"], report.text()


def test_a_saturated_function_before_the_squash_is_told():
    report = examined(Between(nn.Tanh()))
    assert of_status(report, "fails") == [], report.text()
    assert "each by itself" in report.verdict("squash_axis").said


def test_batch_normalisation_that_stays_in_training_is_one_alarm():
    class Training(Between):
        def train(self, mode=True):
            super().train(mode)
            self.between.train(True)
            return self

    report = examined(Training(nn.BatchNorm2d(CHANNELS)))
    assert of_status(report, "fails") == ["batch"], report.text()


def sequential(kind):
    """All convolutions run in one line of torch's."""

    class Sequential(kind):
        def __init__(self):
            super().__init__()
            self.convolutions = nn.Sequential(self.stem, nn.ReLU(), self.primary)

        def features(self, x):
            return self.convolutions(x)

    return Sequential()


def test_places_are_seen_behind_a_stem_in_one_sequence():
    report = examined(sequential(planted.Correct))
    assert report.verdict("places").status == "passes", report.text()
    report = examined(sequential(planted.AcrossPlaces))
    assert of_status(report, "fails") == ["places"], report.text()


def test_a_decoder_of_all_poses_draws_no_class():
    network = planted.Correct()
    report = examined(network, decode=lambda poses, classes: network.decoder(poses.flatten(1)))
    assert of_status(report, "fails") == ["decoder_class"], report.text()
    assert "all of them" in report.verdict("decoder_class").said


class Thin(planted.Correct):
    """As many children of one number each."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.weight = nn.Parameter(0.5 * torch.randn(D * I, J, E, 1))

    def capsules(self, features):
        return self.squash(features.view(len(features), D * I, 1), dim=self.axis)

    def zeros(self, u):
        return u.new_zeros(len(u), D * I, J)

    axis = -1


class ThinOverChildren(Thin):
    axis = 1


def test_capsules_of_one_number_are_squashed_by_number():
    class Near(Thin):  # one of many features is small by chance
        def features(self, x):
            near = torch.ones(1, CHANNELS, *MAP)
            near[0, 0, 0, 0] = 1e-4
            return super().features(x) * near

    report = examined(Near())
    assert of_status(report, "fails") == [], report.text()
    assert report.verdict("squash_axis").numbers["lowest"] < 0.9
    assert of_status(examined(ThinOverChildren()), "fails") == ["squash_axis"]


def test_classes_that_tie_are_no_alarm_of_a_batch_of_one():
    class Tied(planted.Correct):
        """Whoever wins, wins by rounding, and another one where an image is alone."""

        def forward(self, x, labels=None):
            lengths, _ = super().forward(x)
            even = torch.full_like(lengths, 0.5)
            even[:, int(len(x) == 1)] += 1e-7
            winner = functional.one_hot(even.argmax(1), J).to(x)
            return even, self.drawn(self.poses(x), winner)

    report = examined(Tied(), only="batch_of_one")
    assert report.failures == (), report.text()
    assert "the winner is another" in report.verdict("batch_of_one").said


def test_a_batch_of_one_whose_scores_are_others_is_seen():
    class Other(planted.Correct):
        def lengths(self, v):
            return super().lengths(v).roll(int(len(v) == 1), 1)

    assert of_status(examined(Other(), only="batch_of_one"), "fails") == ["batch_of_one"]


class NearerIsMore(planted.Correct):
    """Agreement is nearness, in place of a product."""

    def agreed(self, logits, votes, v):
        return logits - (votes - v.unsqueeze(1)).square().sum(dim=-1)


class Cosine(planted.Correct):
    def agreed(self, logits, votes, v):
        return logits + functional.cosine_similarity(votes, v.unsqueeze(1), dim=-1)


class Leaky(planted.Correct):
    """Children may send to none of the parents."""

    def couplings(self, logits):
        return torch.cat((torch.zeros_like(logits[..., :1]), logits), -1).softmax(-1)[..., 1:]


class LearnedLogits(planted.Correct):
    def __init__(self):
        super().__init__()
        self.prior = nn.Parameter(torch.linspace(-1, 1, I * J).view(I, J))

    def zeros(self, u):
        return self.prior.expand(len(u), I, J)


class ParentsFirst(planted.Correct):
    """Votes (J, B, I, E), and a routing loop that keeps logits for each number of a pose."""

    def routed(self, votes, logits):
        votes = votes.permute(2, 0, 1, 3)
        logits = torch.zeros_like(votes)
        for _ in range(self.iterations):
            v = self.squash((logits.softmax(0) * votes).sum(2, keepdim=True))
            logits = logits + (votes * v).sum(-1, keepdim=True)
        return v.squeeze(2).transpose(0, 1)


KINDS = [NearerIsMore, Cosine, Leaky, LearnedLogits, ParentsFirst, planted.AgreementDetached]


@pytest.mark.parametrize("kind", KINDS)
def test_routing_towards_any_agreement_passes(kind):
    report = examined(kind())
    assert of_status(report, "fails") == [], report.text()
    assert report.verdict("agreement").status == "passes", report.text()


def test_no_routing_that_is_shipped_runs_away_from_agreement():
    unlike = {}
    for routing in discovery.names("capsviz.nn.routing"):
        torch.manual_seed(1)
        network = models.build("capsnet", (1, 28, 28), 10, stem="slim", routing=routing)
        one = checks.run(network, only="agreement").verdict("agreement")
        if one.status != "passes":
            unlike[routing] = (one.status, one.said.partition(" for ")[0])
    unseen, one_pass = "no softmax weighs votes", "it routes in one pass"
    replaced = {
        name: status for name, (status, said) in unlike.items() if "logits are replaced" in said
    }
    assert replaced == dict.fromkeys(("inverted_attention", "k_means"), "told")
    unlike = {name: one for name, one in unlike.items() if name not in replaced}
    assert unlike == {
        "max_min": ("cannot be seen", unseen), "uniform": ("cannot be seen", unseen),
        "self_attention": ("cannot be seen", one_pass),
        "self_routing": ("cannot be seen", one_pass),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "words", "mend"),
    [
        (planted.KeptLogits, "something is kept between", "logits are made new"),
        (planted.FaintlyKeptLogits, "something is kept between", "logits are made new"),
        (planted.Random, "two calls with the same images differ", "leave dropout"),
        (planted.NoiseByHand, "two calls with the same images differ", "leave dropout"),
    ],
)
def test_what_is_kept_between_calls_is_told_from_what_is_drawn(kind, words, mend):
    report = examined(kind())
    assert of_status(report, "fails") == ["repeats"], report.text()
    verdict = report.verdict("repeats")
    assert words in verdict.said and verdict.mend.startswith(mend)


def test_what_a_network_keeps_is_put_back():
    class Told(planted.KeptLogits):
        def routed(self, votes, logits):
            self.votes = votes
            self.logits.add_(1)
            return super().routed(votes, logits)

    network = Told()
    own = network.logits
    examined(network, only="repeats")
    assert network.logits is own and own.eq(0).all() and not hasattr(network, "votes")
    with pytest.raises(ValueError, match="something is kept from one to the next"):
        capsviz.wrap(network, SHAPE, CLASSES)
    assert network.logits is own and own.eq(0).all() and not hasattr(network, "votes")


@pytest.mark.parametrize("axes", [3, 4])
def test_a_softmax_that_names_no_axis_is_over_that_of_torch(axes):
    class Wide(planted.ImplicitSoftmax):
        def couplings(self, logits):
            return super().couplings(logits.unsqueeze(-1)).squeeze(-1)

    report = examined((planted.ImplicitSoftmax if axes == 3 else Wide)(), only="couplings_sum")
    over = "the images of a batch" if axes == 3 else "children"
    assert f"they sum to 1 over {over}" in report.verdict("couplings_sum").said


@pytest.mark.filterwarnings("ignore")  # of torch, that it is deprecated: it is in use all the same
def test_buffers_of_a_compiled_module_are_put_back():
    module = torch.jit.trace(nn.BatchNorm1d(2).train(), torch.ones(4, 2))
    before = module.running_mean.clone()
    with restored(module):
        module(torch.full((4, 2), 3.0))
        assert not torch.equal(module.running_mean, before)
    assert torch.equal(module.running_mean, before)
