"""Scores, which are refused if they are no numbers, and distances to a reconstruction."""

import click
import pytest
import torch
from conftest import build_tiny

from capsviz import checkpoint
from capsviz.cli import errors
from capsviz.tracing import score_name, scores, trace
from capsviz.tracing.many import winners
from capsviz.tracing.outputs import activations_and_distance


class Plain(torch.nn.Module):
    """No capsules: the sums of three pixels, over a pixel that may be zero."""

    card = {"name": "plain"}

    def forward(self, images):
        lengths = images.flatten(1)[:, :3] / images.flatten(1)[:, 5:6]
        return type("Output", (), {"lengths": lengths})


def test_scores_that_are_nan_name_the_network_and_their_number(tiny_images):
    images = tiny_images.clone()
    assert scores(Plain(), images).shape == (8, 3)
    images[[2, 6]] = 0  # 0 / 0
    with pytest.raises(ValueError, match=r"network 'plain' for 2 of 8 .* first for image 2"):
        scores(Plain(), images, chunk=3)


def test_a_command_could_not_read_nan_and_was_not_asked_wrongly(tiny, tiny_images):
    with torch.no_grad():
        tiny.capsules.weight[0] = torch.nan
    with pytest.raises(click.ClickException, match="no numbers") as caught, errors():
        scores(tiny, tiny_images)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (None, "activations"),  # all parts
        ("lengths", "activations"),
        ("couplings", "couplings"),
        ("primary", "children"),
    ],
)
def test_no_part_of_a_trace_that_is_read_is_nan(tiny, tiny_images, part, words):
    with torch.no_grad():
        tiny.conv1.bias[0] = torch.nan
    options = {} if part is None else {"keep": part}
    with pytest.raises(ValueError, match=f"the {words} of the network .* for 8 of 8 images"):
        trace(tiny, tiny_images, chunk=3, **options)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("digits", "capsule length"),
        ("digits-self-attention", "capsule length"),
        ("digits-matrix", "activation"),
        ("digits-self-routing", "activation"),
        ("mnist-resnet", "probability"),
    ],
)
def test_a_score_is_called_what_it_is(name, kind):
    model = checkpoint.load(name)
    image = torch.rand(1, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    assert score_name(model) == score_name(model, image) == kind


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


def test_the_largest_activation_is_read_and_none_where_another_is_as_large():
    rows = torch.tensor([[0.1, 0.3, 0.2], [0.3, 0.1, 0.3], [0.0, 0.0, 0.0], [2e-9, 1e-9, 1e-9]])
    assert winners(rows).tolist() == [1, -1, -1, 0]
    assert winners(rows[None]).shape == (1, 4)
    close = torch.tensor([[0.5, 0.5 * (1 - 1e-7)], [0.5, 0.5 * (1 - 1e-5)]]).double()
    assert winners(close).tolist() == [-1, 0]
    assert winners(torch.tensor([[0.2]])).tolist() == [0]
