"""Routed capsule layers: fully connected or convolutional, with vector or matrix poses.

Each position of a convolutional layer sees the children in a window. If the routing supports it,
all parents that see a child compete for it (`nn.links`). Poses are always flat: a matrix M (r, d)
is stored row by row. Its vote is M W^T for W (e, d), so each row is multiplied like a vector.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from math import prod
from typing import Any

import torch
from torch import Tensor, einsum, nn

from capsviz.discovery import entries, parameters, require_known
from capsviz.nn import routing as routings
from capsviz.nn.computation import CPU, cached, is_literal, normed, without_autocast
from capsviz.nn.functional import agreement, lengths
from capsviz.nn.links import Links, convolution_links, fuse_places, of_slots, route_places
from capsviz.nn.routing import Parents, Routing, check_shape

LOGIT_EPSILON = 1e-6  # activations are clamped this far from 0 and 1, so that logits are finite
TRANSFORMS = ("own", "type", "shared")  # one matrix for each child, each type, or all of them


class CapsuleLayer(nn.Module):
    """A layer of parents of several types, at one position that sees all children, or at many.

    Parameters
    ----------
    grid                     (types, rows, columns) of the children.
    parents                  J, types of parents.
    child_pose, parent_pose  (D,) and (E,), or (rows, columns) of matrices with equally many rows.
    kernel                   K, positions of children that a parent sees in each direction; None:
                             all positions.
    stride                   positions of children from one parent to the next.
    transform                "own": a matrix for each child (or slot of a window) and parent type.
                             "type": the children of a type share theirs. "shared": all children do.
    coordinates              add the position of the child to its votes (`coordinates_of`).
    routing, iterations      name of a file in `routing`, and R; None: 3, or 1 for a routing without
                             iterations.
    bias                     learn a (J, E) bias inside routing, as the authors' code does.
    std                      standard deviation of the initial weights; None: `initial_std`.
    options                  further options of the routing, e.g. `leaky`; None and False are
                             dropped.

    Raises
    ------
    ValueError  for unknown names, poses or a kernel that do not fit, several iterations of a
                routing without iterations, or an option that the routing does not have.
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
        bias: bool = False,
        std: float | None = None,
        **options,
    ):
        if len(child_pose) != len(parent_pose) or child_pose[:-1] != parent_pose[:-1]:
            raise ValueError(
                "poses must be (D,) and (E,), or matrices with equally many rows, got "
                f"{tuple(child_pose)} and {tuple(parent_pose)}"
            )
        types, rows, columns = grid
        window, places = rows * columns, (1, 1)
        if kernel is not None:
            window = kernel**2
            places = convolution_links(tuple(grid), kernel, stride, CPU)[1]  # cached for exporters
        super().__init__()
        module = routings.get(routing)  # raises ValueError for an unknown name
        self.routing_name, self.slots = routing, types * window
        self.iterations = routings.rounds(routing, iterations)
        self.norm: ParentNorm | None = None  # batch norm of the parents, set by the network
        self._route, self._fused = module.route, getattr(module, "fused", None)
        self._takes = {function: parameters(function) for function in (self._route, self._fused)}
        self._weights = getattr(module, "weights", None)
        self.child_grid, self.grid = (types, rows, columns), (parents, *places)
        self.child_pose, self.pose_shape = tuple(child_pose), tuple(parent_pose)
        self.kernel, self.stride, self.coordinated = kernel, stride, coordinates
        self.parent_types = parents
        numbers = prod(child_pose), prod(parent_pose)
        learned = {}  # initial values of the routing's parameters, by name
        if hasattr(module, "parameters"):
            of_classes = getattr(module, "OF_CLASSES", ()) if kernel is not None else ()
            learned = module.parameters(self.slots, parents, *numbers)
            learned = {name: one for name, one in learned.items() if name not in of_classes}
        self.options: dict[str, Any] = {
            k: v for k, v in options.items() if v is not None and v is not False
        }
        self.require_options([*self.options, *(["bias"] if bias else [])], learned)
        size = parents, parent_pose[-1], child_pose[-1]
        self.weight = initial_matrices(transform, types * window, types, size, std)
        shift = nn.Parameter(torch.full((parents, numbers[1]), 0.1)) if bias else None
        self.register_parameter("bias", shift)
        self.learned = nn.ParameterDict(learned)
        if coordinates:
            coordinates_of(self.child_grid, self.pose_shape, CPU)  # ValueError for small poses

    def forward(self, poses: Tensor, activations: Tensor | None = None, couplings=None) -> Parents:
        """Return poses (B, J * rows * columns, E) and activations of the parents.

        Parameters are those of `couple`. Parent (type * rows + row) * columns + column has that
        type and position of `grid`.
        """
        return self.by_type(*self.couple(poses, activations, couplings))

    def couple(
        self, children: Tensor, activations: Tensor | None = None, couplings=None
    ) -> Parents:
        """Return poses (B, [Q,] J, E) and activations (B, [Q,] J) of the parents.

        Uses the fused form of the routing where possible.

        Parameters
        ----------
        children     (B, count, D).
        activations  (B, count) of the children, in [0, 1], not checked; None: their lengths.
        couplings    replace the routing's own, as its `route` takes them.
        """
        with without_autocast(children.device):
            children = self.exact(children)
            if couplings is None and self._fused is not None and self._can_fuse(children):
                options = self.inputs(self._fused, children, activations)
                flat = self._factors(children)
                return self.normed(*fuse_places(self._fused, *flat, self.links, **options))
            routed = self._routed(self.votes(children), children, activations, couplings)
            return self.normed(routed.poses[-1], routed.activations[-1])

    def route(
        self,
        children: Tensor,
        activations: Tensor | None = None,
        *,
        couplings: Tensor | None = None,
        iterations: int | None = None,
    ) -> tuple[Tensor, Routing]:
        """Return votes (B, [Q,] I, J, E) and all iterations of the routing; slower than `couple`.

        ValueError for `iterations` below 1, or above 1 if the routing does not iterate.
        """
        with without_autocast(children.device):  # routing state stays float32
            votes = self.votes(self.exact(children))
        more = {"couplings": couplings, "iterations": iterations}
        return votes, self.route_votes(votes, children, activations, **more)

    def route_votes(
        self, votes, children, activations=None, *, couplings=None, iterations=None
    ) -> Routing:
        """Return the `Routing` of votes that were already computed from these children."""
        if not entries(routings.PACKAGE)[self.routing_name].ours:
            votes = votes.clone()  # a plug-in may write over its input
        with without_autocast(children.device):
            children = self.exact(children)
            routed = self._routed(votes, children, activations, couplings, iterations)
            if iterations is not None and len(routed.poses) != iterations:
                ran = f"ran {len(routed.poses)} iterations, expected {iterations}"
                raise ValueError(f"the routing '{self.routing_name}' {ran}")
            if self.norm is None:
                return routed
            each = [self.normed(*one) for one in zip(routed.poses, routed.activations, strict=True)]
            # separate lines: `wrap` and the checks identify tensors by the line that makes them
            poses = torch.stack([one.poses for one in each])
            active = torch.stack([one.activations for one in each])
        return routed._replace(poses=poses, activations=active)

    def votes(self, poses: Tensor) -> Tensor:
        """Return what each child predicts for each parent: (B, count, D) -> (B, [Q,] I, J, E)."""
        links, count, numbers = self.links, prod(self.child_grid), prod(self.child_pose)
        if poses.dim() != 3 or tuple(poses.shape[1:]) != (count, numbers):  # einsum would expand
            raise ValueError(
                f"expected children (B, {count}, {numbers}), got the shape {tuple(poses.shape)}"
            )
        seen, weight = of_slots(poses, links), self.matrices()
        if len(self.child_pose) == 1:
            votes = einsum("ijed,b...id->b...ije", weight, seen)
        else:
            rows = seen.unflatten(-1, self.child_pose)
            votes = einsum("ijed,b...ird->b...ijre", weight, rows).flatten(-2)
        if self.coordinates is None:
            return votes
        return votes + of_slots(self.coordinates[None].to(votes), links)[..., None, :]

    @property
    def links(self) -> Links | None:
        """Return the links of positions to children; None: each parent sees all children."""
        if self.kernel is None:
            return None
        return convolution_links(self.child_grid, self.kernel, self.stride, self.weight.device)[0]

    @property
    def coordinates(self) -> Tensor | None:
        """Return the coordinates that are added to votes (children, E); None: nothing is added."""
        if not self.coordinated:
            return None
        return coordinates_of(self.child_grid, self.pose_shape, self.weight.device)

    def matrices(self) -> Tensor:
        """Return the matrix of each child's vote for each parent, (I, J, E, D)."""
        self._reparametrise()
        weight = self.exact(self.weight)
        if len(weight) == self.slots:
            return weight
        if len(weight) == 1:
            return weight.expand(self.slots, -1, -1, -1)
        return weight.repeat_interleave(self.slots // len(weight), 0)

    def by_type(self, poses: Tensor, activations: Tensor) -> Parents:
        """Order parents (B, [Q,] J, ...) by type, as the next layer's children (B, count, ...)."""
        if self.links is None:
            return Parents(poses, activations)
        return Parents(*(part.transpose(1, 2).flatten(1, 2) for part in (poses, activations)))

    def normed(self, poses: Tensor, activations: Tensor) -> Parents:
        """Apply the layer's batch norm, if any, to parents (B, [Q,] J, ...), type by type."""
        if self.norm is None:
            return Parents(poses, activations)
        if self.links is None:
            return self.norm(poses, activations)
        poses, active = (part.transpose(1, 2).contiguous() for part in (poses, activations))
        flat, active = self.norm(poses.flatten(2), active)
        return Parents(flat.view_as(poses).transpose(1, 2), active.transpose(1, 2))

    def weights(self, couplings: Tensor, activations: Tensor) -> Tensor | None:
        """Return the share of each vote in its parent's pose, shaped as couplings (..., [Q,] I, J).

        `activations` (B, count) are the children's. None if the couplings themselves are the
        weights.
        """
        if self._weights is None:
            return None
        return self._weights(couplings, of_slots(activations, self.links))

    def evidence(self, votes: Tensor, routing: Routing, activations: Tensor) -> Tensor:
        """Return the `evidence` (B, [Q,] I, J) of votes and routing from `route`.

        `activations` (B, count) are the children's. Batch norm of the parents scales the evidence
        like their logits.
        """
        known = {**self.learned, **self.options}
        with without_autocast(votes.device):
            active = of_slots(activations.to(votes), self.links)
            parts = evidence(self.routing_name, votes, routing, active, **known)
            return parts if self.norm is None else parts / self.norm.logit_std

    def inputs(
        self,
        function: Callable,
        children: Tensor,
        activations: Tensor | None,
        iterations: int | None = None,
    ) -> dict[str, Any]:
        """Return the arguments by name that `function`, the routing's `route` or `fused`, takes.

        ValueError for iterations that the routing does not have, and for activations of another
        shape, even if the routing does not use them.
        """
        check_shape("activations", activations, "B, I", children.shape[:2])
        takes, count = self._takes[function], self.iterations
        if iterations is not None:
            count = routings.rounds(self.routing_name, iterations)
        self._reparametrise()
        known: dict[str, Any] = {"iterations": count}
        if function is self._route:
            known["children"] = children
        if "activations" in takes:
            active = lengths(children) if activations is None else activations
            known["activations"] = active.to(children)
        known = {name: value for name, value in known.items() if name in takes}
        learned = {name: value.to(children.dtype) for name, value in self.learned.items()}
        shift = {} if self.bias is None else {"bias": self.bias}
        return {**known, **learned, **shift, **self.options}

    def exact(self, children: Tensor) -> Tensor:
        """Cast children to the type of the routing: that of the weights, float32 at least."""
        return children.to(torch.promote_types(self.weight.dtype, torch.float32))

    def _can_fuse(self, children: Tensor) -> bool:
        """Return whether the fused form can be used for these children."""
        if is_literal() or (self.kernel is not None and children.is_meta):  # windows read indices
            return False
        # a routing that reads children needs them without the coordinates that `_factors` appends
        return not (self.coordinated and "children" in self._takes[self._route])

    def _factors(self, poses: Tensor) -> tuple[Tensor, Tensor]:
        """Return children and matrices (I, J, E, D) whose products are the votes.

        Both include the coordinates. The matrix of a matrix pose is block-diagonal, a block a row.
        """
        weight = self.matrices()
        rows = prod(self.child_pose[:-1])
        if rows > 1:
            eye = torch.eye(rows, dtype=weight.dtype, device=weight.device)
            weight = einsum("rs,ijed->ijresd", eye, weight).flatten(4).flatten(2, 3)
        if self.coordinates is None:
            return poses, weight
        coordinates, (E, _) = self.coordinates.to(poses), weight.shape[2:]
        identity = torch.eye(E, dtype=weight.dtype, device=weight.device)
        indices = list(_coordinate_entries(self.pose_shape))
        poses = torch.cat((poses, coordinates[:, indices].expand(len(poses), -1, -1)), 2)
        added = identity[:, indices].expand(*weight.shape[:2], -1, -1)
        return poses, torch.cat((weight, added), 3)

    def _routed(self, votes, children, activations, couplings, iterations=None) -> Routing:
        options = self.inputs(self._route, children, activations, iterations)
        couplings = self._checked_couplings(couplings, options)
        return route_places(self._route, votes, links=self.links, couplings=couplings, **options)

    def _checked_couplings(self, couplings, options: Mapping[str, Any]):
        """Return couplings as `route` takes them; ValueError for a list of the wrong length."""
        if not isinstance(couplings, list | tuple):
            return couplings
        routings.require_each(couplings, options.get("iterations", 1))
        return couplings if "iterations" in options else couplings[0]

    def _reparametrise(self) -> None:
        """Recompute weights pruned or normed by `torch.nn.utils`, like a call of the module."""
        for hook in self._forward_pre_hooks.values():
            if type(hook).__module__.startswith("torch.nn.utils."):
                hook(self, ())

    def require_options(self, names: Iterable[str], learned: Mapping[str, Tensor]) -> None:
        """Raise ValueError for an option that the routing lacks or that is a learned parameter."""
        for takes in filter(None, self._takes.values()):
            for option in names:
                if option in learned or option not in takes:
                    raise ValueError(
                        f"the routing '{self.routing_name}' has no option '{option}': "
                        "leave it out, or choose a routing that has it"
                    )


@cached
def coordinates_of(
    grid: tuple[int, int, int], pose: tuple[int, ...], device: torch.device = CPU
) -> Tensor:
    """Return the coordinates added to votes: row and column of each child (children, E).

    They are those of its centre, scaled to (0, 1). They fill the first two entries of the
    right-hand column of a matrix pose (Hinton et al. 2018), or the first two of a vector.
    """
    types, rows, columns = grid
    if pose[0] < 2:
        raise ValueError(f"coordinates are added to two entries of a pose, got the shape {pose}")
    first, second = _coordinate_entries(pose)
    how: dict = {"dtype": torch.float32, "device": device}  # cached, so not the default type
    added = torch.zeros(types, rows, columns, prod(pose), **how)
    added[..., first] = ((torch.arange(rows, **how) + 0.5) / rows)[:, None]
    added[..., second] = (torch.arange(columns, **how) + 0.5) / columns
    return added.flatten(0, 2)


def _coordinate_entries(pose: tuple[int, ...]) -> tuple[int, int]:
    """Return the indices of the two entries of a pose to which coordinates are added."""
    return (pose[1] - 1, 2 * pose[1] - 1) if len(pose) == 2 else (0, 1)


def initial_std(transform: str, children: int) -> float:
    """Return the standard deviation of the initial matrices: 0.1, as in the authors' code.

    If all children share one matrix, it is 0.1 / sqrt(I). Their votes then add up in one direction,
    and with 0.1 all class capsules start long and equal, and accuracy stays at chance.
    """
    return 0.1 / math.sqrt(children) if transform == "shared" else 0.1


def initial_matrices(
    transform: str, children: int, types: int, size: tuple[int, int, int], std: float | None
) -> nn.Parameter:
    """Draw matrices (M, J, E, D), M as `transform` says; ValueError for an unknown one."""
    require_known("transform", transform, TRANSFORMS)
    count = {"own": children, "type": types, "shared": 1}[transform]
    std = initial_std(transform, children) if std is None else std
    return nn.Parameter(torch.randn(count, *size) * std)


class ParentNorm(nn.Module):
    """Batch norm of the poses and of the activations' logits, for each of J parents.

    It has no gain and shift, as in the authors' code of variational routing (Ribeiro et al. 2020).
    """

    def __init__(self, parents: int):
        super().__init__()
        self.poses = nn.BatchNorm1d(parents, affine=False)
        self.logits = nn.BatchNorm1d(parents, affine=False)

    @property
    def logit_std(self) -> Tensor:
        """Return the divisor (J,) of the logits of each parent type in evaluation mode."""
        assert self.logits.running_var is not None
        variance = self.logits.running_var
        exact = torch.promote_types(variance.dtype, torch.float32)
        return (variance.to(exact) + self.logits.eps).sqrt()

    def forward(self, poses: Tensor, activations: Tensor) -> Parents:
        """Normalise poses (B, J, E) and activations (B, J), or both as (B, J, ...)."""
        logits = normed(self.logits, torch.logit(activations, LOGIT_EPSILON))
        return Parents(normed(self.poses, poses), logits.sigmoid())


def evidence(
    name: str, votes: Tensor, routing: Routing, activations: Tensor, **known: Tensor | float
) -> Tensor:
    """Return what each vote adds to `routing.quantity(name)`, which decides the activation.

    The default is the length of a weighted vote along its parent's pose.

    Parameters
    ----------
    name         of the routing.
    votes        (B, [Q,] I, J, E).
    routing      result of `route` for these votes.
    activations  (B, [Q,] I) of the children, by slot if there are positions.
    known        learned parameters and options of the routing, by name.

    Returns
    -------
    (B, [Q,] I, J), after the last iteration of `routing`.
    """
    module = routings.get(name)
    if hasattr(module, "evidence"):
        takes = signature(module.evidence).parameters
        known = {key: value for key, value in known.items() if key in takes}
        return module.evidence(votes, routing, activations, **known)
    poses = routing.poses[-1]
    along = agreement(votes, poses / lengths(poses)[..., None])
    couplings = routing.couplings[-1]
    weights = getattr(module, "weights", None)
    return (couplings if weights is None else weights(couplings, activations)) * along


def by_iteration(evidence, votes: Tensor, routing: Routing, activations: Tensor) -> Tensor:
    """Return a layer's `evidence` after each iteration: (R, B, [Q,] I, J)."""
    counts = range(1, len(routing.couplings) + 1)
    each = [Routing(*(part[:count] for part in routing)) for count in counts]
    return torch.stack([evidence(votes, one, activations) for one in each])
