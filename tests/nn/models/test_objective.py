"""What training minimises: metrics, annealing, several things; CapsNet's decoders and options."""

import pytest
import torch
from helpers import literal as twins
from helpers.fixtures import build_strong, build_tiny
from torch import nn

from capsviz import checkpoint
from capsviz.nn import functional, models, routing
from tests.nn.models.test_baselines import SMALL

CARD = {"name": "x", "dataset": {"name": "random", "classes": ["a", "b", "c"]}}
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
PAIRS = torch.tensor([[0, 1], [1, 2], [2, 0], [0, 2], [1, 0], [2, 1], [0, 1], [1, 2]])


@pytest.fixture
def parts(generator):
    """(8, 2, 1, 21, 19): the two things of each image, each alone."""
    return torch.rand(8, 2, 1, 21, 19, generator=generator)


@pytest.mark.parametrize(("metric", "factor"), [("l2", 1.0), ("l1", 0.25), ("l2", 0.0)])
def test_the_loss_is_the_margin_plus_the_weighted_metric_times_the_factor(
    metric, factor, tiny_images
):
    model = build_strong(reconstruction_metric=metric, reconstruction_weight=0.02)
    with torch.inference_mode():
        output = model(tiny_images)
        found = model.objective(output, tiny_images, LABELS, factor)
        difference = (model.decode(output.poses, LABELS) - tiny_images).flatten(1)
    distance = (difference**2 if metric == "l2" else difference.abs()).sum(1)
    margin = torch.tensor(twins.margin_loss(output.lengths, [{int(k)} for k in LABELS]))
    torch.testing.assert_close(found.reconstruction, distance)
    torch.testing.assert_close(found.loss, (margin + factor * 0.02 * distance).mean())


@pytest.mark.parametrize("metric", ["l2", "l1"])
def test_each_of_several_things_is_decoded_from_its_own_class(metric, tiny_images, parts):
    model = build_strong(reconstruction_metric=metric, reconstruction_weight=0.02)
    with torch.inference_mode():
        output = model(tiny_images)
        found = model.objective(output, parts, PAIRS, 0.5)
        distance = torch.zeros(8)
        for b in range(8):
            for k in range(2):
                made = model.decode(output.poses[b : b + 1], PAIRS[b : b + 1, k])[0]
                difference = made - parts[b, k]
                distance[b] += (difference**2 if metric == "l2" else difference.abs()).sum() / 2
    margin = torch.tensor(twins.margin_loss(output.lengths, [set(p.tolist()) for p in PAIRS]))
    torch.testing.assert_close(found.reconstruction, distance)
    torch.testing.assert_close(found.loss, (margin + 0.5 * 0.02 * distance).mean())


def test_one_thing_in_a_list_is_one_thing(tiny_images):
    model = build_strong()
    with torch.inference_mode():
        output = model(tiny_images)
        alone = model.objective(output, tiny_images, LABELS)
        listed = model.objective(output, tiny_images[:, None], LABELS[:, None])
    for a, b in zip(listed, alone, strict=True):
        torch.testing.assert_close(a, b)


def test_batch_norm_sees_the_parts_of_a_batch_together(tiny_images, parts):
    model = build_strong(decoder_norm=True)
    seen = [m for m in model.decoder.layers if isinstance(m, nn.BatchNorm1d)]
    model.train()
    model.objective(model(tiny_images), parts, PAIRS)
    assert [int(m.num_batches_tracked) for m in seen] == [1, 1]


@pytest.mark.parametrize(
    ("shape", "labels"),
    [((8, 1, 21, 19), PAIRS), ((8, 3, 1, 21, 19), PAIRS), ((8, 2, 1, 21, 19), LABELS)],
)
def test_other_than_one_image_for_each_label_is_refused(shape, labels, tiny_images):
    model = build_strong()
    with pytest.raises(ValueError, match=r"one image \(C, H, W\) to reconstruct for each label"):
        model.objective(model(tiny_images), torch.rand(shape), labels)


ONE_HOT = nn.functional.one_hot(LABELS, 3)
NO_NUMBERS = [ONE_HOT, ONE_HOT.float(), LABELS.float(), LABELS[:, None, None]]


@pytest.mark.parametrize("labels", NO_NUMBERS)
@pytest.mark.parametrize("name", ["capsnet", "resnet"])
def test_labels_that_are_not_class_numbers_are_refused(name, labels, tiny_images):
    options = {"reconstruction_weight": 0.0} if name == "capsnet" else {}
    model = models.build(name, (1, 21, 19), 3, **options).eval()
    with pytest.raises(ValueError, match=r"expected class numbers, int64 \(B,\).*below 3 classes"):
        model.objective(model(tiny_images), tiny_images, labels)


@pytest.mark.parametrize("name", SMALL)
def test_classifiers_share_the_probability_among_the_classes_of_an_image(name, generator):
    torch.manual_seed(0)
    model = models.build(name, (1, 21, 19), 3, **SMALL[name]).eval()
    images = torch.rand(8, 1, 21, 19, generator=generator)
    output = model(images)
    found = model.objective(output, images[:, None].expand(-1, 2, -1, -1, -1), PAIRS, 0.5)
    p = output.lengths
    expected = -(p[range(8), PAIRS[:, 0]].log() + p[range(8), PAIRS[:, 1]].log()).mean() / 2
    torch.testing.assert_close(found.loss, expected)
    assert found.reconstruction is None
    one = model.objective(output, images, LABELS[:, None])
    torch.testing.assert_close(one.loss, model.objective(output, images, LABELS).loss)


DECODERS = [
    {"decoder": name, "decoder_norm": norm}
    for name in ("fully_connected", "deconvolution")
    for norm in (False, True)
]

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
