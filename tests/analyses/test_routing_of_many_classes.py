"""Figures of `routing` where classes are many, or few with long names: all can be read."""

import pytest
import torch
from helpers.legibility import defects
from helpers.plain_capsnet import Foreign

from capsviz import results
from capsviz.analyses import routing


@pytest.fixture(scope="module")
def images():
    return torch.rand(24, 1, 28, 28, generator=torch.Generator().manual_seed(0))


def results_of(images, count):
    """One image's, and the statistics', by a network of so many classes with long names."""
    torch.manual_seed(0)
    model = Foreign(classes=count).eval()
    names = [f"very long class name number {k:02d}" for k in range(count)]
    labels = torch.arange(len(images)) % count
    one = routing.compute(model, images[:1], 0, classes=names)
    return one, routing.evaluate(model, images, labels, classes=names, dataset="folder")


@pytest.mark.parametrize("width", [3.25, 5.5, 6.75])
@pytest.mark.parametrize("count", [2, 10, 22])
def test_long_names_of_classes_stand_apart(images, count, width):
    one, many = results_of(images, count)
    for result, part in ((one, ""), (many, ""), (many, "couplings")):
        drawn = results.draw("routing", result, width, part)
        assert not defects(drawn, width, results.caption("routing", result, part)), part


def test_the_legend_of_activations_is_no_point_of_theirs(images):
    one, _ = results(images, 2)
    drawn = results.draw("routing", one, 6.75)
    assert not any(axes.get_legend() for axes in drawn.subfigs[1].axes)
    (legend,) = drawn.subfigs[1].legends
    drawn.draw_without_rendering()
    box = legend.get_window_extent()
    assert not any(box.overlaps(axes.get_window_extent()) for axes in drawn.subfigs[1].axes)
