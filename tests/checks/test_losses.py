"""What the checks say of losses that are wrong, and of functions that are none."""

from functools import partial

import pytest
import torch
from helpers import planted_bugs as planted
from helpers.planted_bugs import CLASSES, SHAPE
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    multi_margin_loss,
    one_hot,
    smooth_l1_loss,
)

from capsviz import checks
from capsviz.nn.functional import margin_loss
from capsviz.testing import assert_capsnet


def verdict(loss, check="wrong_margin_loss"):
    report = checks.run(planted.Correct(), SHAPE, CLASSES, loss=loss, only=check)
    return report.verdict(check)


def of_terms(present, absent):
    """A loss of two functions of the lengths."""

    def loss(output, images, labels):
        lengths, drawn = output
        right = one_hot(labels, CLASSES).to(lengths)
        margin = (right * present(lengths) + (1 - right) * absent(lengths)).sum(1)
        squares = (drawn - images).square().flatten(1).sum(1)
        return (margin + 0.0005 * squares).mean()

    return loss


def above(margin, power=2):
    return lambda lengths: (lengths - margin).clamp_min(0) ** power


def below(margin, power=2):
    return lambda lengths: (margin - lengths).clamp_min(0) ** power


def half(term):
    return lambda lengths: 0.5 * term(lengths)


def hinge(power):
    return lambda output, images, labels: multi_margin_loss(output[0], labels, p=power)


def scaled_cross_entropy(output, images, labels):
    return cross_entropy(10 * output[0], labels)


NEITHER = of_terms(torch.zeros_like, torch.zeros_like)
MARGIN = [  # what is judged by `wrong_margin_loss`
    (of_terms(above(0.9), half(above(0.1))), "FAIL", "0.05 for the true class and 0.05 for the"),
    (of_terms(below(0.9), half(below(0.1))), "FAIL", "0.95 for the true class and 0.95 for the"),
    (of_terms(half(above(0.1)), below(0.9)), "FAIL", "present and absent are exchanged"),
    (of_terms(below(0.1), half(above(0.9))), "FAIL", "the margins are exchanged"),
    (of_terms(below(0.9), torch.zeros_like), "FAIL", "other classes cost nothing"),
    (of_terms(below(0.9), half(above(0.1, power=1))), "FAIL", "4.00 times as large for the true"),
    (of_terms(below(0.9), half(above(0.4))), "WARN", "margins of 0.90 and 0.40"),
    (partial(planted.loss, margins=(0.8, 0.2)), "WARN", "margins of 0.80 and 0.20"),
    (partial(planted.loss, absent=1.0), "WARN", "with λ = 1, expected 0.5"),
    (planted.hardest_absent, "WARN", "classes are not summed one by one"),
    (NEITHER, "SKIPPED", "does not follow the lengths"),
    (lambda out, x, y: planted.loss(out, x, out[0].argmax(1)), "FAIL", "other labels change"),
    (lambda out, x, y: margin_loss(out[0][:1], y[:1]).mean(), "FAIL", "lengths of image 2 of 4"),
    (lambda out, x, y: planted.loss(out, x, y + 1), "FAIL", "class label +1"),
    (lambda out, x, y: planted.loss(out, x, (y - 1) % CLASSES), "FAIL", "class label -1"),
]


def drawn_by(distance):
    """A margin loss, and a reconstruction loss by another distance of pixels."""

    def loss(output, images, labels):
        far = distance(output[1], images).flatten(1).sum(1).mean()
        return margin_loss(output[0], labels).mean() + 5e-4 * far

    return loss


DRAWN = [  # what is judged by `wrong_reconstruction_weight`
    (drawn_by(lambda drawn, x: (drawn - x).square()), "PASS", "weighs 0.0005 "),
    (drawn_by(lambda drawn, x: (drawn - x).abs()), "WARN", "not by a square"),
    (drawn_by(partial(smooth_l1_loss, reduction="none")), "WARN", "not by a square"),
    (
        drawn_by(partial(binary_cross_entropy_with_logits, reduction="none")),
        "WARN",
        "not by a square",
    ),
]
SOFTMAX = [
    (scaled_cross_entropy, "FAIL", ""),
    (planted.softmax_in_the_loss, "FAIL", ""),
    (hinge(1), "WARN", "a margin between classes"),
    (hinge(2), "WARN", "a margin between classes"),
    (NEITHER, "SKIPPED", "does not follow the lengths"),
]
TRAINED = [
    (lambda out, *given: planted.loss((out[0], out[1].detach()), *given), "WARN", "train the dec"),
    (lambda *given: planted.loss(*given).item(), "PASS", "reach 7 of 7 weights"),
]


@pytest.mark.parametrize(
    ("check", "loss", "status", "said"),
    [("wrong_margin_loss", *one) for one in MARGIN]
    + [("wrong_reconstruction_weight", *one) for one in DRAWN]
    + [("softmax_in_loss", *one) for one in SOFTMAX]
    + [("untrained_weights", *one) for one in TRAINED],
)
def test_a_loss_that_is_wrong_or_another_is_named(check, loss, status, said):
    one = verdict(loss, check)
    assert one.status == status and said in one.message, one
    assert bool(one.numbers) == (status != "SKIPPED")


@pytest.mark.parametrize("number", [float("nan"), torch.tensor(torch.inf)])
def test_a_loss_that_is_not_finite_passes_nothing(number):
    for one in planted.examined(planted.Correct(), loss=lambda *_: number).verdicts:
        if one.check in ("wrong_margin_loss", "softmax_in_loss", "wrong_reconstruction_weight"):
            assert one.status == "SKIPPED", one
            assert one.message == "the loss is not finite" or one.cause


class Both(planted.Correct):
    """Says lengths and poses."""

    def forward(self, x, labels=None):
        v = self.poses(x)
        return {"lengths": self.lengths(v), "poses": v}


@pytest.mark.parametrize(
    ("name", "lengths"),
    [("lengths", lambda lengths: lengths), ("poses", lambda poses: poses.norm(dim=-1))],
)
def test_what_the_loss_follows_of_lengths_and_poses_is_moved(name, lengths):
    def margin(output, images, labels):
        return margin_loss(lengths(output[name]), labels).mean()

    def softmax(output, images, labels):
        return cross_entropy(lengths(output[name]), labels)

    only = ("wrong_margin_loss", "softmax_in_loss")
    report = checks.run(Both(), SHAPE, CLASSES, loss=margin, only=only)
    assert all(report.verdict(check).status == "PASS" for check in only), report.text()
    report = checks.run(Both(), SHAPE, CLASSES, loss=softmax, only=only)
    assert [one.check for one in report.failures] == ["softmax_in_loss"], report.text()


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda output, images, labels: output.nosuch, "loss= raises AttributeError: .*nosuch"),
        (lambda output, labels: 0.0, "loss= raises TypeError: .*labels are indices"),
        (lambda output, images, labels: output[0].sum(1), r"returns Tensor \(4,\), expected a"),
        (lambda output, images, labels: (output[0].sum(), 1), "returns tuple, expected a number"),
        (lambda output, images, labels: None, "returns NoneType, expected a number"),
    ],
)
def test_a_loss_that_is_none_is_refused_in_one_line(loss, said):
    with pytest.raises(ValueError, match=said) as error:
        assert_capsnet(planted.Correct(), SHAPE, CLASSES, loss=loss)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there it runs on the GPU")
def test_a_loss_that_says_cuda_is_looked_into():
    def loss(output, images, labels):
        weights = torch.ones(CLASSES, device="cuda").to(torch.device("cuda"))
        return planted.loss((output[0] * weights, output[1]), images.cuda(), labels.cuda())

    assert verdict(loss).status == "PASS"
    assert verdict(loss, "wrong_reconstruction_weight").status == "PASS"
