"""Capsules above capsules: windows, matrix poses, coordinates, any routing."""

from inspect import signature

import pytest
import torch
from helpers.random_tensors import B, draw
from helpers.routing_cases import close

from capsviz.nn import routing
from capsviz.nn.capsule_layer import CapsuleLayer, coordinates_of
from capsviz.nn.computation import literal

GRID, J = (2, 4, 5), 3  # 40 children
COUNT = 40
VECTOR = {"child_pose": (4,), "parent_pose": (6,)}
MATRIX = {"child_pose": (4, 2), "parent_pose": (4, 3)}
POSES = pytest.mark.parametrize("poses", [VECTOR, MATRIX], ids=["vector", "matrix"])
ALONE = [  # places do not compete for children, so the border is felt at the border alone
    name
    for name in routing.available()
    if "links" not in signature(routing.get(name).route).parameters
]
every_routing = pytest.mark.parametrize("name", routing.available())


def layer(*, seed=0, **options):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layer_ = CapsuleLayer(GRID, J, **{**VECTOR, "std": 0.5, **options}).double()
        for parameter in layer_.learned.values():
            parameter.data += 0.3 * torch.randn_like(parameter)
        return layer_


def children(layer_, count=COUNT, batch=B):
    return draw(
        batch, count, layer_.child_pose[0] * layer_.child_pose[-1] ** (layer_.child_pose[1:] != ())
    )


def active(count=COUNT):
    return draw(B, count, seed=3).sigmoid()


@every_routing
@POSES
@pytest.mark.parametrize("coordinates", [False, True])
def test_a_fully_connected_layer_is_routing_on_its_votes(name, poses, coordinates):
    layer_ = layer(routing=name, coordinates=coordinates, **poses)
    actual = layer_(children(layer_), active())
    votes, routed = layer_.route(children(layer_), active())
    assert votes.shape == (B, COUNT, J, torch.Size(layer_.pose_shape).numel())
    close(actual.poses, routed.poses[-1])
    close(actual.activations, routed.activations[-1])
    with literal():
        close(layer_(children(layer_), active()).poses, actual.poses)


@every_routing
@POSES
def test_a_convolutional_layer_gives_parents_by_type_and_place(name, poses):
    layer_ = layer(routing=name, kernel=3, stride=1, **poses)
    assert layer_.grid == (J, 2, 3)
    actual = layer_(children(layer_), active())
    _, routed = layer_.route(children(layer_), active())
    E = torch.Size(layer_.pose_shape).numel()
    assert actual.poses.shape == (B, J * 2 * 3, E) and actual.activations.shape == (B, J * 2 * 3)
    for kind, row, column in [(0, 0, 0), (2, 1, 0), (1, 0, 2)]:
        parent = (kind * 2 + row) * 3 + column
        close(actual.poses[:, parent], routed.poses[-1, :, row * 3 + column, kind])
        close(actual.activations[:, parent], routed.activations[-1, :, row * 3 + column, kind])


def test_a_matrix_pose_stands_left_of_its_weight():
    layer_ = layer(**MATRIX)
    poses = children(layer_)
    votes, _ = layer_.route(poses)
    M, W = poses[1, 7].view(4, 2), layer_.weight[7, 2].T  # 2 x 3
    close(votes[1, 7, 2].view(4, 3), M @ W)


def test_places_of_a_convolutional_layer_share_their_matrices():
    layer_ = layer(kernel=2, stride=1)
    poses = children(layer_)
    votes, _ = layer_.route(poses)
    assert layer_.weight.shape == (2 * 4, J, 6, 4)
    q, kind, y, x = 1 * 4 + 2, 1, 1, 0  # the place at row 1, column 2
    child = (kind * 4 + 1 + y) * 5 + 2 + x
    slot = (kind * 2 + y) * 2 + x
    close(votes[0, q, slot, 1], layer_.weight[slot, 1] @ poses[0, child])


@pytest.mark.parametrize("name", ALONE)
def test_an_image_moved_by_the_stride_gives_parents_moved_by_a_place(name):
    layer_ = layer(routing=name, kernel=2, stride=1, **MATRIX)
    image, presence = children(layer_).view(B, *GRID, 8), active().view(B, *GRID)
    moved = image.roll(1, 3), presence.roll(1, 3)
    plain = layer_(image.flatten(1, 3), presence.flatten(1)).poses.view(B, *layer_.grid, 12)
    after = layer_(moved[0].flatten(1, 3), moved[1].flatten(1)).poses.view(B, *layer_.grid, 12)
    close(after[:, :, :, 1:], plain[:, :, :, :-1])


def test_coordinates_are_the_middle_of_a_place_in_the_right_hand_column():
    added = coordinates_of((2, 4, 5), (4, 4)).view(2, 4, 5, 4, 4)
    assert added[1, 0, 4, 0, 3].item() == pytest.approx(0.5 / 4)
    assert added[1, 0, 4, 1, 3].item() == pytest.approx(4.5 / 5)
    assert added.count_nonzero().item() == 2 * 4 * 5 * 2
    assert coordinates_of((1, 2, 2), (6,))[3].tolist() == [0.75, 0.75, 0, 0, 0, 0]


def test_coordinates_do_not_depend_on_who_asked_first():
    torch.set_default_dtype(torch.float64)
    try:
        found = coordinates_of((1, 3, 7), (4, 4))
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype == torch.float32 == coordinates_of((1, 3, 7), (4, 4)).dtype


def test_coordinates_are_added_to_votes_and_move_em_poses_alone():
    plain, placed = layer(routing="em", **MATRIX), layer(routing="em", coordinates=True, **MATRIX)
    votes, _ = plain.route(children(plain), active())
    moved, _ = placed.route(children(placed), active())
    close(moved - votes, placed.coordinates.double()[None, :, None].expand_as(votes))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"child_pose": (4, 4), "parent_pose": (16,)},
            r"matrices with equally many rows, got \(4, 4\)",
        ),
        ({"final_temperature": 1.0}, "'dynamic' has no option 'final_temperature'"),
        ({"kernel": 5}, "fits into 4 x 5 positions"),
        ({"coordinates": True, "parent_pose": (1,)}, "two entries of a pose"),
    ],
)
def test_what_does_not_fit_is_refused(options, match):
    with pytest.raises(ValueError, match=match):
        layer(**options)


@pytest.mark.parametrize("shape", [(2, 18, 1), (2, 1, 4)])
def test_children_of_another_shape_are_refused_with_couplings_too(shape):
    layer, even = CapsuleLayer((2, 3, 3), 3, child_pose=(4,), parent_pose=(5,)), torch.ones(18, 3)
    for refuses in (layer.route, layer.couple):
        with pytest.raises(ValueError, match=r"expected children \(B, 18, 4\)"):
            refuses(torch.rand(shape), couplings=even)
