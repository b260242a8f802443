"""Parts of a trace in given axes show the trace's values at the right positions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import noise_images
from helpers.fixtures import build_matrix
from helpers.plain_capsnet import Foreign
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure

import capsviz
from capsviz import plot
from capsviz.results import maps
from capsviz.tracing import extent

model = noise_images.model


@pytest.fixture
def trace(model, tiny_images):
    return capsviz.trace(model, tiny_images)


@pytest.fixture
def axes():
    return Figure(figsize=(3.5, 3)).subplots()


def values(axes):
    """Return the array of the image that was drawn last."""
    return np.asarray(axes.images[-1].get_array())


def test_couplings_are_the_means_over_the_positions_of_a_type(trace, axes):
    assert plot.couplings(trace, 3, iteration=1, axes=axes) is axes
    expected = trace.couplings[1, 3].reshape(2, 6, 3).mean(1).T
    np.testing.assert_allclose(values(axes), expected, atol=1e-7)
    assert axes.images[0].norm.vcenter == pytest.approx(1 / 3)
    assert axes.get_title() == "iteration 2 of 3"


def test_uniform_couplings_are_labelled_and_in_the_middle_of_the_scale(trace, axes):
    even = replace(trace, couplings=torch.full_like(trace.couplings, 1 / 3) + 1e-8)
    plot.couplings(even, axes=axes)
    norm = axes.images[0].norm
    assert axes.get_title() == "iteration 3 of 3: uniform"
    assert np.allclose(norm(values(axes)), 0.5, atol=1e-3)
    plot.couplings(replace(even, couplings=torch.ones_like(trace.couplings)), axes=axes)
    assert axes.get_title().endswith("uniform") and axes.images[-1].norm.vcenter == 1  # max-min
    plot.couplings(trace, spread=0.25, axes=axes)
    assert axes.images[-1].norm.vmax == pytest.approx(1 / 3 + 0.25)


def test_children_without_a_grid_are_drawn_one_by_one(trace, axes):
    plot.couplings(replace(trace, grid=None), axes=axes, classes=["a", "b", "c"])
    np.testing.assert_array_equal(values(axes), trace.couplings[-1, 0].T)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c"]


def test_classes_have_the_names_of_the_networks_card(model, tiny_images, axes):
    model.card = {"dataset": {"classes": ["bolt", "nut", "washer"]}}
    known = capsviz.trace(model, tiny_images[:1])
    plot.couplings(known, axes=axes)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["bolt", "nut", "washer"]
    assert "evidence for nut, " in plot.evidence(known, parent=1, axes=axes).get_title()
    model.card["dataset"]["classes"].pop()  # of another network
    assert capsviz.trace(model, tiny_images[:1]).classes is None


def test_evidence_sums_to_the_input_of_the_class_and_is_drawn_at_its_positions(trace, model, axes):
    plot.evidence(trace, 2, parent=1, axes=axes)
    total = torch.einsum("ij,ije->je", trace.couplings[-1, 2], trace.votes[2])[1]
    along = total @ torch.nn.functional.normalize(trace.poses[-1, 2, 1], dim=0)
    assert values(axes).sum() == pytest.approx(float(along), rel=1e-4)
    assert values(axes).shape == model.grid[1:]
    assert list(axes.images[-1].get_extent()) == extent(model) == list(trace.extent)
    assert axes.get_xlim() == (-0.5, 18.5) and axes.get_ylim() == (20.5, -0.5)  # 21 x 19 px


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_below_opaque_cells_is_visible_by_its_outline(channels, axes):
    image = np.zeros((channels, 20, 30))
    image[:, 5:15, 5:15] = 1
    maps.one_map(axes, image, (-0.5, 29.5, 19.5, -0.5), np.ones((2, 3)), CenteredNorm(0, 1))
    assert [round(x) for x in axes.collections[0].get_paths()[0].get_extents().size] == [10, 10]


def test_without_axes_a_pyplot_figure_is_made(trace):
    from matplotlib import pyplot

    made = plot.couplings(trace, colorbar=False)
    assert made.figure.number in pyplot.get_fignums()
    pyplot.close(made.figure)


def test_missing_parts_of_a_trace_are_named(trace, axes):
    with pytest.raises(ValueError, match=r"no votes: ask for it with keep="):
        plot.evidence(replace(trace, votes=None), axes=axes)
    with pytest.raises(ValueError, match="no positions on the image"):
        plot.evidence(replace(trace, extent=None), axes=axes)
    with pytest.raises(ValueError, match="this layer is local"):
        plot.couplings(replace(trace, links=object()), axes=axes)
    with pytest.raises(ValueError, match="names of 3 classes, got 2"):
        plot.couplings(trace, axes=axes, classes=["a", "b"])
    for wrong in ({"index": 8}, {"iteration": 3}):
        with pytest.raises(IndexError, match="expected -"):
            plot.couplings(trace, axes=axes, **wrong)
    with pytest.raises(IndexError, match="class 3"):
        plot.evidence(trace, parent=3, axes=axes)


def test_a_network_that_shares_no_layer_with_ours_is_drawn_too(tiny_images, axes):
    foreign = Foreign((1, 21, 19), classes=3, grid=(2, 3, 2)).eval()
    plot.evidence(capsviz.trace(foreign, tiny_images), axes=axes)
    assert values(axes).shape == (3, 2)


def test_evidence_of_em_is_its_own_decomposition_also_at_a_position_of_a_lower_layer(
    tiny_images, axes
):
    model = build_matrix(types=(2, 3, 3), iterations=2)
    local = capsviz.trace(model, tiny_images[:2], layer=0)
    plot.evidence(local, 1, parent=2, position=3, axes=axes)
    assert values(axes).shape == local.grid[1:]
    expected = local.evidence[-1, 1, 3, :, 2].sum()
    assert values(axes).sum() == pytest.approx(float(expected), rel=1e-4)
    assert "for 2 at position 3," in axes.get_title()
    assert "lambda" in axes.figure.axes[-1].get_ylabel()
    with pytest.raises(ValueError, match="position 99: expected 0 to"):
        plot.evidence(local, position=99, axes=axes)
