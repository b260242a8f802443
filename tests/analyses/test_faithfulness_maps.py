"""Maps and measures of `faithfulness` against known answers and other implementations."""

from functools import partial

import pytest
import torch
from captum.attr import IntegratedGradients, LayerGradCam, Occlusion
from captum.metrics import infidelity
from helpers.linear_capsnet import SHAPE, Exact, Plain
from helpers.plain_capsnet import Closed, Foreign

from capsviz.analyses.faithfulness import measures
from capsviz.experiments import maps
from capsviz.experiments.attacks import frozen
from capsviz.nn import models
from capsviz.nn.models import Scores
from capsviz.tracing import evidence, scores

CLASSES = torch.tensor([0, 1, 2, 0, 1, 2])


@pytest.fixture
def images(generator):
    return torch.rand(6, *SHAPE, generator=generator)


@pytest.fixture
def cnn():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return models.build("cnn", (1, 21, 19), 3, channels=(4, 5, 6), hidden=(8, 9)).eval()


def maps_of(model, images, classes):
    """Return maps by name, and the maps that are left out."""
    with frozen(model):
        found, left_out = maps.methods(model, images[:1])
        return {name: how(images, classes) for name, how in found.items()}, left_out


def masks_of(images, count, generator):
    return torch.stack([measures.patches(count, images.shape[2:], generator) for _ in images])


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
    routed = found[maps.ROUTED]
    orders = torch.stack([routed.order, *torch.rand(20, 6, *SHAPE[1:], generator=generator)])
    shares = torch.arange(21) / 20
    drawn = measures.of_pixels(model, images, orders, classes[:, None], shares, generator)[0]
    exact = model.contributions(images, classes).flatten(1).sort(1, descending=True).values
    gone = torch.cat([torch.zeros(6, 1), exact.cumsum(1)], 1)
    torch.testing.assert_close(drawn[1, 0].float(), gone, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(drawn[0, 0].float(), gone[:, -1:] - gone, rtol=1e-4, atol=1e-5)
    deletion, insertion = torch.trapezoid(drawn, shares)
    assert (deletion[0] < deletion[1:].amin(0)).all()
    assert (insertion[0] > insertion[1:].amax(0)).all()
    masks = masks_of(images, 9, generator)
    losses = maps.lost(model, images, classes, masks)
    contributions = torch.stack([found[n].contributions for n in (maps.ROUTED, maps.RANDOM)])
    exactly, random = measures.infidelity(contributions, masks, losses)
    assert (exactly < 1e-6).all() and (random > 0.01).all()


def test_curves_are_those_of_images_masked_one_by_one(images, generator):
    model, counted = Plain(), []
    orders = torch.rand(2, 6, 20, generator=generator).round(decimals=1)
    shares = measures.grid_of(5)

    def masked(b, there):
        counted.append(len(there))
        return scores(model, (images[b].flatten() * there).view(-1, *SHAPE))

    for b in range(6):
        score = partial(masked, b)
        rank = measures.ranks(orders[:, b], generator)
        drawn = measures.curves(score, rank, shares)
        for m in range(2):
            ordered = rank[m].argsort()
            assert (orders[m, b][ordered].diff() <= 0).all()
            for s, share in enumerate(shares.tolist()):
                there = torch.zeros(20, dtype=torch.bool)
                there[ordered[: round(20 * share)]] = True
                for k, one in enumerate((~there, there)):
                    expected = score(one[None])[0].double()
                    torch.testing.assert_close(drawn[:, k, m, s], expected, rtol=0, atol=1e-6)
    same = measures.ranks(orders[:1, 0], generator).expand(2, -1)
    measures.curves(score, same, torch.ones(1))
    assert counted[-1] == 2  # the image and black: equal forms are scored once


def test_equal_values_are_ordered_at_random(generator):
    rank = measures.ranks(torch.zeros(500, 4), generator)
    assert (rank.sort(1).values == torch.arange(4)).all()
    assert ((rank == 0).double().mean(0) - 0.25).abs().max() < 0.08


def test_infidelity_equals_captum_except_for_maps_of_the_wrong_sign(images, generator):
    model = Plain()
    masks = masks_of(images, 40, generator)
    contributions = torch.rand(1, 6, *SHAPE[1:], generator=generator, dtype=torch.double)
    losses = maps.lost(model, images, CLASSES, masks)
    (found,) = measures.infidelity(contributions, masks, losses)
    assert (found < 1).all() and (measures.infidelity(-contributions, masks, losses) == 1).all()

    def perturb(inputs):  # each image 40 times
        chosen = masks.flatten(0, 1)[:, None]
        return chosen.to(inputs), inputs * ~chosen

    expected = infidelity(
        lambda some: model(some).logits, perturb, images, contributions.float()[0][:, None],
        target=CLASSES, n_perturb_samples=40, normalize=True,
    )  # fmt: skip
    expected = expected.double() / losses.square().mean(1)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    assert measures.infidelity(contributions, masks, losses * 0).isnan().all()
    assert (measures.infidelity(contributions * 0, masks, losses) == 1).all()


def test_gradients_grad_cam_and_occlusion_equal_captum(cnn, generator):
    images = torch.rand(3, 1, 21, 19, generator=generator)
    classes = torch.tensor([0, 2, 1])
    numbers = maps.convolutions(cnn, images[:1])
    assert numbers == [0, 1, 2]
    found, _ = maps_of(cnn, images, classes)

    def score(some):
        return cnn(some).logits

    for number, module in zip(numbers, cnn.layers[:6:2], strict=True):
        expected = LayerGradCam(score, module).attribute(
            images.clone().requires_grad_(), target=classes, relu_attributions=True
        )
        one = maps.grad_cam(cnn, number, images, classes)
        torch.testing.assert_close(one, expected)
        assert one.abs().sum() > 0
    for name, expected in (
        ("integrated gradients", IntegratedGradients(score).attribute(
            images, target=classes, n_steps=maps.STEPS, internal_batch_size=24)),
        ("occlusion", Occlusion(score).attribute(images, (1, 5, 5), (1, 4, 3), target=classes)),
    ):  # fmt: skip
        expected = expected[:, 0].double().detach()
        torch.testing.assert_close(found[name].order, expected, rtol=1e-4, atol=1e-6)


def test_convolutions_are_found_even_if_no_module_is_called(tiny, tiny_images):
    assert maps.convolutions(tiny, tiny_images[:1]) == [0, 1]
    found, left_out = maps_of(tiny, tiny_images, torch.zeros(8, dtype=torch.long))
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


def test_layers_are_in_the_order_of_the_pass_and_weights_are_restored(tiny, tiny_images, generator):
    before = [one.clone() for one in tiny.parameters()]
    parts = measures.stages(tiny, tiny_images[:1])
    assert list(parts) == ["capsules", "primary.convolution", "conv1"]
    weight = tiny.capsules.weight
    spread = float(weight.detach().std())
    with pytest.raises(RuntimeError), measures.randomised([weight], generator):
        assert not torch.equal(weight, before[0])
        assert float(weight.detach().std()) == pytest.approx(spread, rel=0.2)
        raise RuntimeError
    assert all(torch.equal(a, b) for a, b in zip(before, tiny.parameters(), strict=True))
    assert all(one.requires_grad for one in tiny.parameters())
    deep = models.build("resnet", (1, 21, 19), 3, channels=(4, 5), blocks=2).eval()
    parts = measures.stages(deep, tiny_images[:1])
    assert len(parts) == measures.STAGES and list(parts)[-1] == "stem.0"
    first, *others = ({id(one) for one in part} for part in parts.values())
    assert first.union(*others) == {id(one) for one in deep.parameters()}
    assert id(deep.classes.weight) in first


def test_maps_that_do_not_depend_on_the_network_do_not_change(tiny, tiny_images, generator):
    classes = torch.zeros(8, dtype=torch.long)
    with frozen(tiny):
        some, _ = maps.methods(tiny, tiny_images[:1])
        parts = measures.stages(tiny, tiny_images[:1])
        found = measures.correlations(some, tiny_images, classes, parts, generator)
    found = dict(zip(some, found, strict=True))
    assert found[maps.RANDOM].isnan().all()
    torch.testing.assert_close(found[maps.BRIGHTNESS], torch.ones(3, 8).double())
    of_children = found[maps.CHILDREN]
    torch.testing.assert_close(of_children[0], torch.ones(8).double())  # the class's layer alone
    assert of_children[1].mean() < 0.9
    assert found[maps.ROUTED][0].mean() < 0.9


def test_maps_that_a_network_does_not_have_are_listed(images, generator, monkeypatch):
    larger, classes = torch.rand(2, 1, 21, 19, generator=generator), CLASSES[:2]
    model = Foreign((1, 21, 19), 3).eval()
    model.grid = None
    found, left_out = maps_of(model, larger, classes)
    assert maps.ROUTED not in found and "have no positions" in left_out[0]
    found, left_out = maps_of(Plain(), images[:2], classes)
    assert set(found) == {
        maps.RANDOM, maps.BRIGHTNESS, "gradient", "integrated gradients", "occlusion"
    }  # fmt: skip
    assert "has no capsules" in left_out[0] and "no Grad-CAM" in left_out[1]
    found, left_out = maps_of(Foreign(SHAPE, 3, grid=(2, 2, 2)).eval(), images[:2], classes)
    assert not {maps.ROUTED, maps.CHILDREN} & set(found)  # each would be the order by brightness
    assert left_out[0].startswith("no routing map: every position sees the same")

    fields = torch.ones(2, 2, 21, 19, dtype=torch.double)
    fields[0, 0, 0] = 0  # positions that do not all see the same
    monkeypatch.setattr(evidence, "fields_of_places", lambda model: fields)
    closed = Closed((1, 21, 19), 3, grid=(3, 2, 2)).eval()
    found, left_out = maps_of(closed, larger, classes)
    assert maps.ROUTED in found and maps.UNIFORM not in found
    assert "couplings cannot be replaced" in left_out[0]


def test_scores_without_a_gradient_are_refused(images):
    class Detached(Plain):
        def forward(self, images):
            return Scores(*(one.detach() for one in super().forward(images)))

    with pytest.raises(ValueError, match="no gradient by the image"):
        maps.methods(Detached(), images[:1])
