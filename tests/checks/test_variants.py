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


class Sequential(planted.Correct):
    """All convolutions run in one line of torch's."""

    def __init__(self):
        super().__init__()
        self.convolutions = nn.Sequential(self.stem, nn.ReLU(), self.primary)

    def features(self, x):
        return self.convolutions(x)


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


class Few(planted.Correct):
    """The ten longest children of each image vote."""

    def poses(self, x):
        u = self.capsules(self.features(x))
        longest = u.norm(dim=2).topk(10, dim=1).indices
        u = u.gather(1, longest[:, :, None].expand(-1, -1, D))
        votes = torch.einsum("bijed,bid->bije", self.weight[longest], u)
        return self.routed(votes, u.new_zeros(len(u), 10, J))


CORRECT = {
    "normalised in groups": lambda: Between(nn.GroupNorm(2, CHANNELS)),
    "normalised as a layer": lambda: Between(nn.LayerNorm([CHANNELS, *MAP])),
    "each capsule normalised": lambda: Between(OfEach()),
    "poses are returned alone": planted.planted(forward=lambda self, x: self.poses(x)),
    "agreement is nearness": planted.planted(
        agreed=lambda _, b, votes, v: b - (votes - v.unsqueeze(1)).square().sum(-1)
    ),
    "agreement is a cosine": planted.planted(
        agreed=lambda _, b, votes, v: b + functional.cosine_similarity(votes, v[:, None], dim=-1)
    ),
    "a weighted mean": planted.planted(
        summed=lambda _, c, votes: (c[..., None] * votes).sum(1) / c.sum(1)[..., None]
    ),
    **{kind.__name__: kind for kind in (Sequential, Tiled, Steps, EvenFirst, Pooled, Split)},
    **{kind.__name__: kind for kind in (Winner, WithCriterion, LearnedLogits, ParentsFirst)},
    "LargeBias": planted.LargeBias,
}


@pytest.mark.parametrize("name", CORRECT)
def test_correct_code_in_other_words_passes(name):
    torch.manual_seed(0)
    report = examined(CORRECT[name](), **({"iterations": 3} if name == "Steps" else {}))
    assert of_status(report, "FAIL") == [], report.text()
    for check in ("wrong_agreement", "mixed_positions", "wrong_class_squash"):
        assert report.verdict(check).status == "PASS", report.text()
    if "normalised" in name:
        assert of_status(report, "WARN") == [], report.text()


@pytest.fixture
def images():
    return torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("network", [Tiled, Steps])
def test_the_same_network_has_the_same_trace(network, images):
    own = capsviz.trace(capsviz.wrap(network(), SHAPE, CLASSES), images)
    plain = capsviz.trace(capsviz.wrap(planted.Correct(), SHAPE, CLASSES), images)
    for part in ("children", "votes", "couplings", "poses", "lengths", "reconstruction"):
        torch.testing.assert_close(getattr(own, part), getattr(plain, part), atol=1e-5, rtol=1e-4)


def test_poses_of_no_pass_are_left_out(images):
    network = planted.AgreementBeforeSquash()
    traced = capsviz.trace(capsviz.wrap(network, SHAPE, CLASSES), images)
    assert len(traced.couplings) == len(traced.poses) == 1  # the last pass alone is known of both
    torch.testing.assert_close(traced.poses[-1], network.poses(images), atol=1e-6, rtol=1e-5)
    capsviz.plot.evidence(traced, parent=0)


def test_what_is_split_off_is_not_traced(images):
    traced = capsviz.trace(capsviz.wrap(Split(), SHAPE, CLASSES), images)
    assert traced.couplings.shape == (3, 4, I, J) and traced.logits is None
    assert float(traced.couplings[-1].sum(2).max()) < 0.99


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
    net = capsviz.wrap(network, SHAPE, CLASSES)
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
        capsviz.wrap(network(), SHAPE, CLASSES)
    report = examined(network())
    assert of_status(report, "FAIL") == ["wrong_agreement"], report.text()
    assert report.verdict("wrong_softmax_axis").status == "SKIPPED"


def powered(s):
    return s * s.norm(dim=-1, keepdim=True).clamp_min(1e-9).sqrt()


Powered = planted.planted(short=lambda _, s: powered(s))
Gained = planted.planted(short=lambda self, s: 2 * self.squash(s))
Early = planted.planted(short=lambda self, s: self.squash(20 * s))
Unit = planted.planted(short=lambda _, s: nn.functional.normalize(s, dim=-1))
PoweredPrimary = planted.planted(capsules=lambda self, f: powered(self.vectors(f)))


class SequentialAcross(Sequential, planted.AcrossPlaces):
    pass


class NormalisedOverChildren(Between, planted.SquashOverChildren):
    pass


class Thin(planted.Correct):
    """As many children of one number each."""

    axis = -1

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.weight = nn.Parameter(0.5 * torch.randn(D * I, J, E, 1))

    def capsules(self, features):
        return self.squash(features.view(len(features), D * I, 1), dim=self.axis)

    def zeros(self, u):
        return u.new_zeros(len(u), D * I, J)


class ThinNearZero(Thin):
    """One of many features is small by chance."""

    def features(self, x):
        near = torch.ones(1, CHANNELS, *MAP)
        near[0, 0, 0, 0] = 1e-4
        return super().features(x) * near


class ThinOverChildren(Thin):
    axis = 1


OtherAlone = planted.planted(  # a batch of one has other scores
    lengths=lambda self, v: planted.Correct.lengths(self, v).roll(int(len(v) == 1), 1)
)


class LinearFeatures(planted.Correct):
    """Capsules of a linear layer have no positions."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8 * 9 * 11, I * D)

    def features(self, x):
        return self.linear(self.stem(x).relu().flatten(1))

    def vectors(self, features):
        return features.view(len(features), I, D)


class WholeMaps(planted.Correct):
    """A capsule is a whole feature map."""

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


class Wide(planted.ImplicitSoftmax):
    """Logits of four axes, of which torch takes the second."""

    def couplings(self, logits):
        return super().couplings(logits.unsqueeze(-1)).squeeze(-1)


class AmongKeywords(planted.LabelTaken):
    """The label among keywords of any name."""

    def forward(self, x, **kwargs):
        return super().forward(x, kwargs.get("y"))


def with_label(network, x):
    return network(x, functional.one_hot(torch.zeros(len(x), dtype=torch.long), J).float())


WITHOUT_LABEL = capsviz.wrap(planted.LabelTaken(), SHAPE, CLASSES, call=lambda net, x: net(x))


def told_apart(self, v, labels):
    """A softmax of long and short lengths for a mask."""
    return planted.Correct.drawn(self, v, (300 * v.norm(dim=2)).softmax(1))


SoftMask = planted.planted(drawn=told_apart)


def decoded_from_all(poses, classes):
    return planted.Correct().decoder(poses.flatten(1))


SAID = [  # network, facts, check, its status, and what it says
    (Between(ByHand()), {}, "wrong_squash_axis", "SKIPPED", "normalised before the squash"),
    (Between(nn.Tanh()), {}, "wrong_squash_axis", "WARN", "before the capsule"),
    (NormalisedOverChildren(nn.GroupNorm(2, CHANNELS)), {}, "wrong_squash_axis", "FAIL", "axis"),
    (ThinNearZero(), {}, "wrong_squash_axis", "PASS", "lengths are 0."),
    (ThinOverChildren(), {}, "wrong_squash_axis", "FAIL", "axis"),
    (planted.SquashOverNothing(), {}, "wrong_class_squash", "FAIL", "by itself"),
    (Powered(), {}, "wrong_class_squash", "WARN", "not squashed, or by a function without a bound"),
    (Gained(), {}, "wrong_class_squash", "WARN", "a squash with a gain"),
    (Early(), {}, "wrong_class_squash", "WARN", "lengths are 0.990 for sums of length 0.5"),
    (Unit(), {}, "wrong_class_squash", "FAIL", "1.000 for sums of length 0.001: lengths carry"),
    (PoweredPrimary(), {}, "unsquashed_primary", "WARN", "power 1.50"),
    (SequentialAcross(), {}, "mixed_positions", "FAIL", "mix several positions"),
    (LinearFeatures(), {}, "mixed_positions", "SKIPPED", "do not come from one feature map"),
    (WholeMaps(), {}, "mixed_positions", "WARN", "a whole feature map"),
    (OtherAlone(), {}, "fails_on_single_image", "FAIL", "an image alone differs"),
    (planted.ImplicitSoftmax(), {}, "wrong_softmax_axis", "FAIL", "over the images of a batch"),
    (Wide(), {}, "wrong_softmax_axis", "FAIL", "over primary capsules"),
    (planted.LabelByName(), {}, "label_leak", "WARN", "'y_true', if it is given; scores and"),
    (planted.LabelScored(), {}, "label_leak", "FAIL", "'labels', if it is given"),
    (planted.LabelPerhaps(), {}, "label_leak", "SKIPPED", "chosen"),
    (AmongKeywords(), {}, "label_leak", "SKIPPED", "**kwargs"),
    (nn.DataParallel(planted.LabelTaken()), {}, "label_leak", "WARN", "'labels'"),
    (planted.LabelTaken(), {"call": with_label}, "label_leak", "SKIPPED", "call="),
    (planted.LabelTaken(), {"call": lambda net, x: net(x)}, "label_leak", "PASS", "no labels"),
    (WITHOUT_LABEL, {}, "label_leak", "PASS", "no labels"),
    (planted.Correct(), {"decode": decoded_from_all}, "decoder_without_class", "FAIL", "all of"),
    (SoftMask(), {}, "decoder_without_class", "WARN", "all but the predicted class change the"),
    (Few(), {}, "squashed_votes", "PASS", "votes grow 100 times"),
    (planted.SigmoidScores(), {"new": planted.SigmoidScores()}, "saturation", "PASS", ""),
    (planted.Correct(), {"iterations": 4}, "wrong_iterations", "FAIL", "3 iterations made, 4"),
]


def test_a_label_that_can_be_given_is_answered_on_the_command_line_too():
    one = examined(planted.LabelTaken()).verdict("label_leak")
    assert one.status == "WARN" and "capsviz.wrap(" in one.fix  # as `WITHOUT_LABEL`, which passes


@pytest.mark.parametrize(("network", "facts", "check", "status", "words"), SAID)
def test_a_check_says_what_it_finds(network, facts, check, status, words):
    verdict = examined(network, **facts, only=check).verdict(check)
    assert verdict.status == status and words in verdict.message, verdict


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


@pytest.mark.parametrize(
    ("kind", "words", "fix"),
    [
        (planted.FaintlyKeptLogits, "keeps something between", "create logits"),
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


@pytest.mark.filterwarnings("ignore")  # of torch, that it is deprecated: it is in use all the same
def test_buffers_of_a_compiled_module_are_put_back():
    module = torch.jit.trace(nn.BatchNorm1d(2).train(), torch.ones(4, 2))
    before = module.running_mean.clone()
    with restored(module):
        module(torch.full((4, 2), 3.0))
        assert not torch.equal(module.running_mean, before)
    assert torch.equal(module.running_mean, before)


def test_a_batch_of_one_size_is_thought_of():
    class Fixed(planted.Correct):
        def capsules(self, features):
            return self.squash(features.reshape(50, D, -1).transpose(1, 2))

    with pytest.raises(ValueError, match="if only one batch size fits"):
        capsviz.wrap(Fixed(), SHAPE, CLASSES)
