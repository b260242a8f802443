"""What holds for every decoder: a new file in capsviz/nn/decoders is found and tested here."""

import pytest
import torch
from helpers import literal as twins
from torch import nn
from torch.nn.functional import one_hot

from capsviz.nn import decoders
from capsviz.nn.decoders import Decoder

J, E, SHAPE = 3, 5, (2, 7, 6)
NAMES = decoders.available()
SIZES = [(1, 28, 28), (3, 24, 24), (1, 29, 31), (1, 17, 18), (1, 1, 1), (3, 2, 5)]

every_decoder = pytest.mark.parametrize("name", NAMES)


def build(name, norm=False, shape=SHAPE):
    """A decoder that is far from its start: normalised ones have seen other batches."""
    torch.manual_seed(0)
    decoder = Decoder(name, J, E, shape, norm=norm)
    for _ in range(3 if norm else 0):
        decoder(3 * torch.randn(8, J, E), torch.arange(8) % J)
    return decoder.eval()


@pytest.fixture(params=[(name, norm) for name in NAMES for norm in (False, True)], ids=str)
def decoder(request):
    return build(*request.param)


@pytest.fixture
def poses():
    return torch.randn(4, J, E, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "norm", "parameters"),
    [
        ("fully_connected", False, 1_411_344),  # Sabour et al. 2017
        ("fully_connected", True, 1_411_344 + 512 + 1_024),  # a scale for each unit
        ("deconvolution", False, 203_409),
        # the map's bias, one for each of its numbers, gives way to a scale and shift for 16 maps
        ("deconvolution", True, 203_409 - 16 * 7 * 7 + 2 * 16 + 64 + 32),
    ],
)
def test_parameter_counts_for_mnist(name, norm, parameters):
    with torch.device("meta"):
        decoder = Decoder(name, 10, 16, (1, 28, 28), norm=norm)
    assert sum(p.numel() for p in decoder.parameters()) == parameters
    assert name != "deconvolution" or parameters <= 260_000


@every_decoder
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_images_have_the_shape_asked_for_and_lie_in_0_1(name, norm, shape, poses):
    images = build(name, norm, shape)(100 * poses, torch.tensor([0, 1, 2, 0]))
    assert images.shape == (4, *shape)
    assert images.min() >= 0 and images.max() <= 1


def masked(poses, classes):
    """The poses of `classes` in their places among zeros, (B, J * E)."""
    x = torch.zeros(len(poses), J, E)
    for b, k in enumerate(classes.tolist()):
        x[b, k] = poses[b, k]
    return x.flatten(1)


def test_the_fully_connected_decoder_is_relu_layers_then_a_sigmoid_of_the_masked_poses(poses):
    decoder, classes = build("fully_connected"), torch.tensor([2, 0, 1, 1])
    first, second, last = (m for m in decoder.layers if isinstance(m, nn.Linear))
    found = decoder(poses, classes)
    for x, image in zip(masked(poses, classes), found, strict=True):
        x = (first.weight @ x + first.bias).clamp_min(0)
        x = (second.weight @ x + second.bias).clamp_min(0)
        x = 1 / (1 + (-(last.weight @ x + last.bias)).exp())
        torch.testing.assert_close(image, x.view(SHAPE))


def test_the_deconvolution_spreads_each_number_of_a_map_by_the_kernel(poses):
    decoder, classes = build("deconvolution"), torch.tensor([2, 0, 1, 1])
    first = decoder.layers[0]
    spread = [m for m in decoder.layers if isinstance(m, nn.ConvTranspose2d)]
    found = decoder(poses, classes)
    for x, image in zip(masked(poses, classes), found, strict=True):
        maps = (first.weight @ x + first.bias).clamp_min(0).view(16, 2, 2)
        for layer, size, stride in zip(spread, ((4, 3), (7, 6), (7, 6)), (2, 2, 1), strict=True):
            maps = twins.spread(maps, layer.weight.detach(), layer.bias.detach(), stride, size)
            maps = maps.clamp_min(0) if layer is not spread[-1] else 1 / (1 + (-maps).exp())
        torch.testing.assert_close(image, maps, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
def test_gradients_reach_the_pose_of_the_chosen_class_alone(decoder, poses, training):
    classes, weights = torch.tensor([0, 1, 2, 0]), torch.randn(4, *SHAPE)
    poses.requires_grad_()
    (decoder.train(training)(poses, classes) * weights).sum().backward()
    reached = poses.grad.abs().sum(2) > 0
    assert reached.tolist() == one_hot(classes, J).bool().tolist()
    assert all(p.grad.abs().sum() > 0 for p in decoder.parameters())


@every_decoder
def test_batch_norm_uses_the_batch_in_training_and_what_it_has_seen_afterwards(name, poses):
    decoder, classes = build(name, norm=True), torch.tensor([0, 1, 2, 0])
    plain = decoder(poses, classes)
    decoder.train()
    trained = decoder(poses, classes)
    assert not torch.allclose(trained[:2], plain[:2])
    assert not torch.allclose(trained[:2], decoder(poses[:2], classes[:2]))
    decoder.eval()
    torch.testing.assert_close(decoder(poses[:2], classes[:2]), decoder(poses, classes)[:2])


@every_decoder
def test_one_image_alone_cannot_train_batch_norm_and_is_refused(name, poses):
    decoder = build(name, norm=True).train()
    with pytest.raises(ValueError, match="at least 2 images in every training batch, got 1"):
        decoder(poses[:1], torch.tensor([0]))
    assert build(name).train()(poses[:1], torch.tensor([0])).shape == (1, *SHAPE)


@every_decoder
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_the_numbers_that_a_decoder_keeps_for_its_gradients_are_about_those_it_counts(
    name, norm, shape
):
    decoder, kept = Decoder(name, 10, 16, shape, norm=norm), {}

    def keep(tensor):
        if tensor.dim() and len(tensor) == 4:  # of the four images: no weight has four rows
            kept[tensor.data_ptr()] = tensor.numel() // 4
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        images = decoder(torch.rand(4, 10, 16), torch.tensor([0, 1, 2, 3]))
    assert images.requires_grad
    assert 0.5 * sum(kept.values()) < decoder.activations < 3 * sum(kept.values())
