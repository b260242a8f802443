"""What is said to `capsviz.wrap` by hand and is wrong is refused in a line, that names which."""

import foreign_networks as zoo
import pytest
import torch
from foreign_networks import CLASSES, SHAPE

import capsviz

SMALL = {"image_shape": SHAPE, "classes": CLASSES}


@pytest.fixture
def images():
    return torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(3))


def refused(said, network=None, **options):
    with pytest.raises(ValueError, match=said) as error:
        capsviz.wrap(network or zoo.Unsqueezed().eval(), **{**SMALL, **options})
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("grid", [(4, 2, 3), (3, 4, 2), (2, 3, 4), (8, 3, 1), (24, 1, 1)])
def test_a_grid_that_puts_capsules_of_several_places_into_one_is_refused(grid):
    said = refused(r"grid \(.*\) is none of these capsules: .* see image", grid=grid)
    assert "found: (2, 4, 3), type by type" in said


@pytest.mark.parametrize("grid", [(-2, -4, 3), (2.0, 4, 3), (True, 8, 3), (2, "4", 3)])
def test_a_grid_of_other_than_whole_positive_numbers_is_refused(grid):
    refused(r"grid= must be \(types, rows, columns\)", grid=grid)


@pytest.mark.parametrize("kind", [zoo.Unsqueezed, zoo.Einsum])
def test_a_grid_by_hand_that_is_right_is_that_of_the_probe(kind, images):
    own, other = (capsviz.wrap(kind().eval(), **SMALL, grid=grid) for grid in ((2, 4, 3), "probe"))
    assert own.grid == other.grid and own.fields == other.fields
    assert capsviz.trace(own, images).votes.equal(capsviz.trace(other, images).votes)


def test_windows_of_two_sizes_are_a_grid_where_it_is_said_so():
    class Wide(zoo.Unsqueezed):
        """Capsules of the second type see a pixel more on each side."""

        def encode(self, x):
            own, wide = self.conv(x), self.conv(torch.nn.functional.avg_pool2d(x, 3, 1, 1))
            u = torch.cat((own[:, :4], wide[:, 4:]), 1).view(len(x), 2, 4, 4, 3)
            return zoo.squash(u.permute(0, 1, 3, 4, 2).reshape(len(x), 24, 4))

    assert capsviz.wrap(Wide().eval(), **SMALL).grid is None
    assert capsviz.wrap(Wide().eval(), **SMALL, grid=(2, 4, 3)).receptive_field(1, 1)[0] == slice(
        1, 8
    )
