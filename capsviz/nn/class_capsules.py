"""Class capsules: one capsule for each class, fed by all primary capsules by routing."""

import torch
from torch import Tensor, einsum, nn

from capsviz.nn import routing as routings
from capsviz.nn.computation import without_autocast
from capsviz.nn.routing import Parents, Routing, em
from capsviz.nn.routing_layer import ParentNorm, RoutingLayer, initial_std, matrix_count


class ClassCapsules(RoutingLayer):
    """One capsule per class, from all primary capsules by routing ("DigitCaps" in the paper).

    Parameters
    ----------
    children, parents                    I and J.
    child_dimensions, parent_dimensions  D and E.
    routing, iterations                  name of a file in `routing`, and R; None is 3, or 1 of one
                                         pass.
    bias                                 learn a (J, E) bias inside routing, as the authors' code.
    transform                            "own": a matrix for each child and parent. "type": the
                                         children of a type share theirs. "shared": all do.
    types                                of children, for "type": child i is of type i // (I/types).
    std                                  standard deviation of initial weights; None: `initial_std`.
    options                              more of what the routing takes, as `leaky`; None and False
                                         are left out. With EM's `final_temperature`, what it
                                         learns begins as `em.class_parameters` has it.

    Raises
    ------
    ValueError  for unknown names, types that do not divide the children, iterations of one pass, or
                an option that the routing does not have.
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
        transform: str = "own",
        types: int = 1,
        std: float | None = None,
        **options,
    ):
        super().__init__(routing, iterations, children)
        self.options = {k: v for k, v in options.items() if v is not None and v is not False}
        learned = self.initial(parents, child_dimensions, parent_dimensions)
        if (final := self.options.get("final_temperature")) is not None:
            of_classes = em.class_parameters(parents, final, self.options.get("floor", em.FLOOR))
            learned |= {name: of_classes.get(name, value) for name, value in learned.items()}
        self.require_options([*self.options, *(["bias"] if bias else [])], learned)
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

    def couple(
        self, children: Tensor, activations: Tensor | None = None, couplings=None
    ) -> Parents:
        """As of any layer; with batch norm of the parents, if the routing asks for it."""
        parents = super().couple(children, activations, couplings)
        with without_autocast(children.device):
            return parents if self.norm is None else self.norm(*parents)

    def route_votes(
        self, votes, children, activations=None, *, couplings=None, iterations=None
    ) -> Routing:
        """As of any layer; with batch norm after each iteration, if the routing asks for it."""
        more = {"couplings": couplings, "iterations": iterations}
        routed = super().route_votes(votes, children, activations, **more)
        if self.norm is None:
            return routed
        with without_autocast(children.device):
            each = [self.norm(*one) for one in zip(routed.poses, routed.activations, strict=True)]
            # each stack at a line of its own, by which `wrap` and the checks tell them apart
            poses = torch.stack([pose for pose, _ in each])
            active = torch.stack([activation for _, activation in each])
        return routed._replace(poses=poses, activations=active)

    def evidence(self, votes: Tensor, routing: Routing, activations: Tensor) -> Tensor:
        """As of any layer; batch norm of the parents divides it as it does their logits."""
        parts = super().evidence(votes, routing, activations)
        return parts if self.norm is None else parts / self.norm.logit_std
