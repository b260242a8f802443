"""Binding: scores are correct in cases with a known answer."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.wrappable_capsnet import Gray
from matplotlib.figure import Figure

import capsviz
from capsviz import results
from capsviz.analyses.binding import Binding, Result, draw, measure
from capsviz.data import assemblies
from capsviz.experiments import wholes as truth
from capsviz.nn import models
from capsviz.statistics.detection import auroc
from capsviz.tracing import from_children

OPTIONS = {"parts": 2, "rotation": 30, "distance": "far", "distractors": 1, "jitter": 0.5}
APART = assemblies.APART_PX["far"]
FIGURES = Path(__file__).parents[2] / "figures"


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    options = {"channels": 4, "types": 2, "reconstruction_weight": 0}
    network = models.build("capsnet", (1, 64, 64), 10, **options).eval()
    network.card = {}
    return network


@pytest.fixture
def few(monkeypatch):
    """Use few images for maps, rotations and shifts."""
    monkeypatch.setattr(measure, "SERIES", 4)
    monkeypatch.setattr(measure, "MAPPED", 4)


@pytest.fixture(scope="module")
def one():
    return assemblies.make("test", 40, **OPTIONS)


@pytest.fixture(scope="module")
def two():
    return assemblies.make("test", 60, objects=2, **OPTIONS)


def test_a_whole_with_its_second_part_rotated_is_its_partner(one):
    other = truth.rotated(one)
    for made, classes in ((one, one.classes[:, 0]), (other, truth.partner(one.classes[:, 0]))):
        for n, index in enumerate(classes):
            kinds, layout = assemblies.arrangement(int(index), 2, APART)
            assert torch.equal(made.part_types[n, :2], kinds)
            turn = made.part_poses[n, :2, 2] - layout[:, 2] - made.poses[n, 0, 2]
            away = torch.remainder(turn + math.pi, 2 * math.pi) - math.pi
            assert away.abs().max() <= 0.5 / assemblies.RADIUS_PX + 1e-5


def test_fields_are_equal_where_all_their_pixels_are(network, one):
    grid, other = truth.grid_of(network), truth.rotated(one)
    same = truth.same_field(one.images, other.images, grid)
    for n, row, column in ((0, 0, 0), (1, 11, 12), (2, 5, 20), (3, 12, 7), (4, 23, 23)):
        down, across = network.receptive_field(row, column)
        equal = torch.equal(one.images[n, :, down, across], other.images[n, :, down, across])
        assert bool(same[n, row, column]) == equal
    assert 0.3 < same.double().mean() < 0.99


def test_true_poses_bind_and_types_alone_do_not(one, two):
    right = {poses: measure.of_truth(two, 2, APART, poses) for poses in (True, False)}
    assert (np.nanmean(right[True], 1) > 0.99).all()
    np.testing.assert_allclose(np.nanmean(right[False][1:], 1), 0.5, atol=0.03)
    change = measure.true_context(one, 2, APART, True)
    assert (change[0] == 0).all() and (change[-1] > 0).all()
    assert (np.abs(measure.true_context(one, 2, APART, False)) <= 1e-5).all()


def test_the_ground_truth_scores_1_and_its_opposite_0(network, two):
    grid = truth.grid_of(network)
    seen = measure.see(two, grid)
    whole = seen.whole.double()
    for sign, expected in ((-1, 1), (1, 0)):
        areas = measure.right(sign * whole, *seen, two)
        assert np.nanmin(areas) == np.nanmax(areas) == expected
    assert np.nanmean(measure.right(torch.zeros_like(whole), *seen, two)) == 0.5


def test_aurocs_are_computed_per_image():
    draw = torch.Generator().manual_seed(0)
    values, side = torch.randn(30, 40, generator=draw), torch.randint(3, (30, 40), generator=draw)
    values = values.round()  # with ties
    values[:, :3], side[0] = math.nan, 1
    found = measure._areas(values, side == 0, side == 1)
    assert math.isnan(found[0]) and np.isfinite(found).sum() > 20
    for one, area, at in zip(values[1:], found[1:], side[1:], strict=True):
        second, first = (one[(at == k) & one.isfinite()].double().numpy() for k in (1, 0))
        assert area == pytest.approx(auroc(second, first), abs=1e-12)


@pytest.mark.usefixtures("few")
def test_an_untrained_network_is_at_chance_and_its_children_are_equal(network):
    result = Result(**measure.evaluate(network, 24, OPTIONS, 0))
    low, high = result.assignment.ci95[result.scored.index("coupling"), 0]
    assert low < 0.5 < high
    assert result.unequal == 0
    assert (result.follows.value[:2, 0] == 0.5).all()
    assert result.example_true.shape == tuple(network.grid[1:])
    assert len(result.maps) == len(result.relevance.value)


def test_captions_name_the_number_of_images_of_each_panel():
    result, _ = results.read_result(FIGURES / "binding-assemblies-300-images-far.json")
    heading, caption = Binding().heading, Binding().caption
    assert "300 images" in heading(result) and "over 300 images" in caption(result)
    assert "50 images" in heading(result, "relevance")
    assert "over 50 images of assemblies" in caption(result, "relevance")
    said = caption(result, "geometry")
    assert "of 100 images is rotated" in said and "of 300 images inside and 300 outside" in said
    assert "over these images" in said and "over 300" not in said
    assert "300" not in heading(result, "geometry")


@pytest.mark.parametrize("degrees", [30, 60])
def test_the_limit_of_training_is_drawn_between_its_bins(degrees):
    result, _ = results.read_result(FIGURES / "binding-assemblies-300-images-far.json")
    axes = Figure().subplots()
    draw.by_angle(axes, result._replace(rotation=degrees))
    (limit,) = (line for line in axes.lines if line.get_linestyle() == ":")
    assert limit.get_xdata()[0] == degrees / 30 - 0.5  # bins of 30 degrees from 0 on


def test_the_effect_of_a_position_is_what_its_class_loses(network, one):
    images = one.images[:2] / 255
    keep = ("children", "child_activations", "couplings", "lengths")
    traced, wanted = capsviz.trace(network, images, keep=keep), torch.ones(2, 24, 24).bool()
    found = measure.effects(network, traced, torch.tensor([3, 7]), wanted)
    children, couplings = traced.require("children"), traced.require("couplings")[-1]
    place = 5 * 24 + 8  # a fourth one
    at = torch.arange(children.shape[1]) % 576 == place
    less = children[1].clone()
    less[at] = children.mean(0)[at]
    active = traced.require("child_activations")[1].clone()
    active[at] = traced.require("child_activations").mean(0)[at]
    left = from_children(network, less[None], active[None])[0, 7]
    expected = float(traced.require("lengths")[1, 7] - left)
    assert float(found[measure.REMOVED][1, 5, 8]) == pytest.approx(expected, abs=1e-6)
    mixed = couplings[1].clone()
    mixed[at] = couplings[0][at]
    pair = torch.stack([couplings[1], mixed])
    whole, left = from_children(network, children[1:].expand(2, -1, -1), couplings=pair)[:, 7]
    expected = float(whole - left)
    assert float(found[measure.GIVEN][1, 5, 8]) == pytest.approx(expected, abs=1e-6)
    assert found[measure.GIVEN].isfinite().double().mean() == 1 / measure.TRIED


@pytest.mark.usefixtures("few")
def test_a_wrapped_network_can_be_scored():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        own = Gray(kernel=17, stride=8, children=36)
    network = capsviz.wrap(own, image_shape=(1, 64, 64), classes=10)
    result = Result(**measure.evaluate(network, 16, OPTIONS, 0))
    assert result.example_true.shape == (6, 6)
    assert result.unequal == 0 and result.follows.value[0, 0] == 0.5
