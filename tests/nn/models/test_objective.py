"""What training minimises: metrics, annealing, several things in one image."""

import pytest
import torch
from conftest import build_strong
from helpers import literal as twins
from torch import nn

from capsviz.nn import models
from tests.nn.models.test_baselines import SMALL

LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
PAIRS = torch.tensor([[0, 1], [1, 2], [2, 0], [0, 2], [1, 0], [2, 1], [0, 1], [1, 2]])


@pytest.fixture
def parts(generator):
    """(8, 2, 1, 21, 19): the two things of each image, each alone."""
    return torch.rand(8, 2, 1, 21, 19, generator=generator)


@pytest.mark.parametrize("metric", ["l2", "l1"])
@pytest.mark.parametrize("factor", [1.0, 0.25, 0.0])
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
    torch.testing.assert_close(found.margin, margin)
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
    torch.testing.assert_close(found.margin, margin)
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
    margin = twins.margin_loss(p, [set(pair.tolist()) for pair in PAIRS])
    torch.testing.assert_close(found.margin, torch.tensor(margin))
    assert found.reconstruction is None
    one = model.objective(output, images, LABELS[:, None])
    for a, b in zip(one[:2], model.objective(output, images, LABELS)[:2], strict=True):
        torch.testing.assert_close(a, b)
