"""Classes and a layer that are told must be those of the network."""

from __future__ import annotations

from math import prod

from torch import Tensor

from capsviz.wrapping.flow import Flow
from capsviz.wrapping.layers import Layer, chosen
from capsviz.wrapping.leaves import tensors

ROUNDED = 1e-3  # of sums of couplings


def require_classes(layers: list[Layer], output, classes: int) -> None:
    """The number of parents, where the output shows that they are the classes.

    Parameters
    ----------
    layers  of a recorded pass.
    output  what it returned.

    Raises
    ------
    ValueError  where neither a layer nor an output has an axis of the classes, and an output is of
                another layer's parents.
    """
    outputs = tensors(output)
    if any(layer.parents == classes for layer in layers):
        return
    if any(classes in tensor.shape[1:] for tensor in outputs):  # routed in a way that is not seen
        return
    for layer in reversed(layers):
        if any(_is_of(layer, tensor) for tensor in outputs):
            raise ValueError(f"expected {classes} classes, the network has {layer}")


def require_pair(layers: list[Layer], flow: Flow, classes: int, pair: str) -> None:
    """ValueError where a pair names no softmax that weighs votes for the classes, or several."""
    own = [layer for layer in layers if layer.parents == classes]
    if not own:
        raise ValueError(f"pair '{pair}' names none: no softmax weighs votes for {classes} parents")
    chosen(own, flow, pair)


def places(couplings: Tensor) -> int | None:
    """At how many places couplings (B, I, J) of a child sum to 1 over parents; None where at none.

    Of a fully connected layer it is 1; in a convolutional one the parents of each place are chosen
    between.
    """
    sums = couplings.double().sum(2)
    count = max(1, round(float(sums.mean())))
    fits = couplings.shape[2] % count == 0 and float((sums / count - 1).abs().max()) <= ROUNDED
    return count if fits else None


def _is_of(layer: Layer, tensor: Tensor) -> bool:
    """Whether a tensor may be the layer's poses, or their lengths."""
    shape = tuple(tensor.shape[1:])
    pose = layer.rounds[-1].count("E")
    return layer.parents in shape and prod(shape) in (layer.parents, layer.parents * pose)
