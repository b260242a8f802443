"""CapsNet's decoders and options: each trains and is stored, old cards load, others are refused."""

import pytest
import torch
from conftest import build_strong, build_tiny

from capsviz import checkpoint, data, memory
from capsviz.nn import functional, models, routing
from capsviz.training import train
from capsviz.training.recipe import Recipe

CARD = {"name": "x", "dataset": {"name": "random", "classes": ["a", "b", "c"]}}
YOUNGER = {  # options that the first cards do not have, and what they were
    "leaky": False,
    "standardised": False,
    "decoder": "fully_connected",
    "decoder_norm": False,
    "reconstruction_metric": "l2",
    "margin_present": 0.9,
    "margin_absent": 0.1,
    "absent_weight": 0.5,
}
DECODERS = [
    {"decoder": name, "decoder_norm": norm}
    for name in ("fully_connected", "deconvolution")
    for norm in (False, True)
]
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])

every_decoder = pytest.mark.parametrize("options", DECODERS, ids=str)


@pytest.fixture
def part():
    """Eight images of noise, bytes."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (8, 1, 21, 19), generator=generator, dtype=torch.uint8)
    return data.Dataset(images, LABELS, ("a", "b", "c"), "noise", "train")


@pytest.mark.parametrize(
    ("options", "metric"),
    [*((options, "l2") for options in DECODERS), (DECODERS[-1], "l1")],
    ids=str,
)
def test_every_decoder_learns_its_images(options, metric):
    images = torch.zeros(8, 1, 21, 19)
    for b, k in enumerate(LABELS.tolist()):
        images[b, :, 7 * k : 7 * k + 7, b:] = 1  # a bar at the height of its class
    model = build_strong(
        **options, hidden=(64, 64), reconstruction_metric=metric, reconstruction_weight=0.01
    ).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    distances = []
    for _ in range(70):
        found = model.objective(model(images), images, LABELS)
        optimiser.zero_grad()
        found.loss.backward()
        optimiser.step()
        distances.append(float(found.reconstruction.detach().mean()))
    assert distances[-1] < 0.5 * distances[0]


@every_decoder
@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_every_parameter_is_trained(options, preset, tiny_images):
    model = build_tiny(**options, preset=preset, leaky=True).train()
    model.objective(model(tiny_images), tiny_images, LABELS).loss.backward()
    still = [name for name, p in model.named_parameters() if not p.grad.abs().sum() > 0]
    assert still == []


@every_decoder
def test_a_stored_network_reconstructs_as_before(options, tiny_images, tmp_path):
    model = build_strong(**options, leaky=True, reconstruction_metric="l1").train()
    model.objective(model(tiny_images), tiny_images, LABELS)  # batch norm has seen something
    model.eval()
    path = checkpoint.save(tmp_path / "x.safetensors", model, CARD, dtype=None)
    again = checkpoint.load(path)
    assert again.config == model.config
    with torch.inference_mode():
        before, after = model(tiny_images), again(tiny_images)
        assert torch.equal(after.lengths, before.lengths)
        made = model.decode(before.poses, LABELS), again.decode(after.poses, LABELS)
    assert torch.equal(*made)


@pytest.mark.parametrize("name", checkpoint.shipped())
def test_shipped_cards_are_of_the_networks_that_they_were(name):
    config = checkpoint.load(name).config
    stored = checkpoint.read_card(checkpoint.find(name))["model"]
    if stored["name"] == "capsnet":
        expected = YOUNGER | {k: v for k, v in stored["config"].items() if k in YOUNGER}
        assert {k: config[k] for k in YOUNGER} == expected


def test_a_batch_for_batch_norm_is_not_computed_in_parts(part, monkeypatch, tmp_path):
    recipe = Recipe(dataset="noise", epochs=1, batch_size=8, precision="fp32")
    lines = []
    for norm in (False, True):
        model = build_tiny(decoder_norm=norm)
        assert model.whole_batches is norm
        free = model.training_bytes(3)
        monkeypatch.setattr(memory, "available", lambda device="cpu", free=free: free)
        given = {"model": model, "report": lines.append}
        if norm:
            with pytest.raises(MemoryError, match="a training step of 8 images needs"):
                train.fit(recipe, part, part, tmp_path / "norm", **given)
        else:
            train.fit(recipe, part, part, tmp_path / "plain", **given)
    assert len(lines) == 1 and "images at a time" in lines[0]
    assert build_tiny(decoder_norm=True, reconstruction_weight=0).whole_batches is False


WRONG = {
    "types": ("valid integer", ["a", 2.5, True, [3]]),
    "leaky": ("valid boolean", [3, "yes", 0]),
    "decoder": ("valid string", [5, True]),
    "hidden": ("a list|valid integer|at least 1", [64, "a", [], [1.5], [True]]),
    "reconstruction_weight": ("valid number", ["a", True, [0.1]]),
}


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [(option, value, words) for option, (words, values) in WRONG.items() for value in values],
)
def test_a_value_of_another_type_is_refused_in_words(option, value, words):
    with pytest.raises(ValueError, match=rf"^{option}\b.*({words})") as refused:
        build_tiny(**{option: value})
    assert "\n" not in str(refused.value)


def test_a_standardised_network_does_not_see_brightness_and_contrast_and_draws_them_as_they_are():
    model = build_strong(standardised=True)
    images = 0.2 + 0.6 * torch.rand(3, 1, 21, 19)
    expected, other = model(images), model(0.1 + 0.5 * images)
    torch.testing.assert_close(other.poses, expected.poses, rtol=0, atol=1e-5)
    plain = build_strong()
    assert (plain(images).poses - plain(0.1 + 0.5 * images).poses).abs().max() > 1e-3
    made = plain(functional.standardise(images))
    torch.testing.assert_close(expected.poses, made.poses, rtol=0, atol=1e-6)
    dark = model.objective(expected, images, LABELS[:3]).reconstruction
    light = model.objective(expected, images / 2, LABELS[:3]).reconstruction
    assert (dark != light).all(), "the decoder's target is the image itself"


@pytest.mark.parametrize("name", routing.available())
def test_channels_count_on_the_paper_s_stem_whatever_the_routing(name):
    options = {"channels": 12, "types": 2, "reconstruction_weight": 0, "routing": name}
    network = models.build("capsnet", (1, 28, 28), 10, **options)
    convolutions = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d)]
    assert convolutions[0].out_channels == convolutions[1].in_channels == 12
