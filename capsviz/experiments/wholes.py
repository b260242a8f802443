"""Pairs and series of `assemblies` images, and what each position of a network sees of them."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from capsviz.data import assemblies
from capsviz.data.assemblies import Assemblies
from capsviz.nn import routing
from capsviz.tracing import abilities

FEATURES = 512  # dimensions of a vote from true poses
PART = 1  # index of the part of the first whole that is rotated or moved
STEP_PX, STEP_RAD = 3.0, 0.5  # distances of poses at which the product of such votes is 0.6


class Grid(NamedTuple):
    """Positions of primary capsules on the image."""

    centres: Tensor  # (rows, columns, 2) x and y in px
    field_px: int  # side of a receptive field


def grid_of(model) -> Grid:
    """Return the positions of a network; ValueError for a single one, or for other images."""
    expected = (1, assemblies.SIDE, assemblies.SIDE)
    shape, count = tuple(model.config["image_shape"]), model.config["classes"]
    if shape != expected or count != len(assemblies.CLASSES):
        raise ValueError(
            f"binding needs a network for images {expected} and {len(assemblies.CLASSES)} classes, "
            f"as in the data set assemblies, got {shape} and {count}"
        )
    grid = abilities(model).grid
    if grid is None or grid[1] * grid[2] < 2 or not abilities(model).has_receptive_fields:
        raise ValueError(
            "binding needs primary capsules at several positions with known receptive fields"
        )
    _, rows, columns = grid
    fields = [[model.receptive_field(r, c) for c in range(columns)] for r in range(rows)]
    edges = torch.tensor(
        [[[(s.start, s.stop) for s in one[::-1]] for one in row] for row in fields]
    )
    field_px = int(edges[..., 0, :].diff().max())  # edges (rows, columns, x and y, both ends)
    if field_px >= assemblies.SIDE:
        raise ValueError("every position of this network sees the whole image")
    return Grid(edges.double().mean(-1), field_px)


def rotated(made: Assemblies, by: Tensor | float = math.pi) -> Assemblies:
    """Rotate one part of the first whole about its centroid, in radians; π gives the partner's."""
    poses = made.part_poses.clone()
    poses[:, PART, 2] += by
    return _drawn(made, poses)


def moved(made: Assemblies, by_px: float) -> Assemblies:
    """Move one part of the first whole away from the whole's centre."""
    poses = made.part_poses.clone()
    away = poses[:, PART, :2] - made.poses[:, 0, :2]
    poses[:, PART, :2] += by_px * torch.nn.functional.normalize(away, dim=1)
    return _drawn(made, poses)


def inside(made: Assemblies) -> Tensor:
    """Return which images contain the changed part completely: (N,) bool."""
    centre, reach = made.part_poses[:, PART, :2], assemblies.RADIUS_PX * assemblies.REACH
    room = assemblies.SIDE - 1 - reach * made.part_poses[:, PART, 3:]
    return ((centre >= reach) & (centre <= room)).all(1)


def _drawn(made: Assemblies, poses: Tensor) -> Assemblies:
    images = assemblies.render(made.part_types, poses, made.part_brightness)
    return made._replace(images=images, part_poses=poses)


def partner(classes: Tensor) -> Tensor:
    """Return the class with the same parts."""
    return classes ^ 1


def same_field(one: Tensor, other: Tensor, grid: Grid) -> Tensor:
    """Return which positions see the same pixels in both images: (N, rows, columns) bool."""
    apart = (one != other).any(1).double()
    low = (grid.centres - grid.field_px / 2).floor().long()
    high = (grid.centres + grid.field_px / 2).ceil().long()
    return assemblies.box_sums(apart, low, high) == 0


def true_votes(made: Assemblies, parts: int, apart_px: float, *, poses: bool = True) -> Tensor:
    """Return the votes (N, P, J, E) of parts for wholes, from their true types and poses.

    A vote encodes the pose of the whole that the part implies. The inner product of two votes falls
    from 1 to 0 with the distance of their poses. A part votes 0 for a class without its type.
    Without `poses`, votes depend on the type alone.
    """
    N, P = made.part_types.shape
    draw = torch.Generator().manual_seed(0)
    directions = torch.randn(4, FEATURES, generator=draw)  # random Fourier features of a Gaussian
    offsets = 2 * math.pi * torch.rand(FEATURES, generator=draw)
    votes = torch.zeros(N, P, len(assemblies.CLASSES), FEATURES)
    x, y, angle, size = made.part_poses.unbind(-1)
    for j in range(len(assemblies.CLASSES)):
        for kind, own in zip(*assemblies.arrangement(j, parts, apart_px), strict=True):
            cos, sin = (angle - own[2]).cos(), (angle - own[2]).sin()
            across, down = cos * own[0] - sin * own[1], sin * own[0] + cos * own[1]
            moved = (x - size * across) / STEP_PX, (y - size * down) / STEP_PX
            pose = torch.stack([*moved, cos / STEP_RAD, sin / STEP_RAD], -1)
            pose = pose if poses else torch.zeros_like(pose)
            wave = (pose @ directions + offsets).cos() * math.sqrt(2 / FEATURES)
            votes[:, :, j] = wave.where((made.part_types == kind)[..., None], votes[:, :, j])
    return votes


def routed(votes: Tensor) -> Tensor:
    """Return the couplings (R, N, P, J) of dynamic routing over votes."""
    return routing.get("dynamic").route(votes, iterations=3).couplings
