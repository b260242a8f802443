"""Scores that are no numbers are refused, for argmax would make class 0 of them."""

import click
import pytest
import torch

from capsviz import checkpoint
from capsviz.cli import errors
from capsviz.tracing import score_name, scores, trace


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
