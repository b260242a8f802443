"""CapsNet's decoders and options: each trains and is stored, old cards load, others are refused."""

import pytest
import torch
from conftest import build_strong, build_tiny

from capsviz import checkpoint
from capsviz.nn import functional, models, routing

CARD = {"name": "x", "dataset": {"name": "random", "classes": ["a", "b", "c"]}}


DECODERS = [
    {"decoder": name, "decoder_norm": norm}
    for name in ("fully_connected", "deconvolution")
    for norm in (False, True)
]
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])

every_decoder = pytest.mark.parametrize("options", DECODERS, ids=str)


@every_decoder
@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_every_parameter_is_trained(options, preset, tiny_images):
    model = build_tiny(**options, preset=preset, leaky=True).train()
    model.objective(model(tiny_images), tiny_images, LABELS).loss.backward()
    still = [name for name, p in model.named_parameters() if not p.grad.abs().sum() > 0]
    assert still == []


@every_decoder
@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_a_stored_network_reconstructs_as_before(options, preset, tiny_images, tmp_path):
    options = {**options, "preset": preset, "leaky": True, "reconstruction_metric": "l1"}
    model = build_strong(**options).train()
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
