"""Code that is right, and unlike the paper's, raises no alarm; one cause raises one."""

import pytest
import torch
from helpers import planted_bugs as planted
from helpers.planted_bugs import CLASSES, SHAPE, TYPES, D, E, I, J, examined, of_status
from helpers.public_layouts import Attention, Expectation
from torch import nn
from torch.nn import functional

import capsviz
from capsviz import checkpoint, checks, data
from capsviz.checks.pitfalls.output import OF_DECODER
from capsviz.wrapping.environment import restored

CHANNELS, MAP = TYPES * D, (planted.ROWS, planted.COLUMNS)


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
    "layer": lambda: nn.LayerNorm([CHANNELS, *MAP]),
    "of each capsule": OfEach,
}


@pytest.mark.parametrize("kind", NORMALISATIONS)
def test_a_normalisation_before_the_squash_is_no_alarm(kind):
    report = examined(Between(NORMALISATIONS[kind]()))
    assert of_status(report, "FAIL") == of_status(report, "WARN") == [], report.text()
    for check in ("unsquashed_primary", "wrong_squash_axis", "mixed_positions"):
        assert report.verdict(check).status == "PASS", report.text()


def test_a_normalisation_in_other_words_is_no_alarm():
    report = examined(Between(ByHand()))
    assert of_status(report, "FAIL") == [], report.text()
    assert "normalised before the squash" in report.verdict("wrong_squash_axis").message


def test_a_squash_over_another_axis_is_seen_after_a_normalisation():
    class Planted(Between, planted.SquashOverChildren):
        pass

    report = examined(Planted(nn.GroupNorm(2, CHANNELS)))
    assert of_status(report, "FAIL") == ["wrong_squash_axis"], report.text()


def test_a_saturated_function_before_the_squash_is_told():
    report = examined(Between(nn.Tanh()))
    assert of_status(report, "FAIL") == [], report.text()
    assert "before the capsule" in report.verdict("wrong_squash_axis").message


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
    assert report.verdict("mixed_positions").status == "PASS", report.text()
    report = examined(sequential(planted.AcrossPlaces))
    assert of_status(report, "FAIL") == ["mixed_positions"], report.text()


def test_a_decoder_of_all_poses_draws_no_class():
    network = planted.Correct()
    report = examined(network, decode=lambda poses, classes: network.decoder(poses.flatten(1)))
    assert of_status(report, "FAIL") == ["decoder_without_class"], report.text()
    assert "all of them" in report.verdict("decoder_without_class").message


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
    assert of_status(report, "FAIL") == [], report.text()
    assert report.verdict("wrong_squash_axis").numbers["lowest"] < 0.9
    assert of_status(examined(ThinOverChildren()), "FAIL") == ["wrong_squash_axis"]


def test_a_batch_of_one_whose_scores_are_others_is_seen():
    class Other(planted.Correct):
        def lengths(self, v):
            return super().lengths(v).roll(int(len(v) == 1), 1)

    assert of_status(examined(Other(), only="fails_on_single_image"), "FAIL") == [
        "fails_on_single_image"
    ]


class ConvolutionEach(planted.Correct):
    """One convolution for each number of a capsule, put together at the end."""

    def __init__(self):
        super().__init__()
        convolutions = [nn.Conv2d(8, planted.TYPES, 4, stride=2) for _ in range(planted.D)]
        self.convolutions = nn.ModuleList(convolutions)

    def features(self, x):
        h = self.stem(x).relu()
        return torch.cat([c(h).view(len(x), -1, 1) for c in self.convolutions], -1)

    def vectors(self, features):
        return features


class Updated(planted.Correct):
    """Logits are updated once more, and not used."""

    def routed(self, votes, logits):
        for _ in range(self.iterations):
            v = self.squash(self.summed(self.couplings(logits), votes))
            logits = self.agreed(logits, votes, v)
        return v


Poses = planted.planted("Poses", forward=lambda self, x: self.poses(x))  # alone


class Winner(planted.Correct):
    """Returns a one-hot prediction, too."""

    def forward(self, x, labels=None):
        lengths, drawn = super().forward(x, labels)
        return functional.one_hot(lengths.argmax(1), CLASSES).float(), lengths, drawn


class WithCriterion(planted.Correct):
    """Returns the reconstruction error, which is no decoder."""

    def __init__(self):
        super().__init__()
        self.criterion = nn.MSELoss(reduction="none")

    def forward(self, x, labels=None):
        lengths, drawn = super().forward(x, labels)
        return lengths, drawn, self.criterion(drawn, x)


NearerIsMore = planted.planted(  # agreement is nearness, in place of a product
    "NearerIsMore", agreed=lambda _, b, votes, v: b - (votes - v.unsqueeze(1)).square().sum(-1)
)


Cosine = planted.planted(
    "Cosine",
    agreed=lambda _, b, votes, v: b + functional.cosine_similarity(votes, v.unsqueeze(1), dim=-1),
)


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


KINDS = [ConvolutionEach, Updated, Poses, Winner, WithCriterion, planted.LargeBias]
KINDS += [NearerIsMore, Cosine, Leaky, LearnedLogits, ParentsFirst, planted.AgreementDetached]


@pytest.mark.parametrize("kind", KINDS)
def test_correct_code_in_other_words_passes(kind):
    torch.manual_seed(0)
    report = examined(kind())
    assert of_status(report, "FAIL") == [], report.text()
    for check in ("wrong_agreement", "mixed_positions", "wrong_class_squash"):
        assert report.verdict(check).status == "PASS", report.text()


def test_capsules_of_a_linear_layer_have_no_positions():
    class Linear(planted.Correct):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8 * 9 * 11, I * D)

        def features(self, x):
            return self.linear(self.stem(x).relu().flatten(1))

        def vectors(self, features):
            return features.view(len(features), I, D)

    report = examined(Linear())
    assert not report.failures, report.text()
    assert "do not come from one feature map" in report.verdict("mixed_positions").message


def test_short_poses_raise_no_alarm_and_weaken_each_pass():
    report = examined(planted.ShortPoses())
    verdict = report.verdict("constant_couplings")
    assert verdict.status == "PASS" and verdict.numbers["between_images"] < 1e-7
    assert "weak evidence" in report.notes[0] and report.notes[0] in report.text()


def test_other_layouts_of_public_code_are_examined():
    """2 × 3 poses and activations; a bias after the softmax, and a decoder of the winner alone."""
    report = checks.run(Expectation(), (1, 12, 10), 3)
    assert of_status(report, "FAIL") == [], report.text()
    assert "scores_are_not_lengths" in of_status(report, "WARN")
    report = checks.run(Attention(), (1, 12, 10), 3)
    assert of_status(report, "FAIL") == ["nan_at_zero"], report.text()
    assert of_status(report, "WARN") == ["wrong_softmax_axis", "decoder_without_class"]


@pytest.mark.parametrize(("bug", "status"), [("LabelByName", "FAIL"), ("LabelPerhaps", "SKIPPED")])
def test_labels_are_searched_among_all_arguments(bug, status):
    assert examined(getattr(planted, bug)()).verdict("label_leak").status == status


@pytest.mark.parametrize(
    ("kind", "words", "fix"),
    [
        (planted.KeptLogits, "keeps something between", "create logits"),
        (planted.FaintlyKeptLogits, "keeps something between", "create logits"),
        (planted.Random, "two calls with the same images differ", "use dropout"),
        (planted.NoiseByHand, "two calls with the same images differ", "use dropout"),
    ],
)
def test_what_is_kept_between_calls_is_told_from_what_is_drawn(kind, words, fix):
    report = examined(kind())
    assert of_status(report, "FAIL") == ["not_repeatable"], report.text()
    verdict = report.verdict("not_repeatable")
    assert words in verdict.message and verdict.fix.startswith(fix)


def test_a_random_decoder_leaves_judged_what_is_the_same_each_time():
    class Blurred(planted.Correct):
        def drawn(self, v, labels):
            return functional.dropout(super().drawn(v, labels), 0.5, training=True)

    class Planted(Blurred, planted.SharedLogits):
        pass

    report = examined(Blurred())
    assert of_status(report, "FAIL") == ["not_repeatable"], report.text()
    assert "scores and poses are the same" in report.verdict("not_repeatable").message
    skipped = [one.check for one in report.verdicts if one.cause]
    assert set(skipped) == set(OF_DECODER) and len(of_status(report, "PASS")) > 18
    assert of_status(examined(Planted()), "FAIL") == ["not_repeatable", "mixed_batch"]


def test_pixels_that_a_trained_decoder_exchanges_are_found():
    network = checkpoint.load("digits")
    images = data.load("digits", "test").first(64).images / 255

    def verdict(decode):
        report = checks.run(network, images=images, decode=decode, only="permuted_reconstruction")
        return report.verdict("permuted_reconstruction").status

    assert verdict(network.decode) == "PASS"
    assert verdict(lambda *given: network.decode(*given).transpose(2, 3)) == "FAIL"


def test_what_a_network_keeps_is_put_back():
    class Told(planted.KeptLogits):
        def routed(self, votes, logits):
            self.votes = votes
            self.logits.add_(1)
            return super().routed(votes, logits)

    network = Told()
    own = network.logits
    examined(network, only="not_repeatable")
    assert network.logits is own and own.eq(0).all() and not hasattr(network, "votes")
    with pytest.raises(ValueError, match="stays from one pass to the next"):
        capsviz.wrap(network, SHAPE, CLASSES)
    assert network.logits is own and own.eq(0).all() and not hasattr(network, "votes")


@pytest.mark.parametrize("axes", [3, 4])
def test_a_softmax_that_names_no_axis_is_over_that_of_torch(axes):
    class Wide(planted.ImplicitSoftmax):
        def couplings(self, logits):
            return super().couplings(logits.unsqueeze(-1)).squeeze(-1)

    report = examined((planted.ImplicitSoftmax if axes == 3 else Wide)(), only="wrong_softmax_axis")
    over = "the images of a batch" if axes == 3 else "primary capsules"
    assert f"couplings sum to 1 over {over}" in report.verdict("wrong_softmax_axis").message


@pytest.mark.filterwarnings("ignore")  # of torch, that it is deprecated: it is in use all the same
def test_buffers_of_a_compiled_module_are_put_back():
    module = torch.jit.trace(nn.BatchNorm1d(2).train(), torch.ones(4, 2))
    before = module.running_mean.clone()
    with restored(module):
        module(torch.full((4, 2), 3.0))
        assert not torch.equal(module.running_mean, before)
    assert torch.equal(module.running_mean, before)
