"""Routing layers: matrices that make votes, inputs of a routing, batch norm, evidence."""

import math
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from capsviz.discovery import parameters, unknown
from capsviz.nn import routing as routings
from capsviz.nn.computation import is_literal, normed, without_autocast
from capsviz.nn.functional import agreement, lengths
from capsviz.nn.links import Links, fuse_places, of_slots, route_places
from capsviz.nn.routing import Parents, Routing, check_shape

CLOSEST = 1e-6  # of an activation to 0 and 1: its logit is a number still
TRANSFORMS = ("own", "type", "shared")  # one matrix for each child, each type, or all of them


class RoutingLayer(nn.Module):
    """Parents of children, or of the slots of a window, by a routing.

    A layer sets `weight`, (matrices, J, E, D), and `learned`, what `initial` gives, in an order of
    its own: a seed draws them one after the other. It has `votes`, what each child predicts for
    each parent: (B, count, D) -> (B, [Q,] I, J, E), with Q positions where there are `links`.

    Parameters
    ----------
    routing     name of a file in `capsviz/nn/routing`.
    iterations  R; None is 3, or 1 of a routing that has one pass.
    slots       I, children that a parent sees.
    """

    weight: nn.Parameter
    learned: nn.ParameterDict
    votes: Callable[[Tensor], Tensor]
    links: Links | None = None  # what the positions see; None: all children

    def __init__(self, routing: str, iterations: int | None, slots: int):
        super().__init__()
        module = routings.get(routing)  # refuses an unknown name now
        self.routing_name, self.slots = routing, slots
        self.iterations = routings.rounds(routing, iterations)
        self.options: dict[str, Any] = {}  # of the routing, beside its iterations
        self.norm: ParentNorm | None = None  # batch norm of the parents, if the routing asks for it
        self._route, self._fused = module.route, getattr(module, "fused", None)
        self._takes = {function: parameters(function) for function in (self._route, self._fused)}
        self._weights = getattr(module, "weights", None)
        self._initial = getattr(module, "parameters", None)
        self._of_classes = getattr(module, "OF_CLASSES", ())

    def initial(
        self, parents: int, child_numbers: int, parent_numbers: int, *, hidden: bool = False
    ) -> dict[str, Tensor]:
        """Return initial values of what the routing learns, by name; a hidden layer learns less."""
        if self._initial is None:
            return {}
        learned = self._initial(self.slots, parents, child_numbers, parent_numbers)
        return {k: v for k, v in learned.items() if not (hidden and k in self._of_classes)}

    def require_options(self, names: Iterable[str], learned: Mapping[str, Tensor]) -> None:
        """Raise ValueError for an option that the routing does not have, or learns by itself."""
        for takes in filter(None, self._takes.values()):
            for option in names:
                if option in learned or option not in takes:
                    raise ValueError(
                        f"the routing '{self.routing_name}' has no option '{option}': "
                        "leave it out, or choose a routing that has it"
                    )

    def couple(
        self, children: Tensor, activations: Tensor | None = None, couplings=None
    ) -> Parents:
        """Parents, (B, [Q,] J, E) and (B, [Q,] J), by the routing's fused form if it can.

        Parameters
        ----------
        children     (B, count, D).
        activations  (B, count) of the children; None: their lengths.
        couplings    in place of its own, as its `route` takes them.
        """
        with without_autocast(children.device):
            children = self.exact(children)
            if couplings is None and self._fused is not None and self._fuses(children):
                options = self.inputs(self._fused, children, activations)
                flat = self._flat(children)
                return self.normed(*fuse_places(self._fused, *flat, self.links, **options))
            routed = self._routed(self.votes(children), children, activations, couplings)
            return self.normed(routed.poses[-1], routed.activations[-1])

    def normed(self, poses: Tensor, activations: Tensor) -> Parents:
        """Parents (B, [Q,] J, ...), with batch norm by type if the layer has one."""
        if self.norm is None:
            return Parents(poses, activations)
        if self.links is None:
            return self.norm(poses, activations)
        poses, active = (part.transpose(1, 2).contiguous() for part in (poses, activations))
        flat, active = self.norm(poses.flatten(2), active)
        return Parents(flat.view_as(poses).transpose(1, 2), active.transpose(1, 2))

    def _fuses(self, children: Tensor) -> bool:
        """Return whether the fused form serves for these children."""
        return not is_literal()

    def _flat(self, children: Tensor) -> tuple[Tensor, Tensor]:
        """Children and matrices (I, J, E, D) whose product the votes are."""
        return children, self.matrices()

    def route(
        self,
        children: Tensor,
        activations: Tensor | None = None,
        *,
        couplings: Tensor | None = None,
        iterations: int | None = None,
    ) -> tuple[Tensor, Routing]:
        """The slow path that shows everything: votes (B, [Q,] I, J, E) and the whole `Routing`.

        ValueError for `iterations` below 1, or above it of a routing that has one pass.
        """
        with without_autocast(children.device):  # routing state stays float32
            votes = self.votes(self.exact(children))
        more = {"couplings": couplings, "iterations": iterations}
        return votes, self.route_votes(votes, children, activations, **more)

    def route_votes(
        self, votes, children, activations=None, *, couplings=None, iterations=None
    ) -> Routing:
        """`route` with the votes of the same children at hand."""
        with without_autocast(children.device):
            children = self.exact(children)
            routed = self._routed(votes, children, activations, couplings, iterations)
            if self.norm is None:
                return routed
            each = [self.normed(*one) for one in zip(routed.poses, routed.activations, strict=True)]
            # each stack at a line of its own, by which `wrap` and the checks tell them apart
            poses = torch.stack([one.poses for one in each])
            active = torch.stack([one.activations for one in each])
        return routed._replace(poses=poses, activations=active)

    def _routed(self, votes, children, activations, couplings, iterations=None) -> Routing:
        options = self.inputs(self._route, children, activations, iterations)
        couplings = self._listed(couplings, options)
        return route_places(self._route, votes, links=self.links, couplings=couplings, **options)

    def inputs(
        self,
        function: Callable,
        children: Tensor,
        activations: Tensor | None,
        iterations: int | None = None,
    ) -> dict[str, Any]:
        """Return the arguments of `route` or `fused`, by name, as far as the function takes them.

        ValueError for iterations that the routing does not have, and activations of another shape,
        also where it reads none.
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
        return {**known, **learned, **self.options}

    def _listed(self, couplings, options: Mapping[str, Any]):
        """Couplings as `route` takes them; ValueError for a list of other than its iterations."""
        if not isinstance(couplings, list | tuple):
            return couplings
        count = options.get("iterations", 1)
        if len(couplings) != count:
            raise ValueError(
                f"expected a list of couplings for {count} iterations, got {len(couplings)}"
            )
        return couplings if "iterations" in options else couplings[0]

    def require_children(self, children: Tensor, count: int, numbers: int) -> None:
        """Raise ValueError for children that are not (B, count, numbers): einsum would expand."""
        if children.dim() != 3 or tuple(children.shape[1:]) != (count, numbers):
            raise ValueError(
                f"expected children (B, {count}, {numbers}), got the shape {tuple(children.shape)}"
            )

    def exact(self, children: Tensor) -> Tensor:
        """Children in the type that routing is computed in: the weights', float32 at least."""
        return children.to(torch.promote_types(self.weight.dtype, torch.float32))

    def matrices(self) -> Tensor:
        """Return what makes each child's vote for each parent, (I, J, E, D), shared or its own."""
        self._reparametrise()
        weight = self.exact(self.weight)
        if len(weight) == self.slots:
            return weight
        if len(weight) == 1:
            return weight.expand(self.slots, -1, -1, -1)
        return weight.repeat_interleave(self.slots // len(weight), 0)

    def _reparametrise(self) -> None:
        """Compute what `torch.nn.utils` prunes or norms, as a call of the module itself would."""
        for hook in self._forward_pre_hooks.values():
            if type(hook).__module__.startswith("torch.nn.utils."):
                hook(self, ())

    @property
    def weighs(self) -> bool:
        """Return whether votes are multiplied by something else than their couplings."""
        return self._weights is not None

    def weights(self, couplings: Tensor, activations: Tensor) -> Tensor:
        """Share of each vote in its parent: couplings (..., [Q,] I, J), activations (B, count)."""
        if self._weights is None:
            return couplings
        return self._weights(couplings, of_slots(activations, self.links))

    def evidence(self, votes: Tensor, routing: Routing, activations: Tensor) -> Tensor:
        """`evidence` of votes and routing as `route` gave them, and activations (B, count).

        Batch norm of the parents divides it as it does their logits.
        """
        known = {**self.learned, **self.options}
        active = of_slots(activations.to(votes), self.links)
        parts = evidence(self.routing_name, votes, routing, active, **known)
        return parts if self.norm is None else parts / self.norm.logit_std


def initial_std(transform: str, children: int) -> float:
    """Standard deviation of the initial weights that make votes: 0.1, as the authors' code has it.

    It is 0.1 / sqrt(I) where one matrix is for all children, whose votes add up in one direction:
    with 0.1 all classes would begin long and alike, and stay at chance.
    """
    return 0.1 / math.sqrt(children) if transform == "shared" else 0.1


def initial_matrices(
    transform: str, children: int, types: int, size: tuple[int, int, int], std: float | None
) -> nn.Parameter:
    """Draw matrices (M, J, E, D), one for each child that has its own; ValueError for none."""
    if transform not in TRANSFORMS:
        raise ValueError(unknown("transform", transform, list(TRANSFORMS)))
    if transform == "type" and (types < 1 or children % types):
        raise ValueError(f"types must divide the {children} children, got {types}")
    count = {"own": children, "type": types, "shared": 1}[transform]
    std = initial_std(transform, children) if std is None else std
    return nn.Parameter(torch.randn(count, *size) * std)


class ParentNorm(nn.Module):
    """Poses, and the logits of activations, each of mean 0 and variance 1 for each of J parents.

    Without gain and shift, as in the authors' code of variational routing (Ribeiro et al. 2020).
    """

    def __init__(self, parents: int):
        super().__init__()
        self.poses = nn.BatchNorm1d(parents, affine=False)
        self.logits = nn.BatchNorm1d(parents, affine=False)

    @property
    def logit_std(self) -> Tensor:
        """Return what evaluation divides the logits of each type of parent by: (J,)."""
        assert self.logits.running_var is not None
        variance = self.logits.running_var
        exact = torch.promote_types(variance.dtype, torch.float32)
        return (variance.to(exact) + self.logits.eps).sqrt()

    def forward(self, poses: Tensor, activations: Tensor) -> Parents:
        """Poses (B, J, E) and activations (B, J), or (B, J, positions) of both."""
        logits = normed(self.logits, torch.logit(activations, CLOSEST))
        return Parents(normed(self.poses, poses), logits.sigmoid())


def evidence(
    name: str, votes: Tensor, routing: Routing, activations: Tensor, **known: Tensor | float
) -> Tensor:
    """Return what each vote adds to `routing.quantity(name)`, which decides the activation.

    By default the length that a weighted vote has along its parent's pose.

    Parameters
    ----------
    name         of the routing.
    votes        (B, [Q,] I, J, E).
    routing      what `route` gave for them.
    activations  (B, [Q,] I) of the children, slot by slot where positions see some of them.
    known        what the routing learned, and its options, by name.

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


def by_round(evidence, votes: Tensor, routing: Routing, activations: Tensor) -> Tensor:
    """A layer's `evidence` after each iteration: (R, B, [Q,] I, J)."""
    rounds = range(1, len(routing.couplings) + 1)
    each = [Routing(*(part[:r] for part in routing)) for r in rounds]
    return torch.stack([evidence(votes, one, activations) for one in each])
