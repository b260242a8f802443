"""Objectives against loops over classes, as their papers write them."""

import math

import pytest
import torch

from capsviz.nn import functional as objectives


def draw():
    generator = torch.Generator().manual_seed(0)
    return torch.rand(4, 6, generator=generator, dtype=torch.float64), torch.tensor([5, 0, 2, 2])


@pytest.mark.parametrize("progress", [0.0, 0.5, 1.0])
def test_the_spread_loss_is_equation_3_of_matrix_capsules(progress):
    activations, labels = draw()
    margin = 0.2 + 0.7 * progress
    for row, label, loss in zip(
        activations, labels, objectives.spread_loss(activations, labels, progress=progress),
        strict=True,
    ):  # fmt: skip
        others = [float(a) for j, a in enumerate(row) if j != label]
        expected = sum(max(0.0, margin - (float(row[label]) - a)) ** 2 for a in others)
        assert float(loss) == pytest.approx(expected)


def test_cross_entropy_is_of_the_share_of_the_true_class():
    activations, labels = draw()
    losses = objectives.cross_entropy(activations, labels)
    for row, label, loss in zip(activations, labels, losses, strict=True):
        assert float(loss) == pytest.approx(-math.log(row[label] / row.sum()), abs=1e-5)
    assert torch.isfinite(objectives.cross_entropy(torch.zeros(2, 6), labels[:2])).all()


def test_several_present_classes_count_together():
    activations, _ = draw()
    present = torch.zeros(4, 6)
    present[:, [1, 4]] = 1
    shares = (activations / activations.sum(1, keepdim=True)).log()
    expected = -(shares[:, 1] + shares[:, 4]) / 2
    assert torch.allclose(objectives.cross_entropy(activations, present), expected, atol=1e-5)
    least = activations[:, [1, 4]].amin(1)
    spread = objectives.spread_loss(activations, present)
    for b in range(4):
        absent = [float(activations[b, j]) for j in (0, 2, 3, 5)]
        assert float(spread[b]) == pytest.approx(
            sum(max(0.0, 0.9 - (float(least[b]) - a)) ** 2 for a in absent)
        )


def test_cross_entropy_of_no_present_class_is_nothing():
    labels = torch.eye(4)
    labels[2] = 0
    loss = objectives.cross_entropy(torch.rand(4, 4), labels)
    assert loss[2] == 0 and (loss[[0, 1, 3]] > 0).all()
