"""Class capsules: one capsule for each class, fed by all primary capsules by routing."""

from inspect import signature

import torch
from torch import Tensor, einsum, nn

from capsviz.discovery import unknown
from capsviz.nn import routing as routings
from capsviz.nn.computation import is_literal, without_autocast
from capsviz.nn.functional import lengths
from capsviz.nn.parent_norm import ParentNorm
from capsviz.nn.routing import Parents, Quantity, Routing
from capsviz.nn.routing._evidence import evidence

TRANSFORMS = ("own", "type", "shared")  # one matrix for each child, each type, or all of them


class ClassCapsules(nn.Module):
    """One capsule per class, from all primary capsules by routing ("DigitCaps" in the paper).

    Parameters
    ----------
    children, parents                    I and J.
    child_dimensions, parent_dimensions  D and E.
    routing                              name of a file in `capsviz/nn/routing`.
    iterations                           R, rounds of routing; None is 3, or 1 of a routing that has
                                         one pass.
    bias                                 learn a (J, E) bias inside routing, as the authors' code.
    detach                               gradients flow through the last iteration only.
    leaky                                children may couple to no parent: `leaky_softmax`.
    transform                            "own": a matrix for each child and parent. "type": the
                                         children of a type share theirs. "shared": all do.
    types                                of children, for "type": child i is of type i // (I/types).
    std                                  standard deviation of the initial weights.
    final_temperature                    of EM routing, in place of its own.

    Raises
    ------
    ValueError  for an unknown routing or transform, types that do not divide the children, fewer
                than one iteration, more than one of a routing that has one pass, or `bias`,
                `detach`, `leaky` or `final_temperature` of a routing that does not have it.
    """

    def __init__(
        self,
        children: int,
        parents: int,
        *,
        child_dimensions: int = 8,
        parent_dimensions: int = 16,
        routing: str = "dynamic",
        iterations: int | None = None,
        bias: bool = False,
        detach: bool = False,
        leaky: bool = False,
        transform: str = "own",
        types: int = 1,
        std: float = 0.1,
        final_temperature: float | None = None,
    ):
        super().__init__()
        module = routings.get(routing)  # refuses an unknown name now
        self._route_votes, self._fused = module.route, getattr(module, "fused", None)
        self._weights = getattr(module, "weights", None)
        self.routing_name, self.child_count = routing, children
        self._route_takes = frozenset(signature(self._route_votes).parameters)
        self._fused_takes = frozenset(signature(self._fused).parameters if self._fused else ())
        self.iterations = routings.rounds(routing, iterations)
        flags = {"detach": detach, "leaky": leaky}
        self.options = {option: True for option, wanted in flags.items() if wanted}
        if final_temperature is not None:
            self.options["final_temperature"] = final_temperature
        offered = getattr(module, "parameters", lambda *sizes: {})
        learned = offered(children, parents, child_dimensions, parent_dimensions)
        self._require_options([*self.options, *(["bias"] if bias else [])], learned)
        matrices = _matrices(transform, children, types)
        shape = (matrices, parents, parent_dimensions, child_dimensions)
        self.weight = nn.Parameter(torch.randn(shape) * std)
        shift = nn.Parameter(torch.full((parents, parent_dimensions), 0.1)) if bias else None
        self.register_parameter("bias", shift)
        self.learned = nn.ParameterDict(learned)  # what the routing itself learns, by its names
        self.norm = ParentNorm(parents) if routings.norms_parents(routing) else None

    def _require_options(self, names: list[str], learned: dict) -> None:
        """ValueError for an option that the routing does not have; it need not have any."""
        for takes in filter(None, (self._route_takes, self._fused_takes)):
            for option in names:
                if option in learned or option not in takes:
                    raise ValueError(
                        f"the routing '{self.routing_name}' has no option '{option}': "
                        "leave it out, or choose a routing that has it, as 'dynamic'"
                    )

    def _options(self, takes: frozenset[str], children: Tensor, rounds: int, activations) -> dict:
        """What a routing's function is given by name, of what it `takes`."""
        known = {"iterations": rounds}
        if "activations" in takes:
            known["activations"] = lengths(children) if activations is None else activations
        if self.bias is not None:
            known["bias"] = self.bias
        known = {name: value for name, value in known.items() if name in takes}
        learned = {name: value.to(children.dtype) for name, value in self.learned.items()}
        return {**known, **learned, **self.options}

    def _exact(self, children: Tensor) -> Tensor:
        """Children in the type that routing is computed in: the weights', float32 at least."""
        return children.to(torch.promote_types(self.weight.dtype, torch.float32))

    def matrices(self) -> Tensor:
        """What turns each child into its vote for each parent, (I, J, E, D), shared or its own."""
        weight = self.weight.to(torch.promote_types(self.weight.dtype, torch.float32))
        if len(weight) == self.child_count:
            return weight
        if len(weight) == 1:
            return weight.expand(self.child_count, -1, -1, -1)
        return weight.repeat_interleave(self.child_count // len(weight), 0)

    def votes(self, primary: Tensor) -> Tensor:
        """What each child predicts for each parent: (B, I, D) -> (B, I, J, E)."""
        return einsum("ijed,bid->bije", self.matrices(), self._exact(primary))

    def forward(self, primary: Tensor) -> Tensor:
        """Poses of the parents: (B, I, D) -> (B, J, E); see `couple`."""
        return self.couple(primary).poses

    def couple(self, primary: Tensor, activations: Tensor | None = None) -> Parents:
        """Poses and activations of the parents, by the routing's fused form if it can.

        Parameters
        ----------
        primary      (B, I, D).
        activations  (B, I) of the children, for a routing that asks for them; None: their lengths.

        Returns
        -------
        Parents with poses (B, J, E) and activations (B, J), float32 at least.
        """
        with without_autocast(primary.device):
            primary = self._exact(primary)
            if self._fused is None or is_literal():
                routed = self._routed(self.votes(primary), primary, activations, None, None)
                parents = Parents(routed.poses[-1], routed.activations[-1])
            else:
                options = self._options(self._fused_takes, primary, self.iterations, activations)
                parents = self._fused(primary, self.matrices(), **options)
            return parents if self.norm is None else self.norm(*parents)

    def route(
        self,
        primary: Tensor,
        *,
        activations: Tensor | None = None,
        couplings: Tensor | None = None,
        iterations: int | None = None,
    ) -> tuple[Tensor, Routing]:
        """The slow path that shows everything: votes (B, I, J, E) and the whole `Routing`.

        ValueError for `iterations` below 1, or above it of a routing that has one pass.
        """
        with without_autocast(primary.device):  # routing state stays float32
            votes = self.votes(primary)
        more = {"couplings": couplings, "iterations": iterations}
        return votes, self.route_votes(votes, primary, activations=activations, **more)

    def route_votes(
        self, votes, primary, *, activations=None, couplings=None, iterations=None
    ) -> Routing:
        """`route` with the votes (B, I, J, E) of the same children at hand."""
        with without_autocast(primary.device):
            routed = self._routed(votes, self._exact(primary), activations, couplings, iterations)
            if self.norm is None:
                return routed
            each = [self.norm(*one) for one in zip(routed.poses, routed.activations, strict=True)]
            poses, active = (torch.stack(parts) for parts in zip(*each, strict=True))
            return routed._replace(poses=poses, activations=active)

    def _routed(self, votes, primary, activations, couplings, iterations) -> Routing:
        """Before the norm of the parents, if there is one."""
        count = self.iterations if iterations is None else iterations
        rounds = routings.rounds(self.routing_name, count)
        options = self._options(self._route_takes, primary, rounds, activations)
        if "children" in self._route_takes:
            options["children"] = primary
        return self._route_votes(votes, couplings=couplings, **options)

    @property
    def quantity(self) -> Quantity:
        """What `evidence` is, in words."""
        return routings.quantity(self.routing_name)

    @property
    def weighs(self) -> bool:
        """Whether votes are multiplied by something else than their couplings."""
        return self._weights is not None

    def weights(self, couplings: Tensor, activations: Tensor) -> Tensor:
        """Share of each vote in its parent: couplings (..., I, J), activations of the children
        (..., I) -> (..., I, J)."""
        return couplings if self._weights is None else self._weights(couplings, activations)

    def evidence(self, votes: Tensor, routing: Routing, activations: Tensor) -> Tensor:
        """What each vote adds to what its parent's activation is read from: its `quantity`.

        Parameters
        ----------
        votes        (B, I, J, E), and
        routing      as `route` gave them.
        activations  (B, I) of the children.

        Returns
        -------
        (B, I, J). By default the length that a weighted vote has along its parent's pose.
        """
        known = {**self.learned, **self.options}
        parts = evidence(self.routing_name, votes, routing, activations, **known)
        return parts if self.norm is None else parts / self.norm.logit_std


def _matrices(transform: str, children: int, types: int) -> int:
    """How many children have a matrix of their own; ValueError for what cannot be."""
    if transform not in TRANSFORMS:
        raise ValueError(unknown("transform", transform, list(TRANSFORMS)))
    if transform == "type" and (types < 1 or children % types):
        raise ValueError(f"types must divide the {children} children, got {types}")
    return {"own": children, "type": types, "shared": 1}[transform]
