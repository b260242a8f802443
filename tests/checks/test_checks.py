"""Each planted bug raises its own alarm and no other; a correct network raises none."""

import sys
from collections import OrderedDict
from dataclasses import dataclass

import pytest
import torch
from helpers import planted_bugs as planted
from helpers import public_layouts as foreign_networks
from helpers.planted_bugs import CLASSES, SHAPE
from helpers.public_layouts import Attention, Expectation, Unsqueezed

import capsviz
from capsviz import checkpoint, checks, discovery
from capsviz.checks import page
from capsviz.checks.report import Report
from capsviz.nn import models
from capsviz.nn.functional import margin_loss
from capsviz.testing import assert_capsnet

ROUTINGS = discovery.names("capsviz.nn.routing")
FACTS = {
    "loss": planted.loss,
    "train_data": planted.digits(),
    "test_data": planted.digits(),
    "new": planted.Correct(),
}
# name of the bug -> the check that must see it, and how
OF_NETWORKS = {
    "AcrossPlaces": "places",
    "SoftmaxOverChildren": "couplings_sum",
    "ImplicitSoftmax": "couplings_sum",
    "SharedLogits": "batch",
    "AveragedLogits": "batch",
    "FirstMask": "batch",
    "NeverRouted": "couplings_of_images",
    "AwayFromAgreement": "agreement",
    "Distance": "agreement",
    "SquashOverChildren": "squash_axis",
    "SquashOverColumns": "squash_axis",
    "SquashOverClasses": "class_squash",
    "NaNAtZero": "zero_norm",
    "NaNGradientAtZero": "zero_norm",
    "NaNGradientOfLengths": "zero_norm",
    "NaNGradientAtLarge": "large_norm",
    "NoPrimarySquash": "primary_squash",
    "ReluBeforeSquash": "relu_before_squash",
    "SoftmaxOnLengths": "softmax_on_lengths",
    "LabelAtTest": "label_at_test",
    "NextClassDrawn": "decoder_class",
    "OneTooMany": "iterations",
    "OneTooFew": "iterations",
    "Squeezed": "batch_of_one",
    "OnGPU": "device",
    "Random": "repeats",
    "KeptLogits": "repeats",
    "NaNAlways": "finite",
    "NoClassSquash": "class_squash",
    "UndividedSquash": "class_squash",
    "VotesDetached": "detached",
    "UnitLength": "class_squash",
    "UnitChildren": "primary_squash",
}
TOLD = {
    "LabelTaken": "label_at_test",
    "OtherParent": "agreement",
    "UntoldDecoder": "decoder_class",
    "Detached": "detached",
    "AgreementDetached": "detached",
    "SoftmaxByHand": "own_softmax",
}
OF_FACTS = {
    "margin_not_squared": ({"loss": planted.margin_not_squared}, "margin"),
    "exchanged": ({"loss": planted.exchanged}, "margin"),
    "mean_of_pixels": ({"loss": planted.mean_of_pixels}, "reconstruction_weight"),
    "softmax_in_the_loss": ({"loss": planted.softmax_in_the_loss}, "loss_softmax"),
    "normalised_targets": ({"train_data": planted.digits(normalised=True)}, "target_range"),
    "moved_test_images": ({"test_data": planted.Moved()}, "test_images"),
    "saturated": ({"new": planted.Saturated()}, "saturation"),
}


def examined(network, **facts) -> Report:
    return checks.run(network, SHAPE, CLASSES, **{**FACTS, **facts})


def of_status(report, status):
    return [one.check for one in report.verdicts if one.status == status]


def test_a_correct_network_passes_every_check():
    report = examined(planted.Correct())
    assert {one.status for one in report.verdicts} == {"passes"}, report.text()
    assert {one.check for one in report.verdicts} == set(checks.checks())


@pytest.mark.parametrize("bug", OF_NETWORKS)
def test_a_planted_bug_raises_its_own_alarm_and_no_other(bug):
    report = examined(getattr(planted, bug)())
    assert of_status(report, "fails") == [OF_NETWORKS[bug]], report.text()
    assert of_status(report, "told") == []
    verdict = report.verdict(OF_NETWORKS[bug])
    assert verdict.numbers and verdict.said and verdict.mend and verdict.paper
    unseen = [one for one in report.verdicts if one.status == "cannot be seen"]
    assert all(one.cause == OF_NETWORKS[bug] for one in unseen), report.text()


@pytest.mark.parametrize("bug", TOLD)
def test_what_need_be_no_mistake_is_told(bug):
    report = examined(getattr(planted, bug)())
    assert of_status(report, "fails") == []
    assert of_status(report, "told") == [TOLD[bug]], report.text()


@pytest.mark.parametrize("bug", OF_FACTS)
def test_a_bug_beside_the_network_raises_its_own_alarm(bug):
    facts, check = OF_FACTS[bug]
    report = examined(planted.Correct(), **facts)
    assert of_status(report, "fails") == [check], report.text()
    assert of_status(report, "told") == []


def test_every_check_has_a_bug_that_it_sees():
    seen = {*OF_NETWORKS.values(), *TOLD.values(), *(check for _, check in OF_FACTS.values())}
    assert seen == set(checks.checks())


def test_a_bias_before_the_squash_is_no_length_without_votes():
    report = examined(planted.LargeBias())
    assert of_status(report, "fails") == [], report.text()
    assert report.verdict("class_squash").numbers["short"] < 1e-3


@pytest.mark.parametrize(
    ("network", "check"),
    [("OverChildrenAndBatch", "batch"), ("OverChildrenAndSqueezed", "batch_of_one")],
)
def test_a_softmax_over_children_hides_no_mixture_of_images(network, check):
    report = examined(getattr(planted, network)())
    assert set(of_status(report, "fails")) == {"couplings_sum", check}, report.text()


def test_of_collapsed_weights_nothing_is_told():
    report = examined(planted.Collapsed())
    assert of_status(report, "told") == [], report.text()
    for check in ("agreement", "decoder_class"):
        assert "collapsed" in report.verdict(check).said
    assert report.verdict("class_squash").status == "passes"


def test_numbers_that_are_squashed_one_by_one_are_seen():
    report = checks.run(planted.SquashOverNothing(), SHAPE, CLASSES)
    assert of_status(report, "fails") == ["class_squash"], report.text()
    assert "2.449 to 2.449 (number by number)" in report.verdict("class_squash").said


@pytest.mark.parametrize("loss", [float("nan"), torch.tensor(torch.inf)])
def test_a_loss_that_is_not_finite_passes_nothing(loss):
    for one in examined(planted.Correct(), loss=lambda *_: loss).verdicts:
        if "loss" in one.check or one.check == "margin":
            assert one.status == "cannot be seen", one
            assert one.said == "the loss is not finite" or one.cause


def test_another_weight_of_absent_classes_is_told():
    verdict = examined(planted.Correct(), loss=planted.absent_as_heavy).verdict("margin")
    assert verdict.status == "told" and verdict.numbers["absent"] == pytest.approx(1, abs=0.01)


def test_other_margins_are_told_with_their_numbers():
    verdict = examined(planted.Correct(), loss=planted.other_margins).verdict("margin")
    assert verdict.status == "told"
    assert verdict.numbers["present_margin"] == pytest.approx(0.8, abs=0.005)
    assert verdict.numbers["absent_margin"] == pytest.approx(0.2, abs=0.005)


def test_couplings_of_short_poses_are_no_alarm():
    verdict = examined(planted.ShortPoses()).verdict("couplings_of_images")
    assert verdict.status == "passes" and verdict.numbers["between_images"] < 1e-7


@pytest.mark.parametrize(
    ("bug", "status"), [("LabelByName", "told"), ("LabelPerhaps", "cannot be seen")]
)
def test_labels_are_looked_for_among_all_arguments(bug, status):
    verdict = examined(getattr(planted, bug)()).verdict("label_at_test")
    assert verdict.status == status, verdict.said


def test_numbers_are_those_of_the_paper():
    report = examined(planted.Correct())
    assert report.verdict("reconstruction_weight").numbers["weight"] == pytest.approx(5e-4, rel=0.1)
    assert report.verdict("margin").numbers["growth"] == pytest.approx(4, rel=0.01)
    assert report.verdict("iterations").numbers == {"made": 3, "declared": 3}
    highest = report.verdict("softmax_on_lengths").numbers["highest_possible"]
    assert highest == pytest.approx(2.71828 / (2.71828 + 4), rel=1e-4)


def test_what_is_not_given_cannot_be_seen_and_says_so():
    report = checks.run(planted.Correct(), SHAPE, CLASSES)
    unseen = {one.check: one.said for one in report.verdicts if one.status == "cannot be seen"}
    needing = {"margin", "loss_softmax", "reconstruction_weight", "target_range", "test_images"}
    assert set(unseen) == needing | {"saturation"}
    assert all("given" in said for said in unseen.values())
    assert report.exit_status == 0


def test_a_given_number_of_iterations_is_held_against_the_passes():
    verdict = examined(planted.Correct(), iterations=4).verdict("iterations")
    assert verdict.status == "fails" and verdict.numbers == {"made": 3, "declared": 4}


def build(**options):
    torch.manual_seed(0)
    return models.build("capsnet", (1, 28, 28), 10, stem="slim", **options)


@pytest.mark.parametrize("routing", ROUTINGS)
def test_no_routing_raises_an_alarm(routing):
    assert_capsnet(build(routing=routing), new=build(routing=routing))


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_a_correct_capsnet_raises_no_alarm(preset):
    small = {"channels": 6, "types": 3, "primary_dimensions": 4, "hidden": (8,)}
    torch.manual_seed(0)
    network = models.build("capsnet", (1, 22, 20), 4, preset=preset, **small)
    report = assert_capsnet(network)
    assert report.verdict("places").status == "passes"
    assert report.verdict("margin").status == "passes"


def test_efficient_capsnet_raises_no_alarm():
    torch.manual_seed(0)
    assert_capsnet(models.build("efficient_capsnet", (1, 28, 28), 10))


def test_shipped_weights_raise_no_alarm_and_pass_all_but_three_checks(digits):
    report = assert_capsnet(checkpoint.load("digits"), images=digits[0])
    assert len(of_status(report, "passes")) == 24
    assert report.notes == ()


@pytest.mark.slow
def test_the_paper_s_network_raises_no_alarm():
    report = assert_capsnet(checkpoint.load("mnist"))
    assert len(of_status(report, "passes")) == 24


def test_other_layouts_of_public_code_are_seen():
    """2 × 3 poses and activations; a bias after the softmax, and a decoder of the winner alone."""
    report = checks.run(Expectation(), (1, 12, 10), 3)
    assert of_status(report, "fails") == [], report.text()
    assert "softmax_on_lengths" in of_status(report, "told")
    report = checks.run(Attention(), (1, 12, 10), 3)
    assert of_status(report, "fails") == ["zero_norm"], report.text()
    assert of_status(report, "told") == ["couplings_sum", "decoder_class"]


class ConvolutionEach(planted.Correct):
    """One convolution for each number of a capsule, put together at the end."""

    def __init__(self):
        super().__init__()
        convolutions = [torch.nn.Conv2d(8, planted.TYPES, 4, stride=2) for _ in range(planted.D)]
        self.convolutions = torch.nn.ModuleList(convolutions)

    def features(self, x):
        h = self.stem(x).relu()
        return torch.cat([c(h).view(len(x), -1, 1) for c in self.convolutions], -1)

    def capsules(self, features):
        return self.squash(features)


class Normalised(planted.Correct):
    """Batch normalisation before the squash."""

    def __init__(self):
        super().__init__()
        self.normal = torch.nn.BatchNorm2d(planted.TYPES * planted.D)

    def features(self, x):
        return self.normal(super().features(x))


class Updated(planted.Correct):
    """Logits are updated once more, and not used."""

    def routed(self, votes, logits):
        for _ in range(self.iterations):
            v = self.squash(self.summed(self.couplings(logits), votes))
            logits = self.agreed(logits, votes, v)
        return v


class Poses(planted.Correct):
    """Says poses alone."""

    def forward(self, x):
        return self.poses(x)


@pytest.mark.parametrize("kind", [ConvolutionEach, Normalised, Updated, Poses])
def test_other_correct_code_raises_no_alarm(kind):
    torch.manual_seed(0)
    report = assert_capsnet(kind(), SHAPE, CLASSES)
    assert of_status(report, "told") == []
    assert report.verdict("places").status == "passes"


def test_capsules_of_a_linear_layer_have_no_places_that_could_be_seen():
    class Linear(planted.Correct):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8 * 9 * 11, planted.I * planted.D)

        def features(self, x):
            return self.linear(self.stem(x).relu().flatten(1))

        def capsules(self, features):
            return self.squash(features.view(len(features), planted.I, planted.D))

    report = assert_capsnet(Linear(), SHAPE, CLASSES)
    assert "do not come from one map" in report.verdict("places").said


def test_untrained_weights_are_said_to_be_weak_evidence():
    class Flat(planted.Correct):
        def spread(self):
            return 1e-3

    report = checks.run(Flat(), SHAPE, CLASSES)
    assert "passes weakly" in report.notes[0] and report.notes[0] in report.text()


def test_a_one_hot_output_is_not_taken_for_scores():
    class Winner(planted.Correct):
        def forward(self, x, labels=None):
            lengths, drawn = super().forward(x, labels)
            return torch.nn.functional.one_hot(lengths.argmax(1), CLASSES).float(), lengths, drawn

    report = checks.run(Winner(), SHAPE, CLASSES)
    assert report.failures == (), report.text()
    assert report.verdict("softmax_on_lengths").status == "passes"


def test_a_criterion_is_not_taken_for_the_decoder():
    class WithCriterion(planted.Correct):
        def __init__(self):
            super().__init__()
            self.criterion = torch.nn.MSELoss(reduction="none")

        def forward(self, x, labels=None):
            lengths, drawn = super().forward(x, labels)
            return lengths, drawn, self.criterion(drawn, x)

    report = checks.run(WithCriterion(), SHAPE, CLASSES)
    assert report.failures == (), report.text()


def test_scores_that_are_divided_by_the_largest_of_a_batch_are_seen():
    class Divided(planted.Correct):
        def lengths(self, v):
            return super().lengths(v) / super().lengths(v).max().clamp_min(1e-6)

    report = checks.run(Divided(), SHAPE, CLASSES)
    assert of_status(report, "fails") == ["batch"], report.text()


def test_a_wrapped_network_can_be_checked():
    network = planted.Correct()
    assert_capsnet(capsviz.wrap(network, SHAPE, CLASSES), **FACTS)
    assert network.training


def test_the_network_is_left_as_it_was():
    network = planted.Squeezed()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    examined(network)
    assert network.training and network.iterations == 3
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.get_default_dtype() == torch.float32
    assert not any(module._forward_hooks for module in network.modules())


def test_assert_capsnet_fails_with_the_report():
    with pytest.raises(AssertionError, match=r"places.*made of several places") as error:
        assert_capsnet(planted.AcrossPlaces(), image_shape=SHAPE, classes=CLASSES)
    assert "mend:" in str(error.value)


def test_some_checks_can_be_chosen():
    report = checks.run(planted.Correct(), SHAPE, CLASSES, only=["squash_axis"])
    assert {one.check for one in report.verdicts} == {
        "finite", "repeats", "primary_squash", "squash_axis",
    }  # fmt: skip
    with pytest.raises(ValueError, match="unknown check 'squash'"):
        checks.run(planted.Correct(), SHAPE, CLASSES, only=["squash"])


def test_one_check_can_be_named_and_no_verdict_that_was_not_made():
    report = checks.run(planted.Correct(), SHAPE, CLASSES, only="finite")
    assert report.verdict("finite").status == "passes"
    with pytest.raises(ValueError, match="no verdict of 'batch', expected one of: finite"):
        report.verdict("batch")


def test_few_images_are_repeated_and_are_not_noise():
    seen = []

    class Seen(planted.Correct):
        def forward(self, x, labels=None):
            seen.append(x.flatten(1))
            return super().forward(x, labels)

    given = torch.rand(3, *SHAPE)
    report = checks.run(Seen(), SHAPE, CLASSES, images=given, only=["finite"])
    assert report.verdict("finite").status == "passes"
    assert {len(x) for x in seen} >= {7}
    assert all((torch.cdist(x, given.flatten(1)).amin(1) == 0).all() for x in seen)


def test_what_compares_images_is_not_judged_by_one():
    given = torch.rand(1, *SHAPE).repeat(8, 1, 1, 1)
    report = checks.run(planted.SharedLogits(), SHAPE, CLASSES, images=given)
    for name in ("batch", "couplings_of_images"):
        assert report.verdict(name).status == "cannot be seen"
        assert "compares different images" in report.verdict(name).said
    assert report.notes == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (torch.rand(SHAPE), "expected float images"),
        (torch.rand(3, 1, 13, 11), r"expected images \(N, 1, 11, 13\), got \(3, 1, 13, 11\)"),
        (2 * torch.ones(3, *SHAPE), r"in \[0, 1\]"),
    ],
)
def test_images_of_another_form_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        checks.run(planted.Correct(), SHAPE, CLASSES, images=given)


@pytest.mark.parametrize(
    ("shape", "classes", "said"),
    [(12, 3, "image_shape"), ((1, -12, 10), 3, "image_shape"), (SHAPE, "3", "a number of classes"),
     (SHAPE, 0, "a number of classes")],
)  # fmt: skip
def test_shapes_and_classes_that_are_none_are_refused(shape, classes, said):
    with pytest.raises(ValueError, match=f"expected {said}"):
        checks.run(planted.Correct(), shape, classes)


@dataclass(frozen=True)
class Named:
    lengths: torch.Tensor
    images: torch.Tensor


class Mapped(OrderedDict):
    __getattr__ = OrderedDict.__getitem__


@pytest.mark.parametrize("kind", [Named, Mapped])
def test_the_loss_of_outputs_of_any_kind_is_looked_into(kind):
    class Network(Unsqueezed):
        def forward(self, x):
            lengths, images = super().forward(x)
            return kind(lengths=lengths, images=images)

    def loss(output, images, labels):
        squares = (output.images - images).square().flatten(1).sum(1)
        return (margin_loss(output.lengths, labels) + 5e-4 * squares).mean()

    report = checks.run(Network(), foreign_networks.SHAPE, foreign_networks.CLASSES, loss=loss)
    assert of_status(report, "fails") == ["device"]  # it says .cuda()
    assert {"margin", "reconstruction_weight"} <= set(of_status(report, "passes"))


def test_a_compiled_network_is_checked_as_it_was_written():
    network = torch.compile(planted.AcrossPlaces(), backend="eager")
    report = checks.run(network, SHAPE, CLASSES, only="places")
    assert of_status(report, "fails") == ["places"]
    assert report.network == "AcrossPlaces"


def test_what_is_no_network_is_refused():
    with pytest.raises(TypeError, match=r"expected a network, a torch.nn.Module, got function"):
        checks.run(planted.digits, SHAPE, CLASSES)


def test_a_check_is_added_by_adding_a_file(tmp_path, monkeypatch):
    (tmp_path / "pitfalls").mkdir()
    (tmp_path / "pitfalls" / "always.py").write_text(
        '"""Something always fails."""\n'
        "from capsviz.checks.verdict import About, fails\n"
        'ABOUT = About(paper="§0", seen="at once", breaks="nothing", mend="nothing", after=())\n'
        "def examine(candidate):\n"
        '    return fails(f"{candidate.classes} classes", classes=candidate.classes)\n'
    )
    monkeypatch.setenv("CAPSVIZ_PLUGINS", str(tmp_path))
    report = checks.run(planted.Correct(), SHAPE, CLASSES, only=["always"])
    (verdict,) = report.verdicts
    assert (verdict.title, verdict.said) == ("Something always fails.", "5 classes")
    del sys.modules["capsviz_plugin_pitfalls_0_always"]


@pytest.mark.parametrize(
    ("network", "more", "said"),
    [
        (planted.Correct(), {}, "give image_shape="),
        (planted.Correct(), {"image_shape": (3, 11, 13), "classes": 5}, "the network refuses"),
    ],
)
def test_a_network_that_cannot_be_called_is_refused_in_one_line(network, more, said):
    with pytest.raises(ValueError, match=said) as error:
        checks.run(network, **more)
    assert "\n" not in str(error.value)


def test_the_page_says_what_the_checks_say():
    path = discovery.root() / "docs" / "check.md"
    assert path.read_text(encoding="utf-8") == page.text(), (
        "python -m capsviz.checks.page > docs/check.md"
    )


def test_every_check_says_of_itself_what_a_reader_needs():
    for name, module in checks.checks().items():
        assert all(getattr(module.ABOUT, field) for field in ("paper", "seen", "breaks", "mend"))
        assert discovery.summary(checks.PITFALLS, name).endswith("."), name


def test_a_network_without_capsules_has_nothing_to_see():
    from helpers.public_layouts import Plain

    report = checks.run(Plain(), (1, 12, 10), 3)
    assert report.failures == ()
    unseen = of_status(report, "cannot be seen")
    assert {"couplings_sum", "places", "squash_axis", "iterations"} <= set(unseen)
