"""Faithfulness: statistics of many images, words, figures and the command."""

import json
import sys

import numpy as np
import pytest
import torch
from conftest import build_strong
from helpers.figure_checks import assert_redrawn
from helpers.linear_capsnet import Exact
from helpers.other_devices import elsewhere, same

from capsviz import results
from capsviz.analyses.faithfulness import OneImage, OverImages, maps, measure
from capsviz.nn import models
from capsviz.statistics.estimate import Estimate
from capsviz.tracing import scores

CLASSES = ["a", "b", "c"]
LABELS = torch.tensor([0, 1, 2, 0, 1])


def one(network, image, label=None, **options):
    return OneImage().measure(network, image, label, classes=CLASSES, steps=3, **options)


def over(network, images, labels=LABELS, **options):
    about = {"classes": CLASSES, "dataset": "noise"}
    return OverImages().measure(network, images, labels, **about, steps=3, **options)


@pytest.fixture
def model():
    return build_strong()


@pytest.fixture
def images(generator):
    images = torch.rand(5, 1, 21, 19, generator=generator)
    return images * (images > 0.5)


def test_one_image_is_judged_by_the_predicted_class_or_the_true_one(model, images):
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


def test_statistics_are_means_of_images_and_paired_with_the_random_order(model, images):
    result = over(model, images)
    alone = [one(model, images[[i]], int(LABELS[i])) for i in range(5)]
    assert result.names == alone[0].names and result.n == 5
    for m, name in enumerate(result.names):
        if name in (maps.ROUTED, maps.BRIGHTNESS, maps.CHILDREN):  # others have ties
            mean = np.mean([each.deletion_area[m] for each in alone])
            assert result.deletion.value[m] == pytest.approx(mean, rel=1e-4)
            for k, kind in enumerate(("deletion", "insertion")):
                mean = np.mean([getattr(each, kind)[m] for each in alone], 0)
                np.testing.assert_allclose(result.curves.value[k, m], mean, rtol=1e-4)
    gap = result.insertion.value - result.deletion.value
    np.testing.assert_allclose(result.gap.value, gap, atol=1e-6)
    np.testing.assert_allclose(result.gap.difference.value, gap - gap[0], atol=1e-6)
    routed = gap[result.names.index(maps.ROUTED)]
    np.testing.assert_allclose(result.routed_less.value, routed - gap, atol=1e-6)
    assert result.sanity.value.shape == (len(result.names), 3)
    assert result.sanity.n == 5 and result.stages[-1] == "conv1"
    np.testing.assert_allclose(result.sanity.value[1], 1)


def test_the_network_is_left_as_it_was(model, images):
    before = [weight.clone() for weight in model.parameters()]
    model.train()
    one(model, images[:1])
    assert model.training and all(weight.requires_grad for weight in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.fixture
def two_draws(monkeypatch):
    """Maps under two draws of random weights, where how many there are does not matter."""
    monkeypatch.setattr(measure, "DRAWS", 2)


@pytest.mark.usefixtures("two_draws")
def test_equal_seeds_give_equal_numbers_and_images_may_be_on_another_device(model, images):
    first = over(model, images)
    again = over(model, *elsewhere(images, LABELS))
    assert results.to_json(first) == results.to_json(again)
    other = over(model, images, seed=1)
    assert not same(first.gap, other.gap)
    random = first.names.index(maps.RANDOM)
    assert (first.deletion.value[random] != other.deletion.value[random]).any()


def test_a_faithful_map_is_better_than_brightness_and_one_that_is_not_is_named(generator):
    model, images = Exact(), torch.rand(30, 1, 4, 5, generator=generator)
    result = over(model, images, torch.zeros(30).long())
    of = dict(zip(result.names, result.infidelity.value, strict=True))
    assert of[maps.ROUTED] < 1e-6 and of[maps.BRIGHTNESS] > 0.01
    text = OverImages().verdict(result)
    assert ", more faithful than the order by bright" in text and "knows nothing" not in text
    assert "not clearly more faithful than uniform" in text  # its couplings are uniform
    less = result.routed_less
    around = Estimate(less.value * 0, less.ci95 * 0 + [-1, 1], less.n)
    text = OverImages().verdict(result._replace(routed_less=around))
    assert "not shown to be better than an order that knows nothing" in text
    behind = Estimate(less.value - 1, less.ci95 - 1, less.n)
    text = OverImages().verdict(result._replace(routed_less=behind))
    assert ", less faithful than the order by bright" in text and "knows nothing" in text


@pytest.mark.usefixtures("two_draws")
def test_images_of_which_no_square_changes_the_score_are_left_out(model, images):
    images[0] = 0
    result = over(model, images)
    assert result.infidelity.n == 4 and np.isfinite(result.infidelity.value).all()
    images[:4] = 0
    result = over(model, images)
    assert np.isnan(result.infidelity.value).all()


@pytest.mark.usefixtures("two_draws")
def test_figures_stay_on_the_page_and_are_redrawn_from_their_numbers(model, images, tmp_path):
    with torch.random.fork_rng():
        plain = models.build("cnn", (1, 21, 19), 3, channels=(4,), hidden=(8,)).eval()
    for result in (
        one(model, images[:1], 1),
        over(model, images),
        over(plain, images),
    ):
        assert_redrawn("faithfulness", result, tmp_path)


def test_the_command_writes_figures_and_numbers(analyse, tmp_path):
    done = analyse("faithfulness", "--digit", "9")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "faithfulness-digits-9-0.svg").exists()
    done = analyse("faithfulness", "--n", "4", "--steps", "3", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["n"] == 4


def test_without_captum_one_line_says_how_to_install_it(analyse, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    monkeypatch.setitem(sys.modules, "captum", None)
    done = analyse("faithfulness")
    assert done.exit_code == 1 and "pip install captum" in done.output
    assert not list(tmp_path.iterdir())
