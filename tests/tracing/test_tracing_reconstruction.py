"""Distance of images to their reconstruction, and its gradients."""

import pytest
import torch
from conftest import build_tiny

from capsviz.tracing.outputs import activations_and_distance


def test_activations_and_the_winning_capsules_distance(network, tiny_images):
    lengths, far = activations_and_distance(network, tiny_images)
    seen = network.look(tiny_images, keep=("poses", "lengths"))
    made = network.decode(seen["poses"][-1], seen["lengths"].argmax(1))
    assert torch.allclose(lengths, seen["lengths"], atol=1e-5)
    assert torch.allclose(far, (made - tiny_images).square().sum((1, 2, 3)).sqrt(), atol=1e-4)


def test_gradients_of_the_distance_are_those_of_finite_differences(network, tiny_images):
    network, image = network.double(), tiny_images[:1].double()
    if hasattr(network, "decoder"):
        network.requires_grad_(False)
    image.requires_grad_()
    (gradient,) = torch.autograd.grad(activations_and_distance(network, image)[1].sum(), image)
    direction = torch.randn(image.shape, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        ahead, behind = (
            activations_and_distance(network, image + s * 1e-6 * direction)[1] for s in (1, -1)
        )
    slope = float((ahead - behind) / 2e-6)
    assert float((gradient * direction).sum()) == pytest.approx(slope, rel=1e-4, abs=1e-6)


def test_networks_without_capsules_or_decoder_are_refused(tiny_images):
    with pytest.raises(ValueError, match="no capsules"):
        activations_and_distance(torch.nn.Linear(2, 2), tiny_images)
    with pytest.raises(ValueError, match="no decoder"):
        activations_and_distance(build_tiny(reconstruction_weight=0.0), tiny_images)
