"""Networks of one's own, by a plugin: trained, stored, opened again and judged by their name."""

import sys

import pytest
import torch
from helpers import command_line

import capsviz
from capsviz import checkpoint
from capsviz.data import Dataset
from capsviz.nn import models
from capsviz.training.recipe import Recipe
from capsviz.training.run import prepare
from capsviz.training.train import build_model

BUILD = """
def build(image_shape, classes, **options):
    return Tiny(image_shape, classes, **options)
"""
NET = """
from torch import nn
from torch.nn.functional import cross_entropy

from capsviz.nn.models import Objective, Scores


class Tiny(nn.Module):
    def __init__(self, image_shape, classes, width=3):
        super().__init__()
        self.config = {"image_shape": image_shape, "classes": classes, "width": width}
        self.body = nn.Sequential(
            nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, width), nn.Linear(width, classes)
        )

    def forward(self, images):
        logits = self.body(images)
        return Scores(logits.softmax(1), logits)

    def objective(self, output, images, labels):
        return Objective(cross_entropy(output.logits, labels))
"""
OF_CAPSVIZ = """
from capsviz.nn.models import capsnet


def build(image_shape, classes, **options):
    return capsnet.build(image_shape, classes, **{"types": 2, "channels": 4, **options})
"""


@pytest.fixture(params=["beside it", "in another package"])
def tiny(request, plugin, tmp_path, monkeypatch):
    """Offers the network `tiny`, whose class is there or elsewhere."""
    if request.param == "beside it":
        plugin("models/tiny/__init__.py", "from ._net import Tiny\n" + BUILD)
        plugin("models/tiny/_net.py", NET)
    else:
        monkeypatch.syspath_prepend(tmp_path / "elsewhere")
        plugin("elsewhere/its_networks.py", NET)
        plugin("models/tiny.py", "from its_networks import Tiny\n" + BUILD)
    yield
    sys.modules.pop("its_networks", None)


def test_a_network_of_ones_own_is_trained_and_opened_again(tiny, tmp_path):
    words = ["--dataset", "digits", "--model", "tiny", "--epochs", "1", "--output"]
    command_line.fine(command_line.run("train", *words, tmp_path / "run"))
    model = capsviz.load(tmp_path / "run")
    assert model.card["model"]["name"] == "tiny" and model.config["width"] == 3
    command_line.fine(command_line.run("evaluate", "--checkpoint", tmp_path / "run"))
    assert "tiny" in command_line.run("describe", "--checkpoint", tmp_path / "run").output


def test_a_network_of_ones_own_is_built_afresh(tiny):
    model = models.build("tiny", (1, 28, 28), 10, width=2)
    one, again, other = (checkpoint.untrained_like(model, seed) for seed in (0, 0, 1))
    assert one.config == model.config
    weights = [network.body[2].weight for network in (one, again, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_a_capsnet_with_other_options_needs_no_plugin_to_be_opened(plugin):
    plugin("models/small.py", OF_CAPSVIZ)
    model = models.build("small", (1, 28, 28), 10)
    assert models.name_for(model) == "capsnet" == models.name_for(capsviz.CapsNet(types=2))


def test_a_compiled_network_is_saved_as_what_it_was_and_a_parametrized_one_refused(
    tmp_path, embedded
):
    model = models.build("capsnet", (1, 28, 28), 10, types=2, channels=8)
    again = capsviz.load(capsviz.save(torch.compile(model), tmp_path / "a", embedded("train")))
    assert torch.equal(again.conv1.weight, model.conv1.weight)
    torch.nn.utils.parametrizations.weight_norm(model.conv1)
    with pytest.raises(ValueError, match="parametrizations"):
        capsviz.save(model, tmp_path / "b", embedded("train"))
    assert not (tmp_path / "b").exists()


def test_options_that_a_network_of_ones_own_passes_on_are_left_to_it(plugin):
    plugin("models/passing.py", OF_CAPSVIZ)
    _, recipe = prepare(None, {"model": "passing", "decoder": "deconvolution"})
    assert recipe.options == {"decoder": "deconvolution"}


def test_inputs_that_are_no_images_are_refused_in_words():
    rows = Dataset(torch.rand(9, 5), torch.arange(9) % 3, ("a", "b", "c"), inputs=True)
    with pytest.raises(ValueError, match=r"take images \(C, H, W\), got the shape \(5,\)"):
        build_model(Recipe(), rows)
