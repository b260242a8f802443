"""The networks without capsules: sizes as in the literature, outputs, gradients, refusals."""

import pytest
import torch

from capsviz import checkpoint, tracing
from capsviz.nn import models

SMALL = {
    "cnn": {"channels": (4, 5, 6), "hidden": (7, 8)},
    "average": {"channels": (4, 5)},
    "resnet": {"channels": (4, 6), "blocks": 1},
}


def build(name, **options):
    torch.manual_seed(0)
    return models.build(name, (2, 21, 19), 3, **{**SMALL[name], **options}).eval()


def count(name, side=28, **options):
    network = models.build(name, (1, side, side), 10, **options)
    return sum(p.numel() for p in network.parameters())


def test_networks_are_as_large_as_in_the_literature():
    assert count("cnn") == 35_445_522  # Sabour et al. 2017: 35.4 M
    assert count("average") == count("average", side=40) == 5_332_234  # Gu et al. 2021: 5.3 M
    assert round(count("resnet") / 1e6, 2) == 0.27  # He et al. 2016, table 6: for colour images


def test_the_unpadded_cnn_with_9x9_kernels_is_about_as_large_as_capsnet():
    capsnet = sum(p.numel() for p in models.build("capsnet", (1, 28, 28), 10).parameters())
    assert count("cnn", kernel=9, padding="valid") == pytest.approx(capsnet, rel=0.08)


@pytest.mark.parametrize("name", SMALL)
def test_scores_are_the_softmax_of_the_logits(name, generator):
    found = build(name)(torch.rand(5, 2, 21, 19, generator=generator))
    assert found.lengths.shape == found.logits.shape == (5, 3)
    expected = found.logits.exp() / found.logits.exp().sum(1, keepdim=True)
    torch.testing.assert_close(found.lengths, expected)


@pytest.mark.parametrize("name", SMALL)
def test_the_objective_is_cross_entropy_and_reaches_every_parameter(name, generator):
    model, labels = build(name), torch.tensor([0, 2, 1, 1])
    images = torch.rand(4, 2, 21, 19, generator=generator)
    output = model(images)
    found = model.objective(output, images, labels)
    expected = -output.lengths[range(4), labels].log().mean()
    torch.testing.assert_close(found.loss, expected)
    found.loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", SMALL)
def test_an_image_gives_the_same_alone_and_in_a_batch(name, generator):
    model, images = build(name), torch.rand(6, 2, 21, 19, generator=generator)
    alone = torch.cat([model(image[None]).lengths for image in images])
    torch.testing.assert_close(model(images).lengths, alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", SMALL)
def test_a_checkpoint_brings_the_network_back(name, generator, tmp_path):
    model, images = build(name), torch.rand(3, 2, 21, 19, generator=generator)
    card = {"name": "x", "dataset": {"name": "digits"}}
    path = checkpoint.save(tmp_path / "x.safetensors", model, card, dtype=None)
    again = checkpoint.load(path)
    torch.testing.assert_close(again(images).lengths, model(images).lengths, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("cnn", {"kernel": 9, "padding": "valid"}, "too small for 3 unpadded 9x9"),
        ("average", {"kernel": 11}, "too small for two 11x11"),
    ],
)
def test_impossible_networks_are_refused(name, options, text):
    with pytest.raises(ValueError, match=text):
        build(name, **options)


def test_a_whole_number_is_a_number_and_a_list_a_tuple():
    model = build("cnn", dropout=0, channels=[4, 5])
    assert model.settings.dropout == 0 and model.settings.channels == (4, 5)


@pytest.mark.parametrize("name", ["cnn", "average"])
def test_the_memory_of_training_grows_with_the_batch(name):
    model = build(name)
    assert model.training_bytes(8) - model.training_bytes(4) == 4 * model.image_bytes
    weights = sum(p.numel() for p in model.parameters())
    assert model.training_bytes(1) > 16 * weights


def test_networks_without_capsules_give_scores_but_no_trace(generator, monkeypatch):
    monkeypatch.setattr("capsviz.tracing.forward.CHUNK_IMAGES", 2)
    model, images = build("resnet"), torch.rand(5, 2, 21, 19, generator=generator)
    found = tracing.scores(model, images)
    torch.testing.assert_close(found, model(images).lengths, rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="has no method `look` that shows its capsules"):
        tracing.trace(model, images)
