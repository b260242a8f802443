"""Decoders from primary capsules: their inputs, their training, and their files."""

import json

import pytest
import torch
from helpers.fixtures import build_strong, build_tiny
from helpers.plain_capsnet import Foreign

from capsviz import checkpoint, discovery
from capsviz.data import Dataset
from capsviz.experiments import primary_decoder
from capsviz.tracing import trace
from capsviz.transforms.augment import to_float

NETWORK = {"name": "net", "weights": {"file": "net.safetensors", "sha256": "ab" * 32}}


def blobs(n, shape=(1, 21, 19)):
    """Return a data set of images with one bright square at a random position."""
    generator = torch.Generator().manual_seed(n)
    images = torch.zeros(n, *shape, dtype=torch.uint8)
    for image in images:
        row, column = torch.randint(3, 10, (2,), generator=generator).tolist()
        image[:, row : row + 6, column : column + 6] = 200
    return Dataset(images, torch.zeros(n, dtype=torch.long), ("a", "b", "c"), "blobs", "train")


def train(model, n=40, **options):
    return primary_decoder.fit(model, blobs(n), blobs(9), **{"epochs": 1, **options})


@pytest.fixture(scope="module")
def decoders():
    return train(build_tiny())[0]


def test_capsules_are_scaled_by_their_coupling_to_the_predicted_class(tiny_images):
    model = build_strong()
    seen = primary_decoder.look(model, tiny_images)
    whole = trace(model, tiny_images)
    for b in range(len(tiny_images)):
        winner = int(whole.lengths[b].argmax())
        assert int(seen.predicted[b]) == winner
        for i in range(12):
            factor = 3 * float(whole.couplings[-1, b, i, winner])
            assert torch.allclose(seen.scaled()[b, i], factor * whole.primary[b, i], atol=1e-6)
    assert (3 * seen.couplings - 1).abs().max() > 0.1  # otherwise this test shows nothing


def test_a_decoder_is_its_formula(generator):
    decoder = primary_decoder.PrimaryDecoder(4, 3, (1, 2, 5), hidden=(6, 7))
    capsules = torch.randn(2, 4, 3, generator=generator)
    first, second, third = decoder.summary, decoder.pixels[0], decoder.pixels[2]
    for one, made in zip(capsules, primary_decoder.decode(decoder, capsules), strict=True):
        flat = one.flatten() / (1 + sum(float(x) ** 2 for x in one.flatten())) ** 0.5
        units = (second.weight @ (first.weight @ flat + first.bias) + second.bias).clamp_min(0)
        pixels = 1 / (1 + torch.exp(-(third.weight @ units + third.bias)))
        assert torch.allclose(made.flatten(), pixels, atol=1e-6)


def test_subsets_are_often_single_and_sometimes_nearly_all(generator):
    shown = primary_decoder.some(1152, 3000, generator)
    counts = shown.sum(1)
    assert set(shown.unique().tolist()) == {0.0, 1.0} and counts.min() == 1
    expected = (torch.log(torch.tensor(2.0)) / torch.log(torch.tensor(1152.0))).sqrt()
    assert abs((counts == 1).float().mean() - expected) < 0.04  # 5 standard deviations
    assert counts.max() > 1000
    assert shown.sum(0).std() / shown.sum(0).mean() < 0.1  # no capsule is preferred


@pytest.mark.parametrize("training", [True, False])
def test_training_leaves_the_network_as_it_was(training):
    model = build_tiny().train(training)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    train(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert model.training is training


def test_training_beats_the_mean_image():
    model, held_out = Foreign((1, 21, 19), 3), blobs(30)
    decoders, record = primary_decoder.fit(model, blobs(150), held_out, epochs=30)
    images = to_float(held_out.images)
    mean = (images - to_float(blobs(150).images).mean(0)).square().sum((1, 2, 3)).mean()
    found = primary_decoder.validation_sse(model, decoders, held_out)
    assert found["routed"] < 0.8 * mean and found["uniform"] < 0.8 * mean
    assert [e["epoch"] for e in record] == list(range(1, 31))


def test_the_best_validation_epoch_is_kept():
    model, held_out = build_tiny(), blobs(9)
    decoders, record = train(model, epochs=4)
    found = primary_decoder.validation_sse(model, decoders, held_out)
    for name, sse in found.items():
        best = min(e["validation_sse"][name] for e in record)
        assert sse == pytest.approx(best, rel=2e-3)  # weights are rounded to float16


def test_equal_seeds_make_equal_decoders_and_leave_the_global_generator_alone():
    state = torch.get_rng_state()
    one, two, other = (train(build_tiny(), seed=seed)[0]["routed"] for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one.summary.weight, two.summary.weight)
    assert not torch.equal(one.summary.weight, other.summary.weight)


def test_decoders_come_back_exactly_with_their_card(tmp_path, decoders, generator):
    path = primary_decoder.save(
        tmp_path / primary_decoder.file_name("net"), decoders, NETWORK, {"results": {"x": 1}}
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "net.primary.json",
        "net.primary.safetensors",
    ]
    again = primary_decoder.load(path, NETWORK, checkpoint="net")
    capsules = torch.randn(2, 12, 4, generator=generator)
    for name, decoder in decoders.items():
        made = primary_decoder.decode(again[name], capsules)
        assert torch.equal(made, primary_decoder.decode(decoder, capsules))
    card = json.loads(path.with_suffix(".json").read_text())
    assert card["network"]["weights"] == NETWORK["weights"] and card["results"] == {"x": 1}
    assert card["weights"]["sha256"] == checkpoint.sha256(path)
    assert card["provenance"]["weights_sha256"] == "ab" * 32


def test_a_file_that_is_no_decoder_is_refused_with_the_command_that_makes_one(tmp_path, decoders):
    path = tmp_path / "net.primary.safetensors"
    advice = "capsviz primary-train --checkpoint net"
    with pytest.raises(ValueError, match=f"there is no primary-capsule decoder .*{advice}"):
        primary_decoder.load(path, NETWORK, checkpoint="net")
    primary_decoder.save(path, decoders, NETWORK, {})
    with pytest.raises(ValueError, match=f"other weights.*{advice}"):
        primary_decoder.load(path, {"weights": {"sha256": "cd" * 32}}, checkpoint="net")
    path.with_suffix(".json").rename(tmp_path / "card")
    with pytest.raises(ValueError, match=f"not a primary-capsule decoder with its card.*{advice}"):
        primary_decoder.load(path, NETWORK, checkpoint="net")


def test_a_decoder_is_not_taken_for_a_network(tmp_path, decoders, tiny, monkeypatch):
    network = checkpoint.save(tmp_path / "net.safetensors", tiny, {"name": "net", "dataset": {}})
    path = primary_decoder.save(tmp_path / "net.primary.safetensors", decoders, NETWORK, {})
    assert checkpoint.find(tmp_path) == network
    monkeypatch.setattr(discovery, "folder", lambda package: tmp_path)
    assert checkpoint.shipped() == ["net"]
    with pytest.raises(ValueError, match="is not a card"):
        checkpoint.load(path)
