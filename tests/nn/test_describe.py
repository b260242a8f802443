"""Counts against arithmetic done by hand and against PyTorch's own counter; the command."""

import json

import pytest
import torch
from helpers.command_line import fine
from helpers.fixtures import build_tiny
from PIL import Image
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from capsviz import checkpoint
from capsviz.nn import models
from capsviz.nn.describe import NOT_COUNTED, describe


def build_meta(name, image_shape=(1, 28, 28), classes=10, **options):
    with torch.device("meta"):
        return models.build(name, image_shape, classes, **options)


def test_the_papers_network_by_hand():
    model = build_meta("capsnet")
    found = describe(model, batch_size=7)
    votes = 1_152 * 10 * 16 * 8
    expected = {  # parameters, multiply-adds, output
        "conv1": (81 * 256 + 256, 20 * 20 * 256 * 81, (256, 20, 20)),
        "primary.convolution": (256 * 81 * 256 + 256, 6 * 6 * 256 * 256 * 81, (256, 6, 6)),
        "capsules: votes": (votes, votes, (1_152, 10, 16)),
        "capsules: routing": (0, (3 + 2) * 1_152 * 10 * 16, (10, 16)),
        "decoder.layers.0": (160 * 512 + 512, 160 * 512, (512,)),
        "decoder.layers.2": (512 * 1_024 + 1_024, 512 * 1_024, (1_024,)),
        "decoder.layers.4": (1_024 * 784 + 784, 1_024 * 784, (784,)),
    }
    rows = {row.name: (row.parameters, row.multiply_adds, row.output) for row in found.layers}
    assert rows == expected
    assert (found.parameters, found.parameters_without_decoder) == (8_215_568, 6_804_224)
    assert (found.multiply_adds, found.multiply_adds_without_decoder) == (203_202_560, 201_793_536)
    assert found.weights_bytes == 4 * 8_215_568
    assert (found.training_bytes, found.image_bytes) == (model.training_bytes(7), model.image_bytes)
    assert describe(build_meta("resnet")).training_bytes is None


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_one_round_of_routing_is_a_sum_and_all_but_the_last_an_agreement(iterations):
    found = describe(build_tiny(iterations=iterations))
    I, J, E = 12, 3, 6
    routing = next(row for row in found.layers if row.name == "capsules: routing")
    assert routing.multiply_adds == (2 * iterations - 1) * I * J * E
    assert routing.kind.startswith(f"dynamic, {iterations} iteration")


SMALL = {
    "capsnet": {
        "channels": 5, "types": 2, "primary_dimensions": 4, "class_dimensions": 6, "hidden": [7],
    },
    "resnet": {"channels": [4, 6], "blocks": 1},
    "cnn": {"channels": [3, 4], "hidden": [5]},
}  # fmt: skip
NETWORKS = list(SMALL.items())
NETWORKS += [
    ("capsnet", {**SMALL["capsnet"], "preset": "authors", "leaky": True}),
    ("capsnet", {**SMALL["capsnet"], "decoder": "deconvolution", "decoder_norm": True}),
    ("capsnet", {**SMALL["capsnet"], "reconstruction_weight": 0.0}),
    ("capsnet", {**SMALL["capsnet"], "primary_dimensions": 2, "iterations": 1}),
]


@pytest.mark.parametrize(("name", "options"), NETWORKS, ids=str)
def test_totals_are_those_of_pytorchs_counter_on_a_literal_pass(name, options):
    shape, n = (3, 21, 18), 2
    model = models.build(name, shape, 3, **options).eval()
    found = describe(model)
    images = torch.rand(n, *shape)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        if name == "capsnet":  # the blocked path makes its votes anew in every round
            seen = model.look(images, keep=("votes", "couplings"))
            if model.decoder is not None:
                model.decode(seen["poses"][-1], torch.tensor([0, 2]))
        else:
            model(images)
    assert found.multiply_adds == counter.get_total_flops() / 2 / n
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert all(row.output is not None for row in found.layers)


ON_A_STEM = {  # of 27 pixels at least; their multiply-adds are those of layers counted above
    "efficient_capsnet": {"types": 2, "primary_dimensions": 4, "hidden": [7]},
    "pooled": {"types": 2, "primary_dimensions": 4},
    "matrix_capsnet": {"channels": 3, "types": [2, 3, 2], "reconstruction_weight": 0.1},
}


@pytest.mark.parametrize("name", ON_A_STEM)
def test_networks_on_a_slim_stem_are_described(name):
    model = models.build(name, (1, 29, 28), 3, **ON_A_STEM[name]).eval()
    parts = describe(model)
    assert parts.parameters == sum(p.numel() for p in model.parameters())
    assert parts.multiply_adds > 1e5


def test_a_network_is_left_as_it_was_and_needs_no_values():
    model = build_tiny().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    parameters, here = [id(p) for p in model.parameters()], describe(model)
    assert model.training and all(module.training for module in model.modules())
    assert [id(p) for p in model.parameters()] == parameters
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
    assert describe(model.to("meta")).layers == here.layers


def test_what_is_not_known_is_not_guessed():
    model = build_tiny()
    model.capsules.routing_name = "another"
    model.spare = nn.Linear(2, 3)
    found, usual = describe(model), describe(build_tiny())
    rows = {row.name: row for row in found.layers}
    assert rows["capsules: routing"].multiply_adds is None
    assert rows["spare"].output is None and rows["spare"].multiply_adds is None
    assert usual.not_counted == NOT_COUNTED
    assert found.not_counted == f"{NOT_COUNTED}, capsules: routing"
    assert found.multiply_adds == usual.multiply_adds - 5 * 12 * 3 * 6
    assert found.parameters == usual.parameters + 9


@pytest.fixture
def run(bare):
    """`capsviz describe` in an empty folder without data."""
    return lambda *args: bare("describe", *args)


def test_the_default_is_the_papers_network_for_mnist_and_needs_no_data(run):
    result = fine(run())
    assert "mnist: capsnet for images 1 × 28 × 28 of 10 classes" in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["all", "8,215,568", "203,202,560"] in lines
    assert ["all", "but", "the", "decoder", "6,804,224", "201,793,536"] in lines
    assert "Not counted: biases" in result.stdout


def test_flags_change_the_recipe_and_size_and_classes_can_be_given(run):
    args = ("--pad-px", 6, "--option", "iterations=1", "--batch-size", 4, "--json")
    found = json.loads(run(*args).stdout)
    assert found["image_shape"] == [1, 40, 40] and found["parameters"] == 13_475_648
    assert found["batch_size"] == 4
    cropped = run("--crop-px", 24, "--json").stdout
    assert json.loads(cropped)["image_shape"] == [1, 24, 24]
    args = ("--model", "average", "--image-shape", 3, 32, 31, "--classes", 7, "--json")
    found = json.loads(run(*args).stdout)
    assert (found["network"], found["classes"]) == ("average", 7)
    assert found["layers"][0]["output"] == [256, 24, 23]


def test_no_data_are_needed_where_their_file_says_what_they_are(run):
    for recipe, shape in (("cifar10-paper", [3, 24, 24]), ("multimnist", [1, 36, 36])):
        found = json.loads(run(recipe, "--json").stdout)
        assert found["image_shape"] == shape and found["classes"] == 10


def test_data_sets_of_any_size_are_asked_for_it(run):
    refused = run("--dataset", "smallnorb")
    assert refused.exit_code == 2 and refused.stdout == ""
    assert "give --image-shape C H W and --classes J" in refused.stderr
    args = ("--dataset", "smallnorb", "--image-shape", 2, 32, 32, "--classes", 5)
    assert run(*args).exit_code == 0


def test_the_size_is_read_where_the_files_are(run, tmp_path):
    for split in ("train", "test"):
        for kind in ("cat", "dog", "owl"):
            (tmp_path / "mine" / split / kind).mkdir(parents=True)
            for name in ("a.png", "b.png"):
                Image.new("L", (40, 40)).save(tmp_path / "mine" / split / kind / name)
    args = ("--dataset", "folder", "--data-dir", "mine", "--image-size", 20)
    assert "images 1 × 20 × 20 of 3 classes" in run(*args).stdout


def test_a_checkpoint_is_described_by_its_card(run):
    found = json.loads(run("--checkpoint", "digits", "--json").stdout)
    card = checkpoint.read_card(checkpoint.find("digits"))
    assert found["parameters"] == card["weights"]["parameters"]
    assert found["batch_size"] == card["recipe"]["batch_size"] and found["name"] == "digits"


def test_the_command_lists_the_settings_that_option_takes(run):
    done = run("digits", "--option", "class_dimensions=12")
    assert done.exit_code == 0 and "class_dimensions=12, " in done.stdout
    settings = done.stdout.partition("settings (--option): ")[2].partition("\n")[0]
    assert "types=8" in settings and "image_shape" not in settings
