"""The two capsule layers: primary capsules from a convolution, class capsules by routing."""

from inspect import signature

import torch
from torch import Tensor, einsum, nn

from capsviz import routing as routings
from capsviz.convolution import convolve
from capsviz.functional import squash


class PrimaryCapsules(nn.Module):
    """Convolutional capsules without routing (section 4 of arXiv:1710.09829).

    A convolution gives types x dimensions channels. A capsule is `dimensions` channels of one type
    at one place: index i = (type * rows + row) * columns + column. There is no ReLU before the
    squash.

    Parameters
    ----------
    channels    of the incoming feature map.
    types       capsule types (32 in the paper).
    dimensions  D, of one capsule (8 in the paper).
    kernel      pixels, of the square kernel.
    stride      pixels.
    scale       factor on the convolution before bias and squash: 1 in the paper's text, 1/types in
                the authors' code, where a softmax over types couples one input to all of them
                (1/(types + 1) if it is leaky: over "none of them" too).
    """

    def __init__(
        self,
        channels: int,
        *,
        types: int = 32,
        dimensions: int = 8,
        kernel: int = 9,
        stride: int = 2,
        scale: float = 1.0,
    ):
        super().__init__()
        self.types, self.dimensions, self.scale = types, dimensions, scale
        convolution = nn.Conv2d(channels, types * dimensions, kernel, stride)
        self.convolution = convolution.to(memory_format=torch.channels_last)

    def forward(self, features: Tensor) -> Tensor:
        """Feature map (B, channels, h, w) -> capsules (B, I, D), squashed, float32."""
        conv = self.convolution
        weight = conv.weight if self.scale == 1 else conv.weight * self.scale
        out = convolve(features, weight, conv.bias, conv.stride[0])
        B, _, rows, columns = out.shape
        capsules = out.reshape(B, self.types, self.dimensions, rows, columns).movedim(2, 4)
        capsules = capsules.reshape(B, self.types * rows * columns, self.dimensions)
        return squash(capsules.to(conv.weight.dtype))


class ClassCapsules(nn.Module):
    """One capsule per class, from all primary capsules by routing ("DigitCaps" in the paper).

    Parameters
    ----------
    children, parents                    I and J.
    child_dimensions, parent_dimensions  D and E.
    routing                              name of a file in `capsviz/routing`.
    iterations                           R, rounds of routing.
    bias                                 learn a (J, E) bias inside routing, as the authors' code.
    detach                               gradients flow through the last iteration only.
    leaky                                children may couple to no parent: `leaky_softmax`.
    std                                  standard deviation of the initial weights.

    Raises
    ------
    ValueError  for an unknown routing, fewer than one iteration, or `detach` or `leaky` of a
                routing that does not have it.
    """

    def __init__(
        self,
        children: int,
        parents: int,
        *,
        child_dimensions: int = 8,
        parent_dimensions: int = 16,
        routing: str = "dynamic",
        iterations: int = 3,
        bias: bool = False,
        detach: bool = False,
        leaky: bool = False,
        std: float = 0.1,
    ):
        super().__init__()
        routings.check_iterations(iterations)
        module = routings.get(routing)  # refuses an unknown name now
        self._route_votes, self._fused = module.route, getattr(module, "fused", None)
        self.routing_name, self.iterations = routing, iterations
        asked = {"detach": detach, "leaky": leaky}
        self.options = {option: True for option, wanted in asked.items() if wanted}
        self._require_options()
        shape = (children, parents, parent_dimensions, child_dimensions)
        self.weight = nn.Parameter(torch.randn(shape) * std)
        shift = nn.Parameter(torch.full((parents, parent_dimensions), 0.1)) if bias else None
        self.register_parameter("bias", shift)

    def _require_options(self) -> None:
        """ValueError for an option that the routing does not have; it need not have any."""
        for function in filter(None, (self._route_votes, self._fused)):
            for option in self.options:
                if option not in signature(function).parameters:
                    raise ValueError(
                        f"the routing '{self.routing_name}' has no option '{option}': "
                        "leave it out, or choose a routing that has it, as 'dynamic'"
                    )

    def votes(self, primary: Tensor) -> Tensor:
        """What each child predicts for each parent: (B, I, D) -> (B, I, J, E)."""
        return einsum("ijed,bid->bije", self.weight, primary)

    def forward(self, primary: Tensor) -> Tensor:
        """Poses of the parents: (B, I, D) -> (B, J, E), by the routing's fused form if it can."""
        if self._fused is not None:
            options = {"iterations": self.iterations, "bias": self.bias, **self.options}
            return self._fused(primary, self.weight, **options)
        return self.route(primary)[1].poses[-1]

    def route(
        self, primary: Tensor, *, couplings: Tensor | None = None, iterations: int | None = None
    ) -> tuple[Tensor, routings.Routing]:
        """The slow path that shows everything: votes (B, I, J, E) and the whole `Routing`."""
        with torch.autocast(primary.device.type, enabled=False):  # routing state stays float32
            return self._route(primary.to(self.weight.dtype), couplings, iterations)

    def _route(self, primary: Tensor, couplings: Tensor | None, iterations: int | None):
        votes = self.votes(primary)
        rounds = self.iterations if iterations is None else iterations
        options = {"iterations": rounds, "bias": self.bias, **self.options}
        return votes, self._route_votes(votes, couplings=couplings, **options)
