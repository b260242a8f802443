"""Convolutions by the Fourier transform: as exact as those that are written out, and when."""

import pytest
import torch
from helpers.random_tensors import draw
from torch.nn.functional import conv2d

from capsviz.nn import allocator, fourier
from capsviz.nn.computation import literal
from capsviz.nn.convolution import convolve

PAPER = (20, 256, 20, 20), (256, 256, 9, 9), 2  # CapsNet's second convolution
NARROW = (16, 64, 20, 20), (128, 64, 9, 9), (128,)  # of fewer channels, where it pays as well


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [(8, 8), (9, 7), (11, 12)])
def test_it_is_the_convolution_for_odd_and_even_numbers_of_points(size, stride, k):
    images, weight, bias = draw(3, 2, *size, seed=1), draw(4, 2, k, k, seed=2), draw(4, seed=3)
    found, expected = (one(images, weight, bias, stride) for one in (fourier.convolve, conv2d))
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


def test_float32_loses_no_more_digits_than_sums_that_are_written_out():
    images, weight, bias = (draw(*shape, seed=k) for k, shape in enumerate(NARROW, 1))
    images = images.relu()
    exact = conv2d(images, weight, bias, 2)
    single = images.float(), weight.float(), bias.float(), 2
    errors = [(one(*single).double() - exact).abs().max() for one in (convolve, conv2d)]
    assert errors[0] <= 1.5 * errors[1]
    assert errors[0] > 0 and not torch.equal(convolve(*single), conv2d(*single))  # it is taken


@pytest.mark.parametrize("learning", [True, False])
def test_first_and_second_derivatives(learning):
    images, weight, bias = draw(2, 2, 7, 6, seed=1), draw(3, 2, 3, 3, seed=2), draw(3, seed=3)
    inputs = [x.requires_grad_() for x in ((images, weight, bias) if learning else (images,))]
    rest = () if learning else (weight, bias)
    assert torch.autograd.gradcheck(lambda *x: fourier.convolve(*x, *rest, 2), inputs)
    assert torch.autograd.gradgradcheck(lambda *x: fourier.convolve(*x, *rest, 2).square(), inputs)


@pytest.mark.parametrize(
    "write",
    [
        lambda weight: weight.mul_(2),
        lambda weight: weight.data.mul_(2),  # which PyTorch does not count as a change
        lambda weight: weight.data.view(-1)[0].add_(1),
        lambda weight: setattr(weight, "data", weight.data.flip(0)),
    ],
)
def test_kernels_that_were_written_to_are_transformed_again(write):
    images, bias = draw(3, 2, 8, 8, seed=1), draw(4, seed=3)
    weight = torch.nn.Parameter(draw(4, 2, 5, 5, seed=2))
    with torch.no_grad():
        for _ in range(2):
            found = fourier.convolve(images, weight, bias)
            torch.testing.assert_close(found, conv2d(images, weight, bias))
            write(weight)


def test_maps_that_lie_otherwise_have_their_own_transform_of_the_same_kernels():
    weight, bias = draw(4, 2, 5, 5, seed=2), draw(4, seed=3)
    for size in ((8, 9), (9, 8), (8, 9)):  # with as many products
        images = draw(3, 2, *size, seed=1)
        found = fourier.convolve(images, weight, bias)
        torch.testing.assert_close(found, conv2d(images, weight, bias))


def test_images_have_gradients_after_others_were_only_looked_at(monkeypatch):
    monkeypatch.setattr(fourier, "_cache", None)
    fourier._matrices.results.clear()
    images, bias = draw(3, 2, 8, 8, seed=1), draw(4, seed=3)
    weight = draw(4, 2, 5, 5, seed=2)
    with torch.inference_mode():
        fourier.convolve(images, weight, bias)
    found, expected = (
        torch.autograd.grad(one(images.requires_grad_(), weight, bias).square().sum(), images)
        for one in (fourier.convolve, conv2d)
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("images", "weight", "stride"),
    [
        ((fourier.LEAST_IMAGES - 1, *PAPER[0][1:]), PAPER[1], 2),  # few images
        ((32, 1, 28, 28), (256, 1, 9, 9), 1),  # large maps of few channels: conv1
        ((32, 64, 32, 32), (64, 64, 3, 3), 1),  # small kernels
        ((32, 256, 8, 8), (256, 256, 9, 9), 2),  # larger than the map
        ((32, 256, 40, 40), (256, 256, 9, 9), 2),  # kernels of a gigabyte
    ],
)
def test_elsewhere_it_does_not_pay(images, weight, stride):
    inputs = (torch.empty(one, device="meta") for one in (images, weight))
    assert not fourier.pays(*inputs, stride)


def test_other_numbers_and_the_literal_way_are_convolved_by_pytorch():
    images, weight, bias = (draw(*shape).float() for shape in NARROW)
    expected = conv2d(images, weight, bias, 2)
    with literal():
        assert torch.equal(convolve(images, weight, bias, 2), expected)
    assert not fourier.pays(images.half(), weight.half(), 2)
    assert not fourier.pays(images, weight.double(), 2)


def test_bfloat16_loses_little_more_than_sums_that_are_written_out():
    """The per cent of `convolve`'s text."""
    images, weight, bias = (draw(*shape, seed=k) for k, shape in enumerate(NARROW, 1))
    images = images.relu()
    exact = conv2d(images, weight, bias, 2)
    errors = []
    for one in (convolve, conv2d):
        with torch.autocast("cpu", torch.bfloat16):
            found = one(images.float(), weight.float(), bias.float(), 2)
        assert found.dtype == torch.bfloat16
        errors.append(((found - exact).square().mean() / exact.square().mean()).sqrt())
    assert 0.002 < errors[1] < 0.004 < errors[0] < 0.006


@pytest.mark.parametrize("kept", [True, False])
def test_kernels_that_learn_are_transformed_where_memory_is_kept_for_it_takes_more(
    kept, monkeypatch
):
    monkeypatch.setattr(allocator, "kept", lambda: kept)
    images, weight, bias = (draw(*shape).float() for shape in NARROW)
    found = convolve(images, weight.requires_grad_(), bias, 2)
    expected = conv2d(images, weight, bias, 2)
    size = float(expected.detach().std())  # of sums of 5,184 products, in another order
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-5 * size)
    assert torch.equal(found, expected) is not kept
