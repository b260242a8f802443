import pytest
import torch

from capsviz.decoders import FullyConnected

J, E, SHAPE = 3, 5, (2, 4, 6)


@pytest.fixture
def decoder():
    torch.manual_seed(0)
    return FullyConnected(J, E, SHAPE, hidden=(31, 32))


@pytest.fixture
def poses():
    return torch.randn(4, J, E, generator=torch.Generator().manual_seed(0))


def test_the_decoder_of_the_paper_has_its_parameter_count():
    with torch.device("meta"):
        decoder = FullyConnected(10, 16, (1, 28, 28))
    assert sum(p.numel() for p in decoder.parameters()) == 1_411_344


def test_images_have_the_shape_asked_for_and_lie_in_0_1(decoder, poses):
    images = decoder(100 * poses, torch.tensor([0, 1, 2, 0]))
    assert images.shape == (4, *SHAPE)
    assert images.min() >= 0 and images.max() <= 1


def test_the_decoder_is_relu_layers_then_a_sigmoid_of_the_masked_poses(decoder, poses):
    classes = torch.tensor([2, 0, 1, 1])
    first, second, last = (m for m in decoder.layers if isinstance(m, torch.nn.Linear))
    for b, image in enumerate(decoder(poses, classes)):
        x = torch.zeros(J, E)
        x[classes[b]] = poses[b, classes[b]]
        x = (first.weight @ x.flatten() + first.bias).clamp_min(0)
        x = (second.weight @ x + second.bias).clamp_min(0)
        x = 1 / (1 + (-(last.weight @ x + last.bias)).exp())
        torch.testing.assert_close(image, x.view(SHAPE))


def test_only_the_pose_of_the_chosen_class_matters(decoder, poses):
    classes = torch.tensor([0, 1, 2, 0])
    others = poses + 1.0
    others[torch.arange(4), classes] = poses[torch.arange(4), classes]
    assert torch.equal(decoder(others, classes), decoder(poses, classes))
    poses.requires_grad_()
    decoder(poses, classes).sum().backward()
    reached = poses.grad.abs().sum(2) > 0
    assert reached.tolist() == torch.nn.functional.one_hot(classes, J).bool().tolist()


def test_an_image_is_decoded_alone_as_in_a_batch(decoder, poses):
    classes = torch.tensor([0, 1, 2, 0])
    together = decoder(poses, classes)
    for b in range(4):
        alone = decoder(poses[b : b + 1], classes[b : b + 1])
        torch.testing.assert_close(alone, together[b : b + 1])


def test_images_stay_float32_under_autocast(decoder, poses):
    with torch.autocast("cpu", torch.bfloat16):
        assert decoder(poses, torch.tensor([0, 1, 2, 0])).dtype == torch.float32
