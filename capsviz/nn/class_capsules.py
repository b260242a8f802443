"""Class capsules: one capsule for each class, fed by all primary capsules by routing."""

import torch
from torch import Tensor, einsum, nn

from capsviz.nn import routing as routings
from capsviz.nn.routing import em
from capsviz.nn.routing_layer import ParentNorm, RoutingLayer, initial_matrices


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
        size = parents, parent_dimensions, child_dimensions
        self.weight = initial_matrices(transform, children, types, size, std)
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
