"""A layer of capsules above capsules: fully connected or convolutional, vector or matrix poses.

Places of a convolutional layer see the children of a window; in a routing that lets them, all
parents that see a child compete for it (`nn.links`). Poses are flat everywhere; a matrix
M (r, d) is its rows one after the other, and its vote is M W^T for W (e, d): each row is
multiplied as a vector would be.
"""

from math import prod

import torch
from torch import Tensor, einsum, nn

from capsviz.nn.computation import CPU, kept
from capsviz.nn.links import Links, convolution_links, of_slots
from capsviz.nn.routing import Parents
from capsviz.nn.routing_layer import RoutingLayer, initial_matrices


class CapsuleLayer(RoutingLayer):
    """Parents of several types, at one position that sees all children, or at many.

    Parameters
    ----------
    grid                     (types, rows, columns) of the children.
    parents                  J, types of parents.
    child_pose, parent_pose  (D,) and (E,), or (rows, columns) of matrices of as many rows.
    kernel                   K, positions of children that a parent sees in each direction; None:
                             all of them.
    stride                   positions of children from one parent to the next.
    transform                "own": a matrix for each child, or each slot of a window, and parent
                             type. "type": the children of a type share theirs. "shared": all do.
    coordinates              add to votes where their child is (`coordinates`).
    routing, iterations      name of a file in `routing`, and R; None is 3, or 1 of one pass.
    std                      standard deviation of the initial weights; None: `initial_std`.
    options                  more of what the routing takes, as `final_temperature`.

    Raises
    ------
    ValueError  for unknown names, poses or a kernel that do not fit, or iterations of one pass.
    """

    def __init__(
        self,
        grid: tuple[int, int, int],
        parents: int,
        *,
        child_pose: tuple[int, ...] = (8,),
        parent_pose: tuple[int, ...] = (16,),
        kernel: int | None = None,
        stride: int = 1,
        transform: str = "own",
        coordinates: bool = False,
        routing: str = "dynamic",
        iterations: int | None = None,
        std: float | None = None,
        **options,
    ):
        if len(child_pose) != len(parent_pose) or child_pose[:-1] != parent_pose[:-1]:
            raise ValueError(
                "poses must be (D,) and (E,), or matrices of as many rows, got "
                f"{tuple(child_pose)} and {tuple(parent_pose)}"
            )
        types, rows, columns = grid
        window, places = rows * columns, (1, 1)
        if kernel is not None:
            window = kernel**2
            places = convolution_links(tuple(grid), kernel, stride, CPU)[1]  # before an exporter's
        super().__init__(routing, iterations, types * window)
        self.child_grid, self.grid = tuple(grid), (parents, *places)
        self.child_pose, self.pose_shape = tuple(child_pose), tuple(parent_pose)
        self.kernel, self.stride, self.coordinated = kernel, stride, coordinates
        self.parent_types = parents
        size = parents, parent_pose[-1], child_pose[-1]
        self.weight = initial_matrices(transform, types * window, types, size, std)
        numbers = prod(child_pose), prod(parent_pose)
        learned = self.initial(parents, *numbers, hidden=kernel is not None)
        self.learned = nn.ParameterDict(learned)
        if coordinates:
            coordinates_of(self.child_grid, self.pose_shape, CPU)  # refuses poses now
        self.require_options(options, learned)
        self.options |= options

    def forward(self, poses: Tensor, activations: Tensor | None = None, couplings=None) -> Parents:
        """Parents of children (B, count, D): poses (B, J * rows * columns, E), activations.

        Parameters are those of `couple`. Parent (type * rows + row) * columns + column is of that
        type at that position of `grid`.
        """
        return self.by_type(*self.couple(poses, activations, couplings))

    def _fuses(self, children: Tensor) -> bool:
        moved = self.coordinated and "children" in self._takes[self._route]  # reads them unmoved
        return super()._fuses(children) and not moved and not children.is_meta  # without numbers

    def by_type(self, poses: Tensor, activations: Tensor) -> Parents:
        """Parents (B, [Q,] J, ...) type by type, as the next layer's children."""
        if self.links is None:
            return Parents(poses, activations)
        return Parents(*(part.transpose(1, 2).flatten(1, 2) for part in (poses, activations)))

    @property
    def links(self) -> Links | None:  # type: ignore[override]
        """Return what the positions see; None: all children."""
        if self.kernel is None:
            return None
        return convolution_links(self.child_grid, self.kernel, self.stride, self.weight.device)[0]

    @property
    def coordinates(self) -> Tensor | None:
        """Return what is added to votes (children, E); None: nothing."""
        if not self.coordinated:
            return None
        return coordinates_of(self.child_grid, self.pose_shape, self.weight.device)

    def votes(self, poses: Tensor) -> Tensor:
        """Return what each child predicts for each parent: (B, count, D) -> (B, [Q,] I, J, E)."""
        links = self.links
        self.require_children(poses, prod(self.child_grid), prod(self.child_pose))
        rows = poses.unflatten(-1, (-1, self.child_pose[-1]))  # r of each, one of a vector
        votes = einsum("ijed,b...ird->b...ijre", self.matrices(), of_slots(rows, links))
        votes = votes.flatten(-2)
        if self.coordinates is None:
            return votes
        return votes + of_slots(self.coordinates[None].to(votes), links)[..., None, :]

    def _flat(self, poses: Tensor) -> tuple[Tensor, Tensor]:
        """As of any layer, coordinates among them; rows of a matrix pose lie along the diagonal."""
        weight = self.matrices()
        rows = prod(self.child_pose[:-1])
        if rows > 1:
            eye = torch.eye(rows, dtype=weight.dtype, device=weight.device)
            weight = einsum("rs,ijed->ijresd", eye, weight).flatten(4).flatten(2, 3)
        if self.coordinates is None:
            return poses, weight
        places = self.coordinates.to(poses)
        numbers = torch.eye(places.shape[1], dtype=weight.dtype, device=weight.device)
        numbered = list(_numbered(self.pose_shape))
        poses = torch.cat((poses, places[:, numbered].expand(len(poses), -1, -1)), 2)
        added = numbers[:, numbered].expand(*weight.shape[:2], -1, -1)
        return poses, torch.cat((weight, added), 3)


@kept
def coordinates_of(
    grid: tuple[int, int, int], pose: tuple[int, ...], device: torch.device = CPU
) -> Tensor:
    """Return what is added to votes: row and column of each child (types * rows * columns, E).

    They are its middle's, from 0 to 1 of all positions, in the first two entries of the right-hand
    column of a matrix pose (Hinton et al. 2018), or the first two numbers of a vector.
    """
    types, rows, columns = grid
    if pose[0] < 2:
        raise ValueError(f"coordinates are added to two entries of a pose, got the shape {pose}")
    numbers = _numbered(pose)
    added = torch.zeros(types, rows, columns, prod(pose), device=device)
    added[..., numbers[0]] = ((torch.arange(rows, device=device) + 0.5) / rows)[:, None]
    added[..., numbers[1]] = (torch.arange(columns, device=device) + 0.5) / columns
    return added.flatten(0, 2)


def _numbered(pose: tuple[int, ...]) -> tuple[int, int]:
    """Return which two numbers of a pose coordinates are added to."""
    return (pose[1] - 1, 2 * pose[1] - 1) if len(pose) == 2 else (0, 1)
