from inspect import signature

import pytest
import torch
from helpers import literal as twins
from helpers.fixtures import build_strong, build_tiny

from capsviz import memory
from capsviz.nn import models, routing
from capsviz.nn.models import efficient_capsnet


def build_meta(image_shape=(1, 28, 28), classes=10, **options):
    """A network without memory for its weights: enough to count and to read shapes."""
    with torch.device("meta"):
        return models.build("capsnet", image_shape, classes, **options)


@pytest.mark.parametrize(
    ("preset", "image_shape", "classes"),
    [
        ("paper", (1, 17, 17), 2),
        ("paper", (3, 32, 32), 10),
        ("authors", (2, 20, 31), 7),
        ("authors", (1, 18, 19), 26),
    ],
)
def test_any_image_size_channels_and_classes(preset, image_shape, classes):
    model = models.build(
        "capsnet", image_shape, classes, preset=preset, channels=4, types=2, hidden=(8,)
    ).eval()
    images = torch.rand(3, *image_shape)
    output = model(images)
    types, rows, columns = model.grid
    assert output.lengths.shape == (3, classes)
    assert output.poses.shape == (3, classes, 16)
    assert output.primary.shape == (3, types * rows * columns, 8)
    assert model.decode(output.poses, output.lengths.argmax(1)).shape == images.shape


@pytest.mark.parametrize("side", range(17, 30))
def test_the_grid_is_that_of_the_convolutions(side):
    model = build_meta((1, side, side + 1), channels=1, types=1, hidden=(1,))
    features = model.primary.convolution(model.conv1(torch.empty(1, 1, side, side + 1).to("meta")))
    assert model.grid[1:] == features.shape[2:]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "author"}, "unknown preset 'author', expected one of: paper, authors"),
        ({"rounds": 3}, "unknown capsnet option 'rounds', expected one of: .*iterations"),
        ({"routing": "dynamik"}, "unknown routing 'dynamik'.*did you mean 'dynamic'"),
        ({"decoder": "deconv"}, "unknown decoder 'deconv', expected one of: deconvolution, fully_"),
        ({"stem": "thin"}, "unknown stem 'thin'"),
        ({"primary": "crush"}, "unknown primary 'crush'"),
        ({"objective": "hinge"}, "unknown objective 'hinge'"),
        ({"stem": "slim", "preset": "authors"}, "the preset 'authors' has the paper's stem"),
        ({"stem": "slim", "transform": "type"}, "needs several positions, got one"),
        ({"iterations": 0}, "iterations must be at least 1, got 0"),
        ({"types": 2.5}, "types must be a valid integer, got 2.5"),
        ({"leaky": "yes"}, "leaky must be a valid boolean"),
        ({"routing": "uniform", "iterations": 3}, "'uniform' does not iterate"),
        ({"hidden": [8, 0]}, r"hidden\[1\] must be at least 1, got 0"),
        ({"reconstruction_weight": float("nan")}, "weight must be a finite number, got nan"),
        ({"margin_absent": 0.9}, "margin_absent < margin_present <= 1, got 0.9 and 0.9"),
        ({"classes": 1}, "at least 2 classes, got 1"),
        ({"image_shape": (28, 28)}, r"take images \(C, H, W\), got the shape \(28, 28\)"),
        ({"image_shape": (1, 16, 28)}, "too small for the stem 'paper', which sees 17 pixels"),
        ({"image_shape": (1, 20, 28), "stem": "slim"}, "the stem 'slim', which sees 27 pixels"),
    ],
)
def test_what_cannot_be_built_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        build_meta(**options)


def test_the_guard_asks_for_the_memory_of_the_transformation(monkeypatch):
    needed = 4 * 12 * 3 * 6 * 4  # bytes of float32, of I, J, E, D
    monkeypatch.setattr(memory, "available", lambda device="cpu": needed)
    build_strong()
    monkeypatch.setattr(memory, "available", lambda device="cpu": needed - 1)
    with pytest.raises(MemoryError, match="12 primary into 3 class capsules"):
        build_strong()


def test_images_of_another_shape_are_refused(tiny):
    with pytest.raises(ValueError, match=r"1, 21, 19.*got \(8, 1, 19, 21"):
        tiny(torch.rand(8, 1, 19, 21))


def test_a_preset_yields_to_what_is_given():
    model = build_strong(preset="authors", routing_bias=False, reconstruction_weight=0.5)
    assert model.capsules.bias is None
    assert model.config["reconstruction_weight"] == 0.5
    assert build_strong(preset="authors").config["reconstruction_weight"] == 0.001 * 3  # classes


@pytest.mark.parametrize(("leaky", "share"), [(False, 1 / 2), (True, 1 / 3)])
def test_the_authors_scale_their_primary_votes_by_one_softmax(leaky, share):
    assert build_tiny(preset="authors", leaky=leaky).primary.scale == share
    assert build_tiny(leaky=leaky).primary.scale == 1


def test_the_authors_initial_weights():
    model = models.build("capsnet", (1, 28, 28), 10, preset="authors", types=4, channels=64)
    assert model.primary.scale == 1 / 4
    weights = {"conv1": model.conv1, "primary": model.primary.convolution, "W": model.capsules}
    weights |= {"decoder": model.decoder.layers[2]}
    for name, module in weights.items():
        std = 0.05 if name == "conv1" else 0.1
        assert module.weight.abs().max() <= 2 * std
        # a normal cut at two deviations keeps 0.8796 of its standard deviation
        assert abs(module.weight.std() / (0.8796 * std) - 1) < 0.05
        assert (module.bias == 0.1).all()


@pytest.mark.parametrize("preset", ["paper", "authors"])
@pytest.mark.parametrize("iterations", [1, 3])
def test_the_network_is_two_convolutions_and_procedure_1(preset, iterations, tiny_images):
    model = build_strong(preset=preset, iterations=iterations).double()
    with torch.inference_mode():
        images = tiny_images[:2].double()
        conv = model.primary.convolution
        features = model.conv1(images).clamp_min(0)
        scale = 1 / 2 if preset == "authors" else 1
        out = torch.nn.functional.conv2d(features, conv.weight, stride=2) * scale
        out = out + conv.bias.view(1, -1, 1, 1)
        capsules = torch.empty(2, 12, 4, dtype=torch.float64)
        for b in range(2):
            for kind in range(2):
                for row in range(3):
                    for column in range(2):
                        s = out[b, 4 * kind : 4 * kind + 4, row, column]
                        i = (kind * 3 + row) * 2 + column
                        capsules[b, i] = torch.tensor(twins.squash(s), dtype=torch.float64)
        votes = twins.votes(capsules, model.capsules.weight)
        poses = twins.dynamic_routing(votes, iterations, bias=model.capsules.bias)[2][-1]
        found = model(images)
    torch.testing.assert_close(found.primary, capsules, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.poses, poses, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.lengths, poses.norm(dim=2), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", routing.available())
def test_an_image_gives_the_same_alone_and_in_any_batch(name, tiny_images):
    model = build_strong(routing=name, primary="squash")
    with torch.inference_mode():
        whole = model(tiny_images)
        classes = whole.lengths.argmax(1)  # of a new classifier all are equal but for rounding
        made = model.decode(whole.poses, classes)
        for here in (slice(1), slice(1, 2), slice(2, 5), slice(5, 8)):
            part = model(tiny_images[here])
            for a, b in zip(part, whole, strict=True):
                torch.testing.assert_close(a, b[here], rtol=0, atol=1e-5)
            again = model.decode(part.poses, classes[here])
            torch.testing.assert_close(again, made[here], rtol=0, atol=1e-5)


PLACES = [(row, column) for row in range(3) for column in range(2)]


@pytest.mark.parametrize("place", PLACES)
def test_only_pixels_of_its_receptive_field_change_a_primary_capsule(tiny, tiny_images, place):
    row, column = place
    field = tiny.receptive_field(row, column)
    inside = torch.zeros(21, 19, dtype=torch.bool)
    inside[field] = True
    assert inside.sum() == 17 * 17
    image, other = tiny_images[:1], tiny_images[1:2]
    capsules = [(kind * 3 + row) * 2 + column for kind in range(2)]
    with torch.inference_mode():
        plain = tiny.encode(image).poses[:, capsules]
        changed_outside = tiny.encode(torch.where(inside, image, other)).poses[:, capsules]
        changed_inside = tiny.encode(torch.where(inside, other, image)).poses[:, capsules]
    assert torch.equal(changed_outside, plain)
    assert ((changed_inside - plain).abs().amax(2) > 1e-4).all()


def test_without_reconstruction_there_is_no_decoder(tiny_images):
    model = build_strong(reconstruction_weight=0)
    assert model.decoder is None
    output = model(tiny_images)
    found = model.objective(output, tiny_images, torch.zeros(8, dtype=torch.long))
    margin = twins.margin_loss(output.lengths, [{0}] * 8)
    assert found.reconstruction is None
    torch.testing.assert_close(found.loss, torch.tensor(margin).mean())
    with pytest.raises(ValueError, match="without a decoder"):
        model.decode(output.poses, torch.zeros(8, dtype=torch.long))


def test_outputs_are_float32_under_autocast(tiny, tiny_images):
    with torch.autocast("cpu", torch.bfloat16):
        output = tiny(tiny_images)
        made = tiny.decode(output.poses, output.lengths.argmax(1))
    assert {x.dtype for x in (*output, made)} == {torch.float32}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("capsnet", {"stem": "slim", "channels": 64}),
        ("efficient_capsnet", {"channels": 64}),
        ("capsnet", {"routing": "em", "margin_present": 0.8}),
        ("matrix_capsnet", {"routing": "dynamic", "final_temperature": 0.5}),
    ],
)
def test_settings_without_effect_are_refused(name, options):
    with pytest.raises(ValueError, match="has no effect on the "):
        models.build(name, (1, 28, 28), 10, **options)


def test_the_slim_network_has_the_settings_of_every_other():
    known = signature(efficient_capsnet.build).parameters
    assert known["stem"].default == "slim" and "standardised" in known
