"""What a network offers; scores, which are refused if they are not numbers; distances."""

import click
import pytest
import torch
from helpers.fixtures import build_tiny
from helpers.plain_capsnet import Foreign

from capsviz import checkpoint
from capsviz.cli import errors
from capsviz.nn import models
from capsviz.tracing import abilities, extent, score_name, scores, trace
from capsviz.tracing.many import winners
from capsviz.tracing.needs import missing
from capsviz.tracing.network import children_words
from capsviz.tracing.outputs import activations_and_distance


class Plain(torch.nn.Module):
    """No capsules: the sums of three pixels, over a pixel that may be zero."""

    card = {"name": "plain"}

    def forward(self, images):
        lengths = images.flatten(1)[:, :3] / images.flatten(1)[:, 5:6]
        return type("Output", (), {"lengths": lengths})


def test_scores_that_are_nan_name_the_network_and_their_number(tiny_images, monkeypatch):
    monkeypatch.setattr("capsviz.tracing.forward.CHUNK_IMAGES", 3)
    images = tiny_images.clone()
    assert scores(Plain(), images).shape == (8, 3)
    images[[2, 6]] = 0  # 0 / 0
    with pytest.raises(ValueError, match=r"network 'plain' for 2 of 8 .* first for image 2"):
        scores(Plain(), images)


def test_a_command_could_not_read_nan_and_was_not_asked_wrongly(tiny, tiny_images):
    with torch.no_grad():
        tiny.capsules.weight[0] = torch.nan
    with pytest.raises(click.ClickException, match="not numbers") as caught, errors():
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
def test_no_part_of_a_trace_that_is_read_is_nan(tiny, tiny_images, part, words, monkeypatch):
    monkeypatch.setattr("capsviz.tracing.forward.CHUNK_IMAGES", 6)
    with torch.no_grad():
        tiny.conv1.bias[0] = torch.nan
    options = {} if part is None else {"keep": part}
    with pytest.raises(ValueError, match=f"the {words} of the network .* for 8 of 8 images"):
        trace(tiny, tiny_images, **options)


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


def test_without_images_a_network_that_does_not_say_their_shape_has_no_noise():
    with pytest.raises(ValueError, match="does not say the shape of its images: give some"):
        score_name(Padded())


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


def test_our_own_network_has_every_part():
    able = abilities(build_tiny())
    assert able.has_capsules and able.decodes and able.routes_again
    assert able.replaceable_couplings and able.replaceable_iterations and able.replaceable_children
    assert able.grid == (2, 3, 2) and able.grids == ((2, 3, 2),) and able.has_receptive_fields
    assert able.routing == "dynamic" and able.image_shape == (1, 21, 19) and able.classes == 3
    assert able.pose_shape is None and able.parts is None and able.gives("votes")


def test_a_network_without_capsules_offers_no_part_of_a_trace():
    model = models.build("average", (1, 21, 19), 3, channels=(2, 2), kernel=3)
    able = abilities(model)
    assert not able.has_capsules and not able.decodes and not able.gives("poses")
    assert able.grid is None and able.classes == 3 and able.name == "AverageConvNet"
    assert missing(model, ("poses",)) == ["capsules"] and missing(model, ()) == []


def test_what_a_look_does_not_take_cannot_be_replaced():
    class Fixed(torch.nn.Module):
        def look(self, images, *, keep, iterations=None):
            return {}

    able = abilities(Fixed())
    assert able.replaceable_iterations and not able.replaceable_couplings
    assert not (able.replaceable_children or able.decodes)
    needs = ("couplings", "interventions", "decode", "grid", "from_children")
    assert missing(Fixed(), needs) == ["interventions", "decode", "grid", "from_children"]


def test_a_network_says_which_parts_it_gives_and_what_can_be_replaced():
    model = Foreign()
    model.parts, model.replaceable = {"primary", "lengths"}, {"children"}
    able = abilities(model)
    assert able.gives("children") and able.gives("last") and not able.gives("votes")
    assert able.replaceable_children and not able.replaceable_couplings


class Padded:
    """5 positions, each of 7 pixels, every 4 pixels of 17, from 3 pixels before the border."""

    grid = (2, 5, 5)

    def look(self, images, *, keep):
        raise AssertionError("nothing is computed")

    def receptive_field(self, row, column):
        return tuple(slice(max(0, 4 * k - 3), min(17, 4 * k + 4)) for k in (row, column))


def test_positions_cut_off_at_the_border_lie_a_step_from_the_others():
    assert extent(Padded()) == [-2, 18, 18, -2]
    with pytest.raises(ValueError, match="expected a routed layer from -1 to 0, got 1"):
        extent(Padded(), 1)


def test_children_of_the_classes_are_primary_capsules_where_one_layer_is_routed():
    assert children_words(Padded()) == "primary capsules"
    several = Padded()
    several.grids = [(2, 5, 5), (2, 3, 3)]
    assert children_words(several) == "capsules below the classes"
