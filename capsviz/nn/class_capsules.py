"""Class capsules: one capsule for each class, fed by all primary capsules by routing."""

import torch
from torch import Tensor, einsum, nn

from capsviz.nn import routing as routings
from capsviz.nn.computation import is_literal, without_autocast
from capsviz.nn.routing import Parents, Routing, em
from capsviz.nn.routing_layer import ParentNorm, RoutingLayer, initial_std, matrix_count


class ClassCapsules(RoutingLayer):
    """One capsule per class, from all primary capsules by routing ("DigitCaps" in the paper).

    Parameters
    ----------
    children, parents                    I and J.
    child_dimensions, parent_dimensions  D and E.
    routing                              name of a file in `capsviz/nn/routing`.
    iterations                           R, of routing; None is 3, or 1 of a routing that has
                                         one pass.
    bias                                 learn a (J, E) bias inside routing, as the authors' code.
    detach                               gradients flow through the last iteration only.
    leaky                                children may couple to no parent: `leaky_softmax`.
    transform                            "own": a matrix for each child and parent. "type": the
                                         children of a type share theirs. "shared": all do.
    types                                of children, for "type": child i is of type i // (I/types).
    std                                  standard deviation of initial weights; None: `initial_std`.
    final_temperature, floor             of EM routing, in place of its own; with the first, what it
                                         learns begins as `em.class_parameters` has it.

    Raises
    ------
    ValueError  for an unknown routing or transform, types that do not divide the children, fewer
                than one iteration, more than one of a routing that has one pass, or `bias`,
                `detach`, `leaky`, `final_temperature` or `floor` of a routing without it.
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
        std: float | None = None,
        final_temperature: float | None = None,
        floor: float | None = None,
    ):
        super().__init__(routing, iterations, children)
        chosen = {"detach": detach or None, "leaky": leaky or None, "floor": floor}
        chosen["final_temperature"] = final_temperature
        self.options |= {name: value for name, value in chosen.items() if value is not None}
        learned = self.initial(parents, child_dimensions, parent_dimensions)
        if final_temperature is not None:
            of_classes = em.class_parameters(parents, final_temperature, floor or em.FLOOR)
            learned |= {name: of_classes.get(name, value) for name, value in learned.items()}
        names = [*self.options, *(["bias"] if bias else [])]
        other = "leave it out, or choose a routing that has it"
        self.require_options(names, learned, other)
        matrices = matrix_count(transform, children, types)
        shape = (matrices, parents, parent_dimensions, child_dimensions)
        std = initial_std(transform, children) if std is None else std
        self.weight = nn.Parameter(torch.randn(shape) * std)
        shift = nn.Parameter(torch.full((parents, parent_dimensions), 0.1)) if bias else None
        self.register_parameter("bias", shift)
        self.learned = nn.ParameterDict(learned)  # what the routing itself learns, by its names
        self.norm = ParentNorm(parents) if routings.norms_parents(routing) else None

    def inputs(self, function, children, activations, iterations=None) -> dict:
        """As every layer's, with the bias."""
        inputs = super().inputs(function, children, activations, iterations)
        return inputs if self.bias is None else {"bias": self.bias, **inputs}

    def votes(self, primary: Tensor) -> Tensor:
        """Return what each child predicts for each parent: (B, I, D) -> (B, I, J, E)."""
        self.require_children(primary, self.slots, self.weight.shape[3])
        return einsum("ijed,bid->bije", self.matrices(), self.exact(primary))

    def forward(self, primary: Tensor) -> Tensor:
        """Poses of the parents: (B, I, D) -> (B, J, E); see `couple`."""
        return self.couple(primary).poses

    def couple(self, primary: Tensor, activations: Tensor | None = None, couplings=None) -> Parents:
        """Poses and activations of the parents, by the routing's fused form if it can.

        Parameters
        ----------
        primary      (B, I, D).
        activations  (B, I) of the children, for a routing that asks for them; None: their lengths.
        couplings    in place of its own, as its `route` takes them.

        Returns
        -------
        Parents with poses (B, J, E) and activations (B, J), float32 at least.
        """
        with without_autocast(primary.device):
            primary = self.exact(primary)
            if self._fused is None or is_literal() or couplings is not None:
                votes = self.votes(primary)
                routed = self._routed(votes, primary, activations, couplings, None)
                parents = Parents(routed.poses[-1], routed.activations[-1])
            else:
                options = self.inputs(self._fused, primary, activations)
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
            routed = self._routed(votes, self.exact(primary), activations, couplings, iterations)
            if self.norm is None:
                return routed
            each = [self.norm(*one) for one in zip(routed.poses, routed.activations, strict=True)]
            # each stack at a line of its own, by which `wrap` and the checks tell them apart
            poses = torch.stack([pose for pose, _ in each])
            active = torch.stack([activation for _, activation in each])
            return routed._replace(poses=poses, activations=active)

    def _routed(self, votes, primary, activations, couplings, iterations) -> Routing:
        """Before the norm of the parents, if there is one."""
        options = self.inputs(self._route, primary, activations, iterations)
        return self._route(votes, couplings=self.listed(couplings, options), **options)

    def evidence(self, votes: Tensor, routing: Routing, activations: Tensor) -> Tensor:
        """As of any layer; batch norm of the parents divides it as it does their logits."""
        parts = super().evidence(votes, routing, activations)
        return parts if self.norm is None else parts / self.norm.logit_std
