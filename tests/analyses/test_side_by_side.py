"""Two routings on one image: every number is that of the network alone."""

import numpy as np
import pytest
import torch
from conftest import build_strong, build_tiny
from helpers.figure_checks import assert_redrawn

from capsviz import checkpoint
from capsviz.analyses import routing, side_by_side
from capsviz.nn import models
from capsviz.tracing import measures, trace

CLASSES = ["a", "b", "c"]


one_image = side_by_side.OneImage().measure


@pytest.fixture
def pair():
    return {"one": build_strong(), "two": build_tiny(routing="em", final_temperature=1.0)}


def many(pair, images, labels):
    return side_by_side.OverImages().measure(pair, images, labels, classes=CLASSES, dataset="noise")


def test_each_network_shows_what_it_shows_alone(pair, tiny_images):
    result = one_image(pair, tiny_images[:1], 1, classes=CLASSES)
    for k, (name, model) in enumerate(pair.items()):
        alone = routing.OneImage().measure(model, tiny_images[:1], 1, classes=CLASSES)
        np.testing.assert_array_equal(result.activations[k], alone.activations)
        np.testing.assert_allclose(result.couplings[name], alone.couplings[-1], rtol=1e-6)
        np.testing.assert_array_equal(result.uniform_maps[name], alone.uniform_maps)
        np.testing.assert_allclose(result.maps[name].sum((1, 2)), result.sums[k], rtol=1e-6)
        assert result.effective[k] == pytest.approx(np.exp(alone.entropy_nats[-1]).mean())
    assert "Dynamic" in result.words[0] and "Gaussians" in result.words[1]
    assert result.quantities["one"]["words"] == "s·v̂"
    assert result.quantities["two"]["words"].startswith("the logit")
    assert result.shown[0] == result.activations[0].argmax() != result.shown[1]


def read(model, images, couplings):
    return trace(model, images, keep=("lengths",), couplings=couplings).lengths.argmax(1)


def test_what_is_counted_is_paired_with_the_first_network(pair, tiny_images, generator):
    images = torch.cat([tiny_images, torch.rand(12, 1, 21, 19, generator=generator)])
    labels = trace(pair["one"], images, keep=("lengths",)).lengths.argmax(1)
    labels[:3] = (labels[:3] + 1) % 3
    result = many(pair, images, labels)
    reads, even = (
        torch.stack([read(m, images, c) for m in pair.values()]) for c in (None, "uniform")
    )
    right = (reads == labels).double().mean(1)
    np.testing.assert_allclose(result.accuracy.value, right)
    assert result.accuracy.value[0] == pytest.approx(17 / 20)
    np.testing.assert_allclose(result.accuracy.difference.value, right - right[0], atol=1e-6)
    cost = right - (even == labels).double().mean(1)
    np.testing.assert_allclose(result.cost.value, cost, atol=1e-6)
    np.testing.assert_allclose(result.agreement.value, (reads == reads[0]).double().mean(1))
    own = [measures.entropy(trace(m, images).couplings[-1]).exp().mean() for m in pair.values()]
    np.testing.assert_allclose(result.effective_parents.value, own, rtol=1e-5)
    assert result.n == 20


def test_capsules_without_positions_have_no_maps_and_are_drawn(tiny_images, tmp_path):
    pair = {name: checkpoint.load(f"digits-{name}") for name in ("k-means", "self-routing")}
    image = torch.nn.functional.pad(tiny_images[:1], (4, 5, 3, 4))
    result = one_image(pair, image, 1, classes=list("0123456789"))
    assert result.maps["k-means"] is None
    assert_redrawn("side_by_side", result, tmp_path, widths=(3.25,))


def test_networks_that_cannot_stand_there_are_refused_before_anything_is_computed(
    pair, tiny_images, monkeypatch
):
    plain = models.build("average", (1, 21, 19), 3).eval()
    image, one = tiny_images[:1], pair["one"]
    for count in (1, 4):
        with pytest.raises(ValueError, match=f"expected two networks with capsules, got {count}"):
            one_image(dict.fromkeys(range(count), one), image, classes=CLASSES)
    monkeypatch.setattr(type(one), "look", lambda *_, **__: pytest.fail("computed"))
    with pytest.raises(ValueError, match="'plain' cannot be set beside another"):
        one_image({"one": one, "plain": plain}, image, classes=CLASSES)
