"""Each planted bug raises its own alarm and no other; a correct network raises none."""

import re
from collections import OrderedDict
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from helpers import planted_bugs as planted
from helpers import public_layouts
from helpers.planted_bugs import CLASSES, SHAPE, examined, of_status
from helpers.three_styles import BUGS, STYLES, VARIANTS, built

import capsviz
from capsviz import checks, discovery
from capsviz.checks import calling
from capsviz.checks.verdict import SkippedError, passes, warns
from capsviz.nn import models
from capsviz.nn.functional import margin_loss
from capsviz.testing import assert_capsnet

FACTS = {
    "loss": planted.loss,
    "train_data": planted.digits(),
    "test_data": planted.digits(),
    "new": planted.Correct(),
}
FAIL = {  # by check, bugs that it must find beside those of `three_styles`
    "wrong_softmax_axis": "ImplicitSoftmax",
    "mixed_batch": "FirstMask",
    "constant_couplings": "NeverRouted",
    "wrong_agreement": "AwayFromAgreement Distance",
    "wrong_iterations": "EachPose",
    "wrong_squash_axis": "SquashOverColumns",
    "wrong_class_squash": "SquashOverClasses NoClassSquash UnitLength",
    "nan_at_zero": "NaNGradientOfLengths",
    "nan_at_long_capsules": "NaNGradientAtLarge",
    "unsquashed_primary": "UnitChildren",
    "relu_before_squash": "ReluBeforeSquash",
    "scores_are_not_lengths": "SoftmaxOnLengths",
    "label_leak": "LabelAtTest",
    "decoder_without_class": "NextClassDrawn AllDrawn",
    "fails_on_single_image": "Squeezed",
    "hardcoded_gpu": "OnGPU OfGPUType",
    "not_repeatable": "Random KeptLogits",
    "nan_output": "NaNAlways",
    "detached_gradients": "VotesDetached",
    "untrained_weights": "Overwritten",
}
WARN = {
    "wrong_agreement": "OtherParent ReplacedLogits AgreementOfSquashedVotes HalfAgreement",
    "wrong_class_squash": "VanishingLengths",
    "decoder_without_class": "UntoldDecoder",
    "detached_gradients": "Detached AgreementDetached ChildrenDetached",
    "handwritten_softmax": "SoftmaxByHand",
    "untrained_weights": "DecoderDetached LengthsDetached",
}
BESIDE = {  # bugs beside the network
    "wrong_margin_loss": {"loss": planted.margin_not_squared},
    "wrong_reconstruction_weight": {"loss": planted.mean_of_pixels},
    "softmax_in_loss": {"loss": planted.softmax_in_the_loss},
    "targets_out_of_range": {"train_data": planted.digits(normalised=True)},
    "random_test_images": {"test_data": planted.Moved()},
    "saturation": {"new": planted.Saturated()},
}


def test_a_correct_network_passes_every_check():
    report = examined(planted.Correct(), **FACTS)
    assert {one.status for one in report.verdicts} == {"PASS"}, report.text()
    assert {one.check for one in report.verdicts} == set(checks.checks())
    assert report.verdict("wrong_reconstruction_weight").numbers["weight"] == pytest.approx(
        5e-4, rel=0.1
    )
    assert report.verdict("wrong_margin_loss").numbers["growth"] == pytest.approx(4, rel=0.01)
    assert report.verdict("wrong_iterations").numbers == {"made": 3, "declared": 3}
    highest = report.verdict("scores_are_not_lengths").numbers["highest_possible"]
    assert highest == pytest.approx(2.71828 / (2.71828 + 4), rel=1e-4)


PLANTED = {  # by name: what builds the network, what is beside it, the check and its status
    **{bug: (getattr(planted, bug), {"loss": planted.loss}, check, status)
       for status, table in (("FAIL", FAIL), ("WARN", WARN))
       for check, bugs in table.items() for bug in bugs.split()},
    **{check: (planted.Correct, FACTS | more, check, "FAIL") for check, more in BESIDE.items()},
    **{f"{style.__name__}, {bug}": (partial(built, style, bug), {}, check, status)
       for style in STYLES for bug, (check, status) in BUGS.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_raises_its_own_alarm_and_no_other(name):
    build, facts, check, status = PLANTED[name]
    network = build()
    report = examined(network, **facts or {"loss": network.loss})
    alarms = {(one.check, one.status) for one in report.verdicts if one.status in ("FAIL", "WARN")}
    assert alarms == {(check, status)}, report.text()
    verdict = report.verdict(check)
    assert verdict.numbers and verdict.message and verdict.fix and verdict.paper
    if facts:
        skipped = [one for one in report.verdicts if one.status == "SKIPPED"]
        assert {one.check for one in skipped if one.cause != check} <= set(BESIDE), report.text()


def test_every_check_has_a_bug_that_it_finds():
    missing = set(checks.checks()) - {check for _, _, check, _ in PLANTED.values()}
    assert not missing, "tests/helpers/planted_bugs.py needs a bug for these, and `FAIL` its name"


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_correct_variant_fails_nothing(style, variant):
    network = built(style, variant)
    report = examined(network, loss=network.loss)
    assert of_status(report, "FAIL") == [], report.text()
    if variant == "compressed":
        assert "not with the capsules before" in report.verdict("unsquashed_primary").message
    if not variant:
        assert of_status(report, "WARN") == [], report.text()
        assert len(of_status(report, "PASS")) == len(checks.checks()) - 3, report.text()


@pytest.mark.parametrize(
    ("network", "check"),
    [("OverChildrenAndBatch", "mixed_batch"), ("OverChildrenAndSqueezed", "fails_on_single_image")],
)
def test_a_softmax_over_children_hides_no_mixture_of_images(network, check):
    report = examined(getattr(planted, network)(), **FACTS)
    assert set(of_status(report, "FAIL")) == {"wrong_softmax_axis", check}, report.text()


@pytest.mark.parametrize(
    ("loss", "check", "status", "words"),
    [
        (planted.relabelled, "wrong_margin_loss", "FAIL", "labels are in another order"),
        (partial(planted.relabelled, order=lambda y: (y + 2) % CLASSES), "wrong_margin_loss",
         "FAIL", r"of class label \+2"),
        (planted.exchanged_and_weighed, "wrong_margin_loss", "FAIL", "a sign is wrong"),
        (planted.unlabelled, "wrong_margin_loss", "FAIL", "other labels change nothing"),
        (planted.detached_lengths, "untrained_weights", "FAIL", "takes no gradient of them"),
    ],
)  # fmt: skip
def test_a_loss_is_told_what_is_wrong_with_it(loss, check, status, words):
    verdict = examined(planted.Correct(), loss=loss, only=check).verdict(check)
    assert verdict.status == status and re.search(words, verdict.message), verdict.message


@pytest.mark.parametrize(("axes", "status"), [((2,), "PASS"), ((1,), "WARN"), ((0, 1, 2), "WARN")])
def test_a_softmax_by_hand_is_right_less_the_largest_of_what_it_sums_alone(axes, status):
    class ByHand(planted.Correct):
        def couplings(self, logits):
            powers = (logits - logits.amax(axes, keepdim=True)).exp()
            return powers / powers.sum(dim=2, keepdim=True)

    check = "handwritten_softmax"
    verdict = examined(ByHand(), only=check).verdict(check)
    assert verdict.status == status and "by hand" in verdict.message


def test_test_images_are_read_twice_whatever_a_function_returns():
    def drawn(kind):
        return kind([image for image, _ in planted.Moved()])

    for kind in (list, torch.stack):
        report = examined(
            planted.Correct(), test_data=partial(drawn, kind), only="random_test_images"
        )
        assert report.verdict("random_test_images").status == "FAIL", kind
        once = examined(
            planted.Correct(), test_data=drawn(kind), only="random_test_images"
        ).verdict("random_test_images")
        assert once.status == "SKIPPED" and "is the same each time" in once.message


@pytest.mark.parametrize(
    "form", [tuple, lambda pair: dict(zip(("y", "images"), pair[::-1], strict=True))]
)
def test_images_of_a_loader_are_those_that_its_batches_hold(form):
    def normalised(items):
        images = torch.stack([(image - 0.13) / 0.31 for image, _ in items])
        return form((images, torch.zeros(len(items))))

    loader = torch.utils.data.DataLoader(planted.digits(), collate_fn=normalised)
    report = examined(planted.Correct(), train_data=loader, only="targets_out_of_range")
    assert report.verdict("targets_out_of_range").status == "FAIL", report.text()
    plain = torch.utils.data.DataLoader(planted.digits(), batch_size=None)
    report = examined(planted.Correct(), test_data=plain, only="random_test_images")
    assert report.verdict("random_test_images").message.startswith("0 of 8"), report.text()


def test_a_loss_of_poses_that_weighs_by_detached_lengths_trains():
    class Posed(planted.Correct):
        def forward(self, x, labels=None):
            return *super().forward(x, labels), self.poses(x)

    def weighed(output, images, labels):
        lengths, drawn, poses = output
        weights = 2 - lengths.detach().gather(1, labels[:, None])[:, 0]
        return (weights * margin_loss(poses.norm(dim=2), labels)).mean() + 0 * drawn.mean()

    report = examined(Posed(), loss=weighed, only="untrained_weights")
    assert report.verdict("untrained_weights").status == "PASS", report.text()


@pytest.mark.parametrize("below", ["PASS", "WARN"])
def test_a_layer_that_can_be_judged_is_reported_where_the_class_capsules_cannot(below):
    def examine(candidate, layer):
        if layer == "classes":
            raise SkippedError("one iteration")
        return (passes if below == "PASS" else warns)(f"{layer.name} routes")

    lower = SimpleNamespace(name="first", layer=SimpleNamespace(place="here"))
    capsules = SimpleNamespace(before=[lower])
    caller = SimpleNamespace(require_time=lambda: None, evaluating=nullcontext)
    candidate = SimpleNamespace(capsules="classes", caller=caller)
    candidate.capsules = type("Classes", (str,), {"before": capsules.before})("classes")
    about = SimpleNamespace(every_layer=True)
    judgement = checks._judge(SimpleNamespace(about=about, examine=examine), candidate)
    assert judgement.status == below and judgement.message.startswith("first routes")


def test_a_table_of_verdicts_has_four_cells_in_each_row():
    table = [one for one in examined(planted.Correct()).markdown().splitlines() if one[:1] == "|"]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in table} == {5}


def test_collapsed_weights_raise_no_warning():
    report = examined(planted.Collapsed(), **FACTS)
    assert of_status(report, "WARN") == [], report.text()
    for check in ("wrong_agreement", "decoder_without_class"):
        assert "collapsed" in report.verdict(check).message
    assert report.verdict("wrong_class_squash").status == "PASS"


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_normalisation_is_applied_in_every_pass(wrapped):
    normalise, network = (0.1, 0.3), planted.Correct()
    options = {"new": planted.Correct(), "only": ("wrong_agreement", "saturation")}
    if wrapped:
        report = checks.run(capsviz.wrap(network, SHAPE, CLASSES, normalise=normalise), **options)
    else:
        report = examined(network, normalise=normalise, **options)
    assert report.verdict("wrong_agreement").status == "PASS", report.text()
    # of images as they are the mean length is 0.004
    assert report.verdict("saturation").numbers["mean"] == pytest.approx(0.11, abs=0.04)


def test_what_is_not_given_is_skipped_with_the_reason():
    report = examined(planted.Correct())
    skipped = {one.check: one.message for one in report.verdicts if one.status == "SKIPPED"}
    assert set(skipped) == {*BESIDE, "permuted_reconstruction"}
    assert all("given" in message for message in skipped.values())
    assert report.exit_status == 0


SMALL = {"channels": 6, "types": 3, "primary_dimensions": 4, "hidden": (8,)}
AGREEMENT = {  # of routings unlike the paper's
    "em": ("WARN", "by 0.20, expected 1"),
    "inverted_attention": ("WARN", "logits are replaced"),
    "k_means": ("WARN", "logits are replaced"),
    "max_min": ("SKIPPED", "no softmax weighs votes"),
    "uniform": ("SKIPPED", "no softmax weighs votes"),
    "self_attention": ("SKIPPED", "routes in one iteration"),
    "self_routing": ("SKIPPED", "routes in one iteration"),
}


@pytest.mark.parametrize("routing", discovery.names("capsviz.nn.routing"))
def test_no_routing_raises_an_alarm(routing):
    torch.manual_seed(0)
    network = models.build("capsnet", (1, 22, 20), 4, routing=routing, **SMALL)
    verdict = assert_capsnet(network).verdict("wrong_agreement")
    status, words = AGREEMENT.get(routing, ("PASS", ""))
    assert verdict.status == status and words in verdict.message


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_a_correct_capsnet_raises_no_alarm(preset):
    torch.manual_seed(0)
    network = models.build("capsnet", (1, 22, 20), 4, preset=preset, **SMALL)
    report = assert_capsnet(network, new=network)
    saturation = ["saturation"] if preset == "paper" else []
    for check in ("mixed_positions", "wrong_margin_loss", *saturation):
        assert report.verdict(check).status == "PASS", report.text()


def test_efficient_capsnet_raises_no_alarm():
    torch.manual_seed(0)
    assert_capsnet(models.build("efficient_capsnet", (1, 28, 28), 10))


def test_a_network_without_capsules_is_refused_but_for_checks_that_are_named():
    plain = public_layouts.Plain(), (1, 12, 10), 3
    with pytest.raises(ValueError, match="no capsules were found in Plain: no softmax weighs"):
        checks.run(*plain)
    report = checks.run(*plain, only=("mixed_batch", "mixed_positions"))
    assert report.verdict("mixed_batch").status == "PASS"
    assert report.verdict("mixed_positions").status == "SKIPPED"


def test_the_network_is_left_as_it_was():
    network = planted.Squeezed()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    examined(network, **FACTS)
    assert network.training and network.iterations == 3
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.get_default_dtype() == torch.float32
    assert not any(module._forward_hooks for module in network.modules())


def test_assert_capsnet_fails_with_the_report():
    with pytest.raises(AssertionError, match=r"FAIL +mixed_positions: ") as error:
        assert_capsnet(planted.AcrossPlaces(), image_shape=SHAPE, classes=CLASSES)
    assert "fix:" in str(error.value)


def test_some_checks_can_be_chosen():
    report = examined(planted.Correct(), only=["wrong_squash_axis"])
    assert {one.check for one in report.verdicts} == {
        "nan_output", "not_repeatable", "unsquashed_primary", "wrong_squash_axis",
    }  # fmt: skip
    with pytest.raises(ValueError, match="unknown check 'squash'"):
        examined(planted.Correct(), only="squash")
    with pytest.raises(ValueError, match="no verdict of 'mixed_batch', expected one of: "):
        report.verdict("mixed_batch")


def test_checks_of_a_slow_network_end_and_say_so(monkeypatch):
    monkeypatch.setattr(calling, "SECONDS", 0)
    report = examined(planted.Correct())
    assert all("the network is slow" in one.message for one in report.verdicts if not one.cause)
    assert {one.status for one in report.verdicts} == {"SKIPPED"}


def test_few_images_are_repeated_and_are_not_noise():
    seen = []

    class Seen(planted.Correct):
        def forward(self, x, labels=None):
            seen.append(x.flatten(1))
            return super().forward(x, labels)

    given = torch.rand(3, *SHAPE)
    assert not examined(Seen(), images=given, only="nan_output").failures
    assert {len(x) for x in seen} >= {7}
    assert all((torch.cdist(x, given.flatten(1)).amin(1) == 0).all() for x in seen)


def test_what_compares_images_is_not_judged_by_one():
    given = torch.rand(1, *SHAPE).repeat(8, 1, 1, 1)
    report = examined(planted.SharedLogits(), images=given)
    for name in ("mixed_batch", "constant_couplings"):
        assert report.verdict(name).status == "SKIPPED"
        assert "compares different images" in report.verdict(name).message
    assert report.notes == ()


@dataclass(frozen=True)
class Named:
    lengths: torch.Tensor
    images: torch.Tensor


class Mapped(OrderedDict):
    __getattr__ = OrderedDict.__getitem__


@pytest.mark.parametrize("kind", [Named, Mapped])
def test_the_loss_of_outputs_of_any_kind_is_examined(kind):
    class Network(public_layouts.Unsqueezed):
        def forward(self, x):
            lengths, images = super().forward(x)
            return kind(lengths=lengths, images=images)

    def loss(output, images, labels):
        squares = (output.images - images).square().flatten(1).sum(1)
        return (margin_loss(output.lengths, labels) + 5e-4 * squares).mean()

    report = checks.run(Network(), public_layouts.SHAPE, public_layouts.CLASSES, loss=loss)
    assert of_status(report, "FAIL") == ["hardcoded_gpu"]
    assert {"wrong_margin_loss", "wrong_reconstruction_weight"} <= set(of_status(report, "PASS"))
