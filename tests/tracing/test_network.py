"""What a network offers, as `abilities` answers it, and how often it is verified."""

from conftest import build_tiny
from helpers.plain_capsnet import Foreign
from torch import nn

from capsviz.nn import models
from capsviz.tracing import abilities, extent
from capsviz.tracing.needs import missing
from capsviz.tracing.network import children_words


def test_our_own_network_has_every_part():
    able = abilities(build_tiny())
    assert able.has_capsules and able.decodes and able.routes_again
    assert able.replaceable_couplings and able.replaceable_iterations and able.replaceable_children
    assert able.grid == (2, 3, 2) and able.grids == ((2, 3, 2),) and able.has_receptive_fields
    assert able.routing == "dynamic" and able.image_shape == (1, 21, 19) and able.classes == 3
    assert able.pose_shape is None and able.parts is None and able.gives("votes")


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


class Padded:
    """5 positions, each of 7 pixels, every 4 pixels of 17, from 3 pixels before the border."""

    grid = (2, 5, 5)

    def look(self, images, *, keep):
        raise AssertionError("nothing is computed")

    def receptive_field(self, row, column):
        return tuple(slice(max(0, 4 * k - 3), min(17, 4 * k + 4)) for k in (row, column))


def test_positions_cut_off_at_the_border_lie_a_step_from_the_others():
    assert extent(Padded()) == [-2, 18, 18, -2]


def test_children_of_the_classes_are_primary_capsules_where_one_layer_is_routed():
    assert children_words(Padded()) == "primary capsules"
    several = Padded()
    several.grids = [(2, 5, 5), (2, 3, 3)]
    assert children_words(several) == "capsules below the classes"
