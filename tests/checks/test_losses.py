"""What the checks say of losses that are wrong, and of functions that are none."""

import pytest
import torch
from helpers import planted_bugs as planted
from helpers.planted_bugs import CLASSES, SHAPE
from torch.nn.functional import cross_entropy, one_hot

from capsviz import checks
from capsviz.nn.functional import margin_loss
from capsviz.testing import assert_capsnet


def verdict(loss, check="margin"):
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


@pytest.mark.parametrize(
    ("present", "absent", "said"),
    [
        (above(0.9), half(above(0.1)), "a present class costs more where it is long"),
        (below(0.9), half(below(0.1)), "absent classes cost more where they are short"),
        (below(0.1), half(above(0.9)), "margins are exchanged: 0.10 for the present class and 0.9"),
        (below(0.9), torch.zeros_like, "absent classes cost nothing"),
        (below(0.9), half(above(0.1, power=1)), "4.00 times as large for the present class, 2.00"),
    ],
)
def test_a_margin_loss_that_is_wrong_fails(present, absent, said):
    one = verdict(of_terms(present, absent))
    assert one.status == "fails" and said in one.said and one.numbers, one


def test_a_loss_of_the_hardest_absent_class_alone_is_no_margin_loss():
    one = verdict(planted.hardest_absent)
    assert one.status == "told" and "classes are not summed one by one" in one.said, one


def test_a_margin_of_absent_classes_up_to_a_half_is_told():
    one = verdict(of_terms(below(0.9), half(above(0.4))))
    assert one.status == "told", one
    assert one.numbers["absent_margin"] == pytest.approx(0.4, abs=0.005)


@pytest.mark.parametrize("check", ["margin", "loss_softmax"])
def test_a_loss_that_does_not_follow_the_lengths_is_not_judged(check):
    one = verdict(of_terms(torch.zeros_like, torch.zeros_like), check)
    assert one.status == "cannot be seen" and "does not follow the lengths" in one.said


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

    only = ("margin", "loss_softmax")
    report = checks.run(Both(), SHAPE, CLASSES, loss=margin, only=only)
    assert all(report.verdict(check).status == "passes" for check in only), report.text()
    report = checks.run(Both(), SHAPE, CLASSES, loss=softmax, only=only)
    assert [one.check for one in report.failures] == ["loss_softmax"], report.text()


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

    assert verdict(loss).status == "passes"
    assert verdict(loss, "reconstruction_weight").status == "passes"
