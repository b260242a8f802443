import math

import pytest
import torch
from helpers import literal as twins
from helpers.random_tensors import draw

from capsviz.nn import functional


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_squash_is_equation_1(scale):
    x = draw(3, 7) * scale
    expected = torch.tensor([twins.squash(row) for row in x], dtype=torch.float64)
    torch.testing.assert_close(functional.squash(x), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-12, 1e-6, 1.0, 1e6, 1e18])
def test_squash_has_finite_values_and_gradients_for_vectors_of_any_size(size, dtype):
    x = torch.full((2, 4), size, dtype=dtype, requires_grad=True)
    y = functional.squash(x)
    y.sum().backward()
    assert y.isfinite().all() and x.grad.isfinite().all()
    assert (y.norm(dim=-1) <= 1 + 1e-6).all()


@pytest.mark.parametrize(("present", "absent", "weight"), [(0.9, 0.1, 0.5), (0.8, 0.3, 0.2)])
def test_margin_loss_is_equation_4(present, absent, weight):
    lengths = torch.rand(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 4, 2, 2, 1, 3])
    own = {"m_plus": present, "m_minus": absent, "down_weight": weight}
    expected = twins.margin_loss(lengths, [{int(k)} for k in labels], **own)
    margins = {"present": present, "absent": absent, "down_weight": weight}
    found = functional.margin_loss(lengths, labels, **margins)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.bool])
def test_margin_loss_takes_several_classes_in_one_image(dtype):
    lengths = torch.rand(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    several = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0]])
    expected = torch.tensor(twins.margin_loss(lengths, [{0, 2}, set()]), dtype=torch.float64)
    found = functional.margin_loss(lengths, several.to(dtype))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("metric", "power"), [("l2", 2), ("l1", 1)])
def test_reconstruction_losses_sum_differences_over_the_pixels_of_each_image(metric, power):
    images, made = torch.rand(3, 2, 4, 5), torch.rand(3, 2, 4, 5)
    expected = [
        sum(abs(a - b) ** power for a, b in zip(x.flatten(), y.flatten(), strict=True))
        for x, y in zip(images, made, strict=True)
    ]
    found = functional.reconstruction_loss(images, made, metric)
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_standardise_is_that_of_tensorflow_for_each_image(dtype):
    images = torch.rand(3, 2, 4, 5).to(dtype)
    images[2] = 0.25  # even: its deviation counts as 1 / sqrt(40)
    images[1, 0, 0, 0] = 1
    found = functional.standardise(images)
    assert found.dtype == dtype
    for image, made in zip(images.double(), found.double(), strict=True):
        numbers = image.flatten().tolist()
        mean = sum(numbers) / 40
        deviation = max((sum((x - mean) ** 2 for x in numbers) / 40) ** 0.5, 40**-0.5)
        expected = torch.tensor([(x - mean) / deviation for x in numbers]).view(2, 4, 5)
        tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
        torch.testing.assert_close(made, expected.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("labels", [[2, 0, 2], [[2, 0], [1, 1], [3, 2]]])
def test_multi_hot_marks_every_class_of_an_image(labels):
    expected = torch.zeros(3, 4, dtype=torch.long)
    for b, classes in enumerate(labels):
        for k in classes if isinstance(classes, list) else [classes]:
            expected[b, k] = 1
    assert torch.equal(functional.multi_hot(torch.tensor(labels), 4), expected)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_a_leaky_softmax_is_a_softmax_with_one_more_logit_of_zero(dim, scale):
    logits = (scale * draw(2, 3, 5)).requires_grad_()
    found = functional.leaky_softmax(logits, dim)
    assert found.shape == logits.shape and found.isfinite().all()
    (found * draw(2, 3, 5, seed=1)).sum().backward()
    assert logits.grad.isfinite().all()
    rows, shares = logits.detach().movedim(dim, 2), found.detach().movedim(dim, 2)
    for row, share in zip(rows.flatten(0, 1), shares.flatten(0, 1), strict=True):
        top = max(0.0, float(row.max()))
        parts = [torch.tensor(x - top).exp() for x in (0.0, *row.tolist())]
        expected = [float(x / sum(parts)) for x in parts[1:]]
        assert share.tolist() == pytest.approx(expected, abs=1e-6)


def test_random_couplings_are_uniform_on_the_simplex(generator):
    c = functional.random_couplings((50, 200, 4), generator=generator)
    assert c.shape == (50, 200, 4) and c.min() > 0
    torch.testing.assert_close(c.sum(2), torch.ones(50, 200))
    # Dirichlet(1, 1, 1, 1): mean 1/4, variance (1/4)(3/4)/5, P(c_1 > 1/2) = (1/2)^3
    assert abs(c[..., 0].mean() - 1 / 4) < 0.01
    assert abs(c[..., 0].var() - 3 / 80) < 0.002
    assert abs((c[..., 0] > 0.5).float().mean() - 1 / 8) < 0.015


@pytest.mark.parametrize("function", [functional.squash, functional.squash_exp, functional.lengths])
def test_half_precision_is_finite_at_zero_and_beyond_256(function):
    x = torch.tensor([[[0.0, 0, 0]], [[300, 0, 0]], [[0.5, 0.25, 0]]]).half().requires_grad_()
    value = function(x)
    assert value.dtype == torch.float16 and value.isfinite().all()
    torch.testing.assert_close(value.float(), function(x.detach().float()), rtol=1e-3, atol=1e-6)
    (slope,) = torch.autograd.grad(value.sum(), x)
    assert slope.isfinite().all()
    assert (slope[0] == 0).all() == (function is not functional.squash_exp)


# Losses of activations


def activations_and_labels():
    generator = torch.Generator().manual_seed(0)
    return torch.rand(4, 6, generator=generator, dtype=torch.float64), torch.tensor([5, 0, 2, 2])


@pytest.mark.parametrize("progress", [0.0, 0.5, 1.0])
def test_the_spread_loss_is_equation_3_of_matrix_capsules(progress):
    activations, labels = activations_and_labels()
    margin = 0.2 + 0.7 * progress
    for row, label, loss in zip(
        activations, labels, functional.spread_loss(activations, labels, progress=progress),
        strict=True,
    ):  # fmt: skip
        others = [float(a) for j, a in enumerate(row) if j != label]
        expected = sum(max(0.0, margin - (float(row[label]) - a)) ** 2 for a in others)
        assert float(loss) == pytest.approx(expected)


def test_cross_entropy_is_of_the_share_of_the_true_class():
    activations, labels = activations_and_labels()
    losses = functional.cross_entropy(activations, labels)
    for row, label, loss in zip(activations, labels, losses, strict=True):
        assert float(loss) == pytest.approx(-math.log(row[label] / row.sum()), abs=1e-5)
    assert torch.isfinite(functional.cross_entropy(torch.zeros(2, 6), labels[:2])).all()


def test_several_present_classes_count_together():
    activations, _ = activations_and_labels()
    present = torch.zeros(4, 6)
    present[:, [1, 4]] = 1
    shares = (activations / activations.sum(1, keepdim=True)).log()
    expected = -(shares[:, 1] + shares[:, 4]) / 2
    assert torch.allclose(functional.cross_entropy(activations, present), expected, atol=1e-5)
    least = activations[:, [1, 4]].amin(1)
    spread = functional.spread_loss(activations, present)
    for b in range(4):
        absent = [float(activations[b, j]) for j in (0, 2, 3, 5)]
        assert float(spread[b]) == pytest.approx(
            sum(max(0.0, 0.9 - (float(least[b]) - a)) ** 2 for a in absent)
        )


def test_cross_entropy_of_no_present_class_is_nothing():
    labels = torch.eye(4)
    labels[2] = 0
    loss = functional.cross_entropy(torch.rand(4, 4), labels)
    assert loss[2] == 0 and (loss[[0, 1, 3]] > 0).all()


LOSSES = [functional.margin_loss, functional.spread_loss, functional.cross_entropy]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", [(4, 1), (1,), (1, 6)])
def test_labels_of_another_shape_are_refused(loss, shape):
    activations, _ = activations_and_labels()
    with pytest.raises(ValueError, match=r"expected labels \(4,\).* or \(4, 6\).*, got \("):
        loss(activations, torch.zeros(shape, dtype=torch.long))


@pytest.mark.parametrize("loss", [functional.margin_loss, functional.cross_entropy])
def test_labels_between_0_and_1_are_weights_of_classes(loss):
    activations, labels = activations_and_labels()
    hot = torch.nn.functional.one_hot(labels, 6).double()
    soft = 0.7 * hot + 0.3 * hot.roll(1, 1)
    expected = 0.7 * loss(activations, labels) + 0.3 * loss(activations, (labels + 1) % 6)
    torch.testing.assert_close(loss(activations, soft), expected)


def test_the_spread_loss_refuses_labels_between_0_and_1():
    activations, labels = activations_and_labels()
    smooth = 0.9 * torch.nn.functional.one_hot(labels, 6) + 0.1 / 6
    with pytest.raises(ValueError, match="spread loss: expected labels of 0 and 1"):
        functional.spread_loss(activations, smooth)


@pytest.mark.parametrize("progress", [-0.1, 7, math.nan])
def test_the_spread_loss_refuses_progress_outside_0_to_1(progress):
    with pytest.raises(ValueError, match=f"expected progress from 0 to 1, got {progress}"):
        functional.spread_loss(*activations_and_labels(), progress=progress)


@pytest.mark.parametrize("shape", [(5, 1, 6, 6), (1, 3, 6, 6)])
def test_a_reconstruction_of_another_shape_than_the_images_is_refused(shape):
    with pytest.raises(ValueError, match=r"expected a reconstruction \(5, 3, 6, 6\).*, got \("):
        functional.reconstruction_loss(torch.rand(5, 3, 6, 6), torch.rand(shape))


def test_cross_entropy_in_half_precision_has_finite_gradients_at_zero():
    activations = torch.tensor([[0, 0.5, 0.2]], dtype=torch.float16, requires_grad=True)
    functional.cross_entropy(activations, torch.tensor([1])).sum().backward()
    assert activations.grad.isfinite().all()


def test_fractional_labels_are_weights_of_a_mean():
    activations = torch.tensor([[0.8, 0.1, 0.1]])
    whole, half = (
        functional.cross_entropy(activations, torch.tensor([[w, 0, 0]])) for w in (1.0, 0.5)
    )
    torch.testing.assert_close(whole, half)
