"""One recorded pass of a network, from which its parts are told."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from capsviz.wrapping.flow import Flow
from capsviz.wrapping.layers import Layer


class Trial(NamedTuple):
    """A pass over B images."""

    images: Tensor  # (B, C, H, W) in [0, 1], as outside of the network
    output: Any
    flow: Flow
    layer: Layer | None = None  # whose parents are the classes; None where no softmax was sought
    others: tuple[Layer, ...] = ()

    @property
    def batch(self) -> int:
        """B."""
        return len(self.images)
