"""What a network offers, as `abilities` answers it, and how often it is verified."""

from conftest import build_tiny
from helpers.plain_capsnet import Foreign
from torch import nn

from capsviz.nn import models
from capsviz.tracing import abilities
from capsviz.tracing.needs import missing


def test_our_own_network_has_every_part():
    able = abilities(build_tiny())
    assert able.has_capsules and able.decodes and able.routes_again
    assert able.replaceable_couplings and able.replaceable_iterations and able.replaceable_children
    assert able.grid == (2, 3, 2) and able.grids == ((2, 3, 2),) and able.has_receptive_fields
    assert able.routing == "dynamic" and able.image_shape == (1, 21, 19) and able.classes == 3
    assert able.pose_shape is None and able.parts is None and able.gives("votes")


def test_several_layers_have_a_grid_each_and_matrices_a_shape():
    model = models.build("matrix_capsnet", (1, 20, 20), 3, types=(2, 3, 4), channels=5)
    able = abilities(model)
    assert able.grids == tuple(model.grids) and able.grid == model.grid
    assert able.pose_shape == (4, 4) and able.routing == "em"
    assert not able.decodes and not able.routes_again


def test_a_network_without_capsules_offers_no_part_of_a_trace():
    model = models.build("average", (1, 21, 19), 3, channels=(2, 2), kernel=3)
    able = abilities(model)
    assert not able.has_capsules and not able.decodes and not able.gives("poses")
    assert able.grid is None and able.classes == 3 and able.name == "AverageConvNet"
    assert missing(model, ("poses",)) == ["capsules"] and missing(model, ()) == []


def test_what_a_look_does_not_take_cannot_be_replaced():
    class Fixed(nn.Module):
        def look(self, images, *, keep, iterations=None):
            return {}

    able = abilities(Fixed())
    assert able.replaceable_iterations and not able.replaceable_couplings
    assert not (able.replaceable_children or able.decodes)
    needs = ("couplings", "interventions", "decode", "grid", "from_children")
    assert missing(Fixed(), needs) == ["interventions", "decode", "grid", "from_children"]


def test_a_network_says_which_parts_it_gives_and_what_can_be_replaced():
    model = Foreign()
    model.parts, model.replaceable = {"primary", "lengths"}, {"children"}
    able = abilities(model)
    assert able.gives("children") and able.gives("last") and not able.gives("votes")
    assert able.replaceable_children and not able.replaceable_couplings
