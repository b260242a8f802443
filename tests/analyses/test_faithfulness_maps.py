"""Maps and errors of `faithfulness`: exact where the answer is known, and by other hands."""

import numpy as np
import pytest
import torch
from captum.attr import LayerGradCam
from captum.metrics import infidelity
from conftest import build_tiny
from helpers.linear_capsnet import SHAPE, Exact, Plain
from helpers.plain_capsnet import Foreign
from scipy.stats import spearmanr
from torch import nn

from capsviz.analyses.faithfulness import curves, explained, maps, randomised
from capsviz.experiments.attacks import frozen
from capsviz.nn import models
from capsviz.nn import routing as routings
from capsviz.nn.models import Scores
from capsviz.tracing import evidence, remember, scores


@pytest.fixture
def images(generator):
    return torch.rand(6, *SHAPE, generator=generator)


def maps_of(model, images, classes):
    """Maps by name, and what is left out."""
    with frozen(model):
        found, left_out = maps.methods(model, images[:1])
        return {one.name: one.maps(images, classes) for one in found}, left_out


def test_on_a_linear_network_the_routing_map_is_what_each_pixel_contributes(images):
    model = Exact()
    classes = scores(model, images).argmax(1)
    found, left_out = maps_of(model, images, classes)
    exact = model.contributions(images, classes).double()
    for name in (maps.ROUTED, maps.UNIFORM, "gradient", "integrated gradients"):
        torch.testing.assert_close(found[name].contributions, exact, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(found[maps.ROUTED].order, exact, rtol=1e-5, atol=1e-7)
    assert len(left_out) == 1 and "no Grad-CAM" in left_out[0]


def test_a_map_of_exact_contributions_is_faithful_and_no_order_deletes_better(images, generator):
    model = Exact()
    classes = scores(model, images).argmax(1)
    found, _ = maps_of(model, images, classes)
    names = [maps.ROUTED, maps.RANDOM, *[maps.RANDOM] * 20]
    orders = [found[maps.ROUTED].order, found[maps.RANDOM].order]
    orders += [torch.rand(orders[0].shape, generator=generator) for _ in names[2:]]
    rank = torch.stack([curves.ranks(one, generator) for one in orders])
    shares = torch.arange(21) / 20
    drawn = curves.curves(lambda some: scores(model, some), images, rank, classes, shares)
    exact = model.contributions(images, classes).flatten(1).sort(1, descending=True).values
    gone = torch.cat([torch.zeros(6, 1), exact.cumsum(1)], 1)
    torch.testing.assert_close(drawn[1, 0].float(), gone, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(drawn[0, 0].float(), gone[:, -1:] - gone, rtol=1e-4, atol=1e-5)
    deletion, insertion = curves.area(drawn, shares)
    assert (deletion[0] < deletion[1:].amin(0)).all() and (
        insertion[0] > insertion[1:].amax(0)
    ).all()
    masks = torch.stack([curves.patches(9, SHAPE[1:], generator) for _ in images])
    losses = curves.lost(lambda some: explained.Explained(model)(some).detach(), images, classes,
                         masks)  # fmt: skip
    contributions = torch.stack([found[n].contributions for n in (maps.ROUTED, maps.RANDOM)])
    exactly, random = curves.infidelity(contributions, masks, losses)
    assert (exactly < 1e-6).all() and (random > 0.01).all()


def test_curves_are_those_of_images_masked_one_by_one(images, generator):
    model = Plain()
    classes = torch.tensor([0, 1, 2, 0, 1, 2])
    orders = torch.rand(2, 6, *SHAPE[1:], generator=generator).round(decimals=1)
    rank = torch.stack([curves.ranks(one, generator) for one in orders])
    shares = curves.grid_of(5)
    drawn = curves.curves(lambda some: scores(model, some), images, rank, classes, shares)
    for m in range(2):
        for b in range(6):
            ordered = rank[m, b].argsort()
            assert (orders[m, b].flatten()[ordered].diff() <= 0).all()
            for s, share in enumerate(shares.tolist()):
                removed = images[b].clone().flatten()
                shown = torch.zeros(20)
                some = ordered[: round(20 * share)]
                shown[some] = removed[some]
                removed[some] = 0
                for k, one in enumerate((removed, shown)):
                    expected = scores(model, one.view(1, *SHAPE))[0, classes[b]]
                    assert float(drawn[k, m, b, s]) == pytest.approx(float(expected), abs=1e-6)


def test_equal_images_are_scored_once(images, generator):
    counted = []

    def score(some):
        counted.append(len(some))
        return scores(Plain(), some)

    rank = curves.ranks(torch.rand(6, *SHAPE[1:], generator=generator), generator)
    curves.curves(score, images, torch.stack([rank, rank]), torch.zeros(6).long(), torch.ones(1))
    assert counted == [12]  # of each image it and black


def test_equal_values_are_ordered_at_random(generator):
    rank = curves.ranks(torch.zeros(500, 2, 2), generator)
    assert (rank.sort(1).values == torch.arange(4)).all()
    assert ((rank == 0).double().mean(0) - 0.25).abs().max() < 0.08


def test_areas_and_infidelity_by_hand(images, generator):
    shares = torch.tensor([0.0, 0.25, 1.0], dtype=torch.double)
    values = torch.tensor([1.0, 0.5, 0.1], dtype=torch.double)
    assert float(curves.area(values, shares)) == pytest.approx(0.25 * 0.75 + 0.75 * 0.3)
    model = Plain()
    classes = torch.tensor([2, 1, 0, 2, 1, 0])
    masks = torch.stack([curves.patches(40, SHAPE[1:], generator) for _ in images])
    contributions = torch.rand(6, *SHAPE[1:], generator=generator, dtype=torch.double)
    losses = curves.lost(lambda some: model(some).logits.detach(), images, classes, masks)
    found = curves.infidelity(contributions[None], masks, losses)[0]
    # of the wrong sign a map foretells nothing; captum's factor may be negative
    assert (found < 1).all() and (curves.infidelity(-contributions[None], masks, losses) == 1).all()

    def perturb(inputs):  # each image 40 times
        chosen = masks.flatten(0, 1)[:, None]
        return chosen.to(inputs), inputs * ~chosen

    expected = infidelity(
        lambda some: model(some).logits, perturb, images, contributions.float()[:, None],
        target=classes, n_perturb_samples=40, normalize=True,
    )  # fmt: skip
    torch.testing.assert_close(found, expected.double() / losses.square().mean(1), rtol=1e-3,
                               atol=1e-5)  # fmt: skip
    none = curves.infidelity(contributions[None], masks, torch.zeros(6, 40))
    assert none.isnan().all()
    assert (curves.infidelity(contributions[None] * 0, masks, losses) == 1).all()


@pytest.mark.filterwarnings("ignore")  # of what Quantus imports
def test_deletion_curves_are_those_of_quantus(images, generator):
    quantus = pytest.importorskip("quantus", reason="Quantus is not here: pip install quantus")

    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain = Plain()

        def forward(self, images):
            return self.plain(images).lengths

    classes = torch.tensor([0, 1, 2, 0, 1, 2])
    order = torch.rand(6, *SHAPE[1:], generator=generator)
    metric = quantus.PixelFlipping(
        features_in_step=4, normalise=False, perturb_baseline=0.0, disable_warnings=True
    )
    with torch.no_grad():
        theirs = metric(
            Bare().eval(), images.numpy(), classes.numpy(), order[:, None].numpy(), softmax=False,
            device="cpu", channel_first=True,
        )  # fmt: skip
    rank = curves.ranks(order, generator)[None]
    shares = torch.arange(6) / 5
    drawn = curves.curves(lambda some: scores(Plain(), some), images, rank, classes, shares)
    np.testing.assert_allclose(drawn[0, 0, :, 1:], theirs, rtol=1e-5)


def test_grad_cam_meets_a_convolution_as_a_hook_on_its_module_does(generator):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = models.build("cnn", (1, 21, 19), 3, channels=(4, 5, 6), hidden=(8, 9)).eval()
    images = torch.rand(3, 1, 21, 19, generator=generator)
    classes = torch.tensor([0, 2, 1])
    several = explained.convolutions(model, images[:1])
    assert [one.shape for one in several] == [(4, 21, 19), (5, 21, 19), (6, 21, 19)]
    for one, module in zip(several, model.layers[:6:2], strict=True):
        watched = explained.Explained(model, one.number)
        found = LayerGradCam(watched, watched.layer).attribute(
            images.clone().requires_grad_(), target=classes
        )
        expected = LayerGradCam(lambda some: model(some).logits, module).attribute(
            images.clone().requires_grad_(), target=classes
        )
        torch.testing.assert_close(found, expected)
        assert found.abs().sum() > 0


def test_convolutions_of_a_capsule_network_are_met_though_no_module_is_called(tiny, tiny_images):
    several = explained.convolutions(tiny, tiny_images[:1])
    assert [one.shape for one in several] == [(5, 13, 11), (8, 3, 2)]
    classes = torch.zeros(8, dtype=torch.long)
    found, left_out = maps_of(tiny, tiny_images, classes)
    assert left_out == [] and {n for n in found if "Grad-CAM" in n} == {
        "Grad-CAM, first convolution", "Grad-CAM, last convolution"
    }  # fmt: skip
    assert list(found)[:2] == [maps.RANDOM, maps.BRIGHTNESS]
    for one in found.values():
        assert one.order.shape == one.contributions.shape == (8, 21, 19)
        assert one.order.dtype == torch.double and not one.order.requires_grad
    assert found[maps.ROUTED].own.shape == (8, 3, 2)


def test_evidence_in_pixels_keeps_its_sum_and_black_pixels_get_none(tiny, tiny_images):
    fields = evidence.fields_of_places(tiny)
    assert fields.shape == (3, 2, 21, 19) and (fields.sum((2, 3)) == 17 * 17).all()
    images = tiny_images * (tiny_images > 0.6)
    images[0] = 0
    values = torch.randn(8, 3, 2, dtype=torch.double)
    found = evidence.in_pixels(values, images, fields)
    torch.testing.assert_close(found.sum((1, 2)), values.sum((1, 2)))
    assert (found[1:][images[1:, 0] == 0] == 0).all()
    assert found[0].count_nonzero() > 0


def test_layers_are_in_the_order_of_the_pass_and_weights_come_back(tiny, tiny_images):
    before = [one.clone() for one in tiny.parameters()]
    parts = randomised.stages(tiny, tiny_images[:1])
    assert [one.name for one in parts] == ["capsules", "primary.convolution", "conv1"]
    weight = tiny.capsules.weight
    spread = float(weight.detach().std())
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(RuntimeError), randomised.randomised([weight], generator):
        assert not torch.equal(weight, before[0])
        assert float(weight.detach().std()) == pytest.approx(spread, rel=0.2)
        raise RuntimeError
    assert all(torch.equal(a, b) for a, b in zip(before, tiny.parameters(), strict=True))
    assert all(one.requires_grad for one in tiny.parameters())
    deep = models.build("resnet", (1, 21, 19), 3, channels=(4, 5), blocks=2).eval()
    parts = randomised.stages(deep, tiny_images[:1])
    assert len(parts) == randomised.STAGES and parts[-1].name == "stem.0"
    known = {id(one) for part in parts for one in part.weights}
    assert known == {id(one) for one in deep.parameters()}
    assert id(deep.classes.weight) in {id(one) for one in parts[0].weights}


def test_maps_that_do_not_know_the_network_stay_what_they_were(tiny, tiny_images):
    classes = torch.zeros(8, dtype=torch.long)
    with frozen(tiny), remember():
        some, _ = maps.methods(tiny, tiny_images[:1])
        parts = randomised.stages(tiny, tiny_images[:1])
        generator = torch.Generator().manual_seed(0)
        found = randomised.correlations(tiny, some, tiny_images, classes, parts, generator)
    names = [one.name for one in some]
    assert found[names.index(maps.RANDOM)].isnan().all()
    torch.testing.assert_close(found[names.index(maps.BRIGHTNESS)], torch.ones(3, 8).double())
    of_children = found[names.index(maps.CHILDREN)]
    torch.testing.assert_close(of_children[0], torch.ones(8).double())  # the class's layer alone
    assert of_children[1].mean() < 0.9
    assert found[names.index(maps.ROUTED)][0].mean() < 0.9


def test_the_correlation_is_spearmans(generator):
    a, b = torch.rand(2, 3, 4, 5, generator=generator).round(decimals=1)
    found = (randomised.centred_ranks(a) * randomised.centred_ranks(b)).sum(1)
    for k in range(3):
        expected = spearmanr(a[k].flatten(), b[k].flatten()).statistic
        assert float(found[k]) == pytest.approx(expected)


def test_what_a_network_has_no_map_for_is_said(generator, monkeypatch):
    images = torch.rand(2, 1, 21, 19, generator=generator)
    model = Foreign((1, 21, 19), 3).eval()
    model.grid = None
    found, left_out = maps_of(model, images, torch.tensor([0, 1]))
    assert maps.ROUTED not in found and "have no positions" in left_out[0]
    found, left_out = maps_of(Plain(), images[..., :4, :5], torch.tensor([0, 1]))
    assert set(found) == {
        maps.RANDOM,
        maps.BRIGHTNESS,
        "gradient",
        "integrated gradients",
        "occlusion",
    }
    assert "has no capsules" in left_out[0] and "no Grad-CAM" in left_out[1]

    class Closed(Foreign):
        def look(self, images, *, keep, iterations=None):
            return super().look(images, keep=keep, iterations=iterations)

    fields = torch.ones(2, 2, 21, 19, dtype=torch.double)
    fields[0, 0, 0] = 0  # places that do not all see the same
    monkeypatch.setattr(evidence, "fields_of_places", lambda model: fields)
    closed = Closed((1, 21, 19), 3, grid=(3, 2, 2)).eval()
    found, left_out = maps_of(closed, images, torch.tensor([0, 1]))
    assert maps.ROUTED in found and maps.UNIFORM not in found
    assert "couplings cannot be replaced" in left_out[0]


def test_scores_without_a_gradient_are_refused(images):
    class Detached(Plain):
        def forward(self, images):
            return Scores(*(one.detach() for one in super().forward(images)))

    with pytest.raises(ValueError, match="no gradient by the image"):
        maps.methods(Detached(), images[:1])


@pytest.mark.parametrize("routing", [n for n in routings.available() if n != "dynamic"])
def test_other_routings_have_maps_too(routing, tiny_images):
    model = build_tiny(routing=routing)
    found, left_out = maps_of(model, tiny_images[:2], torch.tensor([0, 1]))
    assert maps.ROUTED in found and maps.UNIFORM in found and left_out == []
    assert all(torch.isfinite(one.contributions).all() for one in found.values())


def test_where_every_place_sees_the_whole_image_there_is_no_map_of_places(images):
    """Each would be the order by brightness, times a number."""

    model = Foreign(SHAPE, 3, grid=(2, 2, 2)).eval()
    found, left_out = maps_of(model, images, torch.tensor([0, 1, 2] * 2))
    assert not {maps.ROUTED, maps.UNIFORM, maps.CHILDREN} & set(found) and maps.BRIGHTNESS in found
    assert left_out[0].startswith("no routing map: every position sees the whole image")
