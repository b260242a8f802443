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
from capsviz.analyses import faithfulness
from capsviz.analyses.faithfulness import maps, measure
from capsviz.nn import models
from capsviz.statistics.estimate import Estimate
from capsviz.tracing import scores

CLASSES = ["a", "b", "c"]
SOME = {"classes": CLASSES, "steps": 3}


@pytest.fixture
def model():
    return build_strong()


@pytest.fixture
def images(generator):
    images = torch.rand(5, 1, 21, 19, generator=generator)
    return images * (images > 0.5)


LABELS = torch.tensor([0, 1, 2, 0, 1])


def test_one_image_is_judged_by_the_class_that_is_read_or_the_true_one(model, images):
    read = int(scores(model, images[:1]).argmax())
    result = faithfulness.compute(model, images[:1], (read + 1) % 3, **SOME)
    assert result.target == read and result.label != read
    intact = scores(model, images[:1])[0, read]
    black = scores(model, torch.zeros(1, 1, 21, 19))[0, read]
    for curve, ends in ((result.deletion, (intact, black)), (result.insertion, (black, intact))):
        for k, end in ((0, ends[0]), (-1, ends[1])):
            np.testing.assert_allclose(curve[:, k], float(end), rtol=1e-5)
    other = faithfulness.compute(model, images[:1], (read + 1) % 3, **SOME, target="true")
    assert other.target == (read + 1) % 3
    kept = dict(zip(result.names, result.correlation, strict=True))
    assert np.isnan(kept[maps.RANDOM]) and kept[maps.BRIGHTNESS] == pytest.approx(1)
    with pytest.raises(ValueError, match="true class of this picture is not known"):
        faithfulness.compute(model, images[:1], **SOME, target="true")


def test_statistics_are_means_of_images_and_paired_with_the_random_order(
    model, images, monkeypatch
):
    result = faithfulness.evaluate(model, images, LABELS, dataset="noise", **SOME)
    monkeypatch.setattr(measure, "DRAWS", 1)  # on which nothing else depends
    survey = measure.survey(model, images, LABELS, target="read", steps=3, seed=0)
    assert result.names == survey.names and result.n == 5
    areas = torch.trapezoid(survey.curves, survey.shares)
    np.testing.assert_allclose(result.deletion.value, areas[0].mean(1), rtol=1e-5)
    gap = areas[1] - areas[0]
    np.testing.assert_allclose(result.gap.value, gap.mean(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.gap.difference.value, (gap - gap[0]).mean(1), atol=1e-6)
    routed = result.names.index(maps.ROUTED)
    expected = (gap[routed] - gap).mean(1)
    np.testing.assert_allclose(result.routed_less.value, expected, atol=1e-6)
    np.testing.assert_allclose(result.curves.value, survey.curves.mean(2), rtol=1e-6)
    assert result.sanity.value.shape == (len(result.names), 3)
    assert result.sanity.n == 5 and result.stages[-1] == "conv1"
    np.testing.assert_allclose(result.sanity.value[1], 1)


def test_the_network_is_left_as_it_was(model, images):
    before = [one.clone() for one in model.parameters()]
    model.train()
    faithfulness.compute(model, images[:1], **SOME)
    assert model.training and all(one.requires_grad for one in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.fixture
def two_draws(monkeypatch):
    """Maps under two draws of random weights, where how many there are does not matter."""
    monkeypatch.setattr(measure, "DRAWS", 2)


@pytest.mark.usefixtures("two_draws")
def test_equal_seeds_give_equal_numbers_and_images_may_be_on_another_device(model, images):
    chosen = {"dataset": "noise", **SOME}
    first = faithfulness.evaluate(model, images, LABELS, **chosen)
    again = faithfulness.evaluate(model, elsewhere(images)[0], elsewhere(LABELS)[0], **chosen)
    assert results.to_json(first) == results.to_json(again)
    other = faithfulness.evaluate(model, images, LABELS, **chosen, seed=1)
    assert not same(first.gap, other.gap)
    random = first.names.index(maps.RANDOM)
    assert (first.deletion.value[random] != other.deletion.value[random]).any()


def test_a_faithful_map_is_called_ahead_and_one_that_knows_no_more_than_ink_is_not(generator):
    model, images = Exact(), torch.rand(30, 1, 4, 5, generator=generator)
    result = faithfulness.evaluate(model, images, torch.zeros(30).long(), dataset="noise", **SOME)
    of = dict(zip(result.names, result.infidelity.value, strict=True))
    assert of[maps.ROUTED] < 1e-6 and of[maps.BRIGHTNESS] > 0.01
    text = faithfulness.findings(result)
    assert "ahead of the order by ink" in text and "knows nothing of the class" not in text
    assert "not told from uniform couplings" in text  # its couplings are uniform
    less = result.routed_less
    around = Estimate(less.value * 0, less.ci95 * 0 + [-1, 1], less.n)
    text = faithfulness.findings(result._replace(routed_less=around))
    assert "not shown to be better than an order that knows nothing" in text
    behind = Estimate(less.value - 1, less.ci95 - 1, less.n)
    text = faithfulness.findings(result._replace(routed_less=behind))
    assert "behind the order by ink" in text and "knows nothing of the class" in text


@pytest.mark.usefixtures("two_draws")
def test_images_of_which_no_square_changes_the_score_are_left_out(model, images):
    images[0] = 0
    result = faithfulness.evaluate(model, images, LABELS, dataset="noise", **SOME)
    assert result.infidelity.n == 4 and np.isfinite(result.infidelity.value).all()
    images[:4] = 0
    result = faithfulness.evaluate(model, images, LABELS, dataset="noise", **SOME)
    assert np.isnan(result.infidelity.value).all() and "random order –" in faithfulness.findings(
        result
    )


@pytest.mark.usefixtures("two_draws")
def test_figures_stay_on_the_page_and_are_redrawn_from_their_numbers(model, images, tmp_path):
    with torch.random.fork_rng():
        plain = models.build("cnn", (1, 21, 19), 3, channels=(4,), hidden=(8,)).eval()
    for result in (
        faithfulness.compute(model, images[:1], 1, **SOME),
        faithfulness.evaluate(model, images, LABELS, dataset="noise", **SOME),
        faithfulness.evaluate(plain, images, LABELS, dataset="noise", **SOME),
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
    assert done.exit_code == 1 and "pip install 'capsviz[attribution]'" in done.output
    assert not list(tmp_path.iterdir())
