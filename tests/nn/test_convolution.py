"""Every way of convolving is PyTorch's own convolution, in values and gradients."""

import pytest
import torch
from helpers.random_tensors import draw
from torch.nn.functional import conv2d

from capsviz.nn import allocator, convolution
from capsviz.nn.computation import literal
from capsviz.nn.convolution import convolve

# C, O, kernel, stride, H, W: patches smaller than the result or larger, odd sizes, a rest at the
# border that the stride leaves out
SHAPES = [(1, 90, 9, 1, 12, 11), (1, 8, 9, 1, 12, 11), (6, 8, 9, 2, 20, 17), (3, 4, 5, 3, 13, 12)]
every_shape = pytest.mark.parametrize("shape", SHAPES)


@pytest.fixture(params=["stock", "few images", "many images"])
def way(request, monkeypatch):
    """As a library is used, and as the commands are, where freed memory is kept."""
    monkeypatch.setattr(allocator, "kept", lambda: request.param != "stock")
    monkeypatch.setattr(convolution, "WIDE", 1)
    if request.param == "many images":
        monkeypatch.setattr(convolution, "MOST_PATCHES", 0)
    return request.param


def case(shape, dtype=torch.float64):
    C, O, k, stride, H, W = shape
    inputs = draw(5, C, H, W, seed=1), draw(O, C, k, k, seed=2), draw(O, seed=3)
    return [x.to(dtype).requires_grad_() for x in inputs], stride


def gradients(convolve, inputs):
    weights = torch.linspace(-1, 2, convolve.numel()).to(convolve).view(convolve.shape)
    return torch.autograd.grad((convolve * weights).sum(), inputs)


@every_shape
def test_values_and_gradients_are_those_of_conv2d(shape, way):
    inputs, stride = case(shape)
    found, expected = convolve(*inputs, stride), conv2d(*inputs, stride)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    for a, b in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@every_shape
def test_the_result_lies_channels_last_where_memory_is_kept(shape, way):
    inputs, stride = case(shape)
    found = convolve(*inputs, stride).is_contiguous(memory_format=torch.channels_last)
    assert found == (way != "stock")


@every_shape
def test_second_derivatives_are_right(shape, way):
    C, O, k, stride, *_ = shape
    small = draw(2, C, k + stride, k, seed=1), draw(O, C, k, k, seed=2), draw(O, seed=3)
    inputs = [x.requires_grad_() for x in small]

    def twice(function):
        (first,) = torch.autograd.grad(
            torch.tanh(function(*inputs, stride)).square().sum(), inputs[:1], create_graph=True
        )
        return torch.autograd.grad(first.square().sum(), inputs)

    for a, b in zip(twice(convolve), twice(conv2d), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@every_shape
def test_the_literal_way_is_conv2d_itself(shape, way):
    inputs, stride = case(shape)
    with literal():
        found = convolve(*inputs, stride)
    assert torch.equal(found, conv2d(*inputs, stride))
    assert type(found.grad_fn).__name__ == "ConvolutionBackward0"


@every_shape
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_networks_of_half_precision_convolve_in_it(shape, way, dtype):
    inputs, stride = case(shape)
    expected = convolve(*inputs, stride)
    inputs = [x.detach().to(dtype).requires_grad_() for x in inputs]
    found = convolve(*inputs, stride)
    assert found.dtype == dtype
    assert all(x.isfinite().all() for x in gradients(found, inputs))
    scale = expected.detach().abs().max()
    torch.testing.assert_close(found / scale, (expected / scale).to(dtype), rtol=0, atol=0.03)


@every_shape
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_how_inputs_lie_in_memory_changes_nothing(shape, way, layout):
    (images, weight, bias), stride = case(shape)
    found = convolve(images.contiguous(memory_format=layout), weight, bias, stride)
    other = convolve(images, weight.contiguous(memory_format=layout), bias, stride)
    torch.testing.assert_close(found, other)


@every_shape
def test_autocast_computes_in_bf16_and_gives_float32_gradients(shape, way):
    inputs, stride = case(shape, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = convolve(*inputs, stride), conv2d(*inputs, stride)
    assert found.dtype == torch.bfloat16
    scale = float(expected.detach().abs().max())
    torch.testing.assert_close(found / scale, expected / scale, rtol=0, atol=0.02)
    for a, b in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        assert a.dtype == torch.float32
        scale = float(b.abs().max())
        torch.testing.assert_close(a / scale, b / scale, rtol=0, atol=0.02)
