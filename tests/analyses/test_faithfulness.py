"""Faithfulness over images and units: known answers, verdicts, figures, the command."""

import numpy as np
import pytest
import torch
from helpers import noise_images
from helpers.linear_capsnet import CLASSES as J
from helpers.linear_capsnet import SHAPE, Exact

from capsviz.analyses.faithfulness import OneImage, OverImages, OverUnits, measures
from capsviz.data import Dataset
from capsviz.experiments import maps
from capsviz.inputs.opening import Inputs
from capsviz.statistics.estimate import Estimate
from capsviz.tracing import from_children, scores, trace

CLASSES = ["a", "b", "c"]
LABELS = torch.tensor([0, 1, 2, 0, 1])
model = noise_images.model


def one(network, image, label=None, **options):
    return OneImage().measure(network, image, label, classes=CLASSES, steps=3, **options)


def over(network, images, labels=LABELS, **options):
    about = {"classes": CLASSES, "dataset": "noise"}
    return OverImages().measure(network, images, labels, **about, steps=3, **options)


def noise(n, shape=(1, 21, 19)):
    images = torch.randint(256, (n, *shape), generator=torch.Generator().manual_seed(1))
    return Dataset(images.byte(), torch.arange(n) % 3, tuple(CLASSES), "noise", "test")


def units(network, n, shape=(1, 21, 19), **options):
    return OverUnits().measure(Inputs(network, noise(n, shape), "x"), n, steps=4, **options)


@pytest.fixture
def images(generator):
    images = torch.rand(5, 1, 21, 19, generator=generator)
    return images * (images > 0.5)


@pytest.fixture
def two_draws(monkeypatch):
    """Use two draws of random weights; their number does not matter here."""
    monkeypatch.setattr(measures, "DRAWS", 2)


def test_one_image_is_explained_for_the_predicted_or_the_true_class(model, images):
    winner = int(scores(model, images[:1]).argmax())
    result = one(model, images[:1], (winner + 1) % 3)
    assert result.target == winner and result.label != winner
    intact = scores(model, images[:1])[0, winner]
    black = scores(model, torch.zeros(1, 1, 21, 19))[0, winner]
    for curve, ends in ((result.deletion, (intact, black)), (result.insertion, (black, intact))):
        for k, end in ((0, ends[0]), (-1, ends[1])):
            np.testing.assert_allclose(curve[:, k], float(end), rtol=1e-5)
    other = one(model, images[:1], (winner + 1) % 3, target="true")
    assert other.target == (winner + 1) % 3
    kept = dict(zip(result.names, result.correlation, strict=True))
    assert np.isnan(kept[maps.RANDOM]) and kept[maps.BRIGHTNESS] == pytest.approx(1)
    with pytest.raises(ValueError, match="true class of this picture is not known"):
        one(model, images[:1], target="true")


@pytest.mark.usefixtures("two_draws")
def test_statistics_are_means_over_images_and_the_network_is_not_changed(model, images):
    before = [weight.clone() for weight in model.parameters()]
    model.train()
    result = over(model, images[:2], LABELS[:2])
    assert model.training and all(weight.requires_grad for weight in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    alone = [one(model, images[[i]], int(LABELS[i])) for i in range(2)]
    assert result.names == alone[0].names and result.n == 2
    for m, name in enumerate(result.names):
        if name in (maps.ROUTED, maps.BRIGHTNESS, maps.CHILDREN):  # others have ties
            mean = np.mean([each.deletion_area[m] for each in alone])
            assert result.deletion.value[m] == pytest.approx(mean, rel=1e-4)
            mean = np.mean([[each.deletion[m], each.insertion[m]] for each in alone], 0)
            np.testing.assert_allclose(result.curves.value[:, m], mean, rtol=1e-4)
    gap = result.insertion.value - result.deletion.value
    np.testing.assert_allclose(result.gap.difference.value, gap - gap[0], atol=1e-6)
    routed = gap[result.names.index(maps.ROUTED)]
    np.testing.assert_allclose(result.routed_less.value, routed - gap, atol=1e-6)
    assert result.sanity.value.shape == (len(result.names), 3)
    assert result.sanity.n == 2 and result.stages[-1] == "conv1"
    np.testing.assert_allclose(result.sanity.value[1], 1)


@pytest.mark.usefixtures("two_draws")
def test_all_images_have_the_same_number_of_patches(model, images, monkeypatch):
    """This includes the last image if it is alone in its batch."""
    counts, patches = [], measures.patches
    monkeypatch.setattr(measures, "AT_A_TIME", 2)
    monkeypatch.setattr(measures, "patches", lambda n, *a: counts.append(n) or patches(n, *a))
    over(model, images[:3], LABELS[:3])
    assert counts == [measures.PATCHES] * 3
    counts.clear()
    one(model, images[:1])
    assert counts == [measures.OF_ONE]


def test_the_verdict_names_faithful_and_unfaithful_maps(generator):
    model, images = Exact(), torch.rand(30, 1, 4, 5, generator=generator)
    result = over(model, images, torch.zeros(30).long())
    of = dict(zip(result.names, result.infidelity.value, strict=True))
    assert of[maps.ROUTED] < 1e-6 and of[maps.BRIGHTNESS] > 0.01
    text = OverImages().verdict(result)
    assert "more faithful than" in text and "'brightness'" in text
    assert "'routing map, uniform'" not in text  # its own are uniform
    less = Estimate(result.routed_less.value - 1, result.routed_less.ci95 - 1, 30)
    flipped = OverImages().verdict(result._replace(routed_less=less))
    assert "more faithful than no other map" in flipped and "and less than" in flipped


@pytest.mark.usefixtures("two_draws")
def test_images_whose_score_no_square_changes_are_left_out(model, images):
    images[0] = 0
    result = over(model, images[:3], LABELS[:3])
    assert result.infidelity.n == 2 and np.isfinite(result.infidelity.value).all()
    assert np.isnan(over(model, images[:2], LABELS[:2]).infidelity.value).all()


def test_with_additive_effects_no_order_beats_that_of_the_effects():
    result = units(Exact(), 30, SHAPE)
    gap = dict(zip(result.names, result.gap, strict=True))
    for name, one in gap.items():
        assert one.value <= gap["removal effect"].value + 1e-6, name
    for name in ("gradient", "integrated gradients"):
        np.testing.assert_allclose(gap[name].value, gap["removal effect"].value, atol=1e-6)
    for name in ("random map", "routing map, permuted"):  # as good as a constant one
        less = gap[name].difference
        assert abs(less.value) < less.high - less.low < gap[maps.ROUTED].difference.low
    assert "no Grad-CAM" in result.left_out[0]
    children = noise(30, SHAPE).images.flatten(1) / 255
    own = (children * Exact().weights[:, torch.arange(30) % 3].T).detach() / J
    less = own - (children.mean(0) * Exact().weights[:, torch.arange(30) % 3].T).detach() / J
    removed = less.sort(1, descending=True).values.cumsum(1)
    expected = [own.sum(1), *(own.sum(1) - removed[:, k - 1] for k in (1, 5, 11, 20))]
    found = result.curves.value[0, result.names.index("removal effect")]
    np.testing.assert_allclose(found, torch.stack(expected).mean(1), atol=1e-5)


def test_a_class_in_a_tie_is_not_correct():
    activations = torch.tensor([[0.2, 0.2, 0.2], [0.2, 0.3, 0.1], [0.4, 0.3, 0.1], [0.2, 0.2, 0.1]])
    one, two = (measures.outcome(activations, torch.tensor(k))[:, 1] for k in ([0], [0, 1]))
    assert one.tolist() == [0, 0, 1, 0] and two.tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("kind", ["positions", "capsules"])
def test_removed_units_get_their_mean_over_the_images(model, kind):
    result, part = units(model, 8, over=kind, scene="cluttered"), noise(8)
    shown = measures.make(part.sample(8), "cluttered", 0)
    children = trace(model, shown.images, keep=("children",)).children
    ends = scores(model, shown.images), from_children(model, children.mean(0, keepdim=True))
    for end, rows in zip(ends, (shown.images, [0]), strict=True):
        expected = end.expand(8, -1).gather(1, shown.labels).mean()
        for step, place in ((0, 0), (1, -1)) if len(rows) > 1 else ((0, -1), (1, 0)):
            values = result.curves.value[step, :, place]
            np.testing.assert_allclose(values, float(expected), rtol=1e-5)


def test_scenes_depend_on_the_seed_and_record_their_objects():
    part = noise(8)
    for name in ("cluttered", "two-digits"):
        scene = measures.make(part, name, 0)
        assert torch.equal(scene.images, measures.make(part, name, 0).images)
        assert scene.images.shape == (8, 1, 21, 19) and scene.parts.shape == (8, 2, 1, 21, 19)
    assert (scene.labels[:, 0] != scene.labels[:, 1]).all()
    parts = torch.zeros(3, 2, *SHAPE)
    parts[:, 0, ..., :2], parts[:, 1, ..., 3:] = 1, 0.4
    scene = measures.Scene(parts.sum(1), LABELS[:3, None], parts)
    names, _, apart, _ = measures.measured(
        Exact(), scene, "positions", measures.grid_of(2), 0, iter
    )
    apart = dict(zip(names, apart, strict=True))
    assert (apart[maps.CHILDREN] == 1).all() and (apart["constant map"] == 0.5).all()


def test_units_that_cannot_be_removed_are_refused_in_one_line(analyse):
    without = Exact()
    without.grid = None
    with pytest.raises(ValueError, match="have no positions: take --over capsules"):
        units(without, 8, SHAPE)
    done = analyse("faithfulness", "--over", "positions")
    assert done.exit_code == 2 and "from_children" in done.output
