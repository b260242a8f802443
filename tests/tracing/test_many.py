"""Many images: which class is read, and where none is; where positions lie, and their names."""

import torch

from capsviz.tracing import extent
from capsviz.tracing.many import winners
from capsviz.tracing.network import children_words


def test_the_largest_activation_is_read_and_none_where_another_is_as_large():
    rows = torch.tensor([[0.1, 0.3, 0.2], [0.3, 0.1, 0.3], [0.0, 0.0, 0.0], [2e-9, 1e-9, 1e-9]])
    assert winners(rows).tolist() == [1, -1, -1, 0]
    assert winners(rows[None]).shape == (1, 4)
    close = torch.tensor([[0.5, 0.5 * (1 - 1e-7)], [0.5, 0.5 * (1 - 1e-5)]]).double()
    assert winners(close).tolist() == [-1, 0]
    assert winners(torch.tensor([[0.2]])).tolist() == [0]


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
