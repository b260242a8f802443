"""Describe a network: output, parameters and multiply-adds of every layer, and its memory.

A copy of the network runs on the "meta" device, without data, so the pass computes nothing.
Multiply-adds are those of one forward pass of one image, independent of how products are computed.
They are counted for convolutions, linear layers, votes and dynamic routing; `not_counted` names
the rest, such as another routing.
"""

import copy
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from capsviz.nn import models
from capsviz.nn.capsule_layer import CapsuleLayer
from capsviz.nn.computation import literal
from capsviz.nn.routing import Parents

NOT_COUNTED = "biases, activations, squash, softmax, batch norm, averages"
DECODER = "decoder"  # prefix of the names of its layers


class Layer(NamedTuple):
    """One row of the table; sizes are those of one image."""

    name: str
    kind: str
    output: tuple[int, ...] | None  # None: not used in a forward pass
    parameters: int
    multiply_adds: int | None  # None: not counted


class Description(NamedTuple):
    """Layers in the order of their definition, and totals."""

    network: str
    image_shape: tuple[int, int, int]  # C, H, W
    classes: int
    layers: list[Layer]
    parameters: int
    parameters_without_decoder: int
    multiply_adds: int  # of one image, decoder and routing included
    multiply_adds_without_decoder: int
    batch_size: int
    weights_bytes: int  # with buffers
    training_bytes: int | None  # estimated peak of a step with a batch; None: no estimate
    image_bytes: int | None  # estimated peak for one image
    not_counted: str  # operations, and names of layers, without multiply-adds


def describe(model: Any, *, batch_size: int = 128) -> Description:
    """Describe a network without changing it.

    Parameters
    ----------
    model       any of `capsviz.nn.models`, on any device, "meta" included.
    batch_size  images in the training step whose memory is estimated.
    """
    C, H, W = model.config["image_shape"]
    shape = (C, H, W)
    layers = _layers(copy.deepcopy(model).to("meta").eval(), shape)
    body = [layer for layer in layers if layer.name.partition(".")[0] != DECODER]
    unknown = [row.name for row in layers if row.multiply_adds is None and row.output is not None]
    stored = [*model.parameters(), *model.buffers()]
    return Description(
        network=models.name_for(model) or type(model).__name__,
        image_shape=shape,
        classes=model.config["classes"],
        layers=layers,
        parameters=sum(layer.parameters for layer in layers),
        parameters_without_decoder=sum(layer.parameters for layer in body),
        multiply_adds=sum(layer.multiply_adds or 0 for layer in layers),
        multiply_adds_without_decoder=sum(layer.multiply_adds or 0 for layer in body),
        batch_size=batch_size,
        weights_bytes=sum(t.numel() * t.element_size() for t in stored),
        training_bytes=models.training_bytes(model, batch_size),
        image_bytes=getattr(model, "image_bytes", None),
        not_counted=", ".join([NOT_COUNTED, *unknown]),
    )


def _layers(model: Any, image_shape: tuple[int, int, int]) -> list[Layer]:
    outputs: dict[str, tuple[int, ...]] = {}

    def note(name, module, inputs, output):
        if isinstance(output, Tensor):  # capsules are described by `_capsules`
            outputs[name] = tuple(output.shape[1:])

    for name, module in model.named_modules():
        module.register_forward_hook(partial(note, name))
        if isinstance(module, CapsuleLayer):  # counted by formula, so not run
            of_layer = partial(_parents, prod(module.grid), prod(module.pose_shape))
            module.forward = of_layer  # type: ignore[method-assign]
    with FlopCounterMode(display=False) as counter, torch.no_grad(), literal():
        output = model(torch.empty(1, *image_shape, device="meta"))
        if getattr(model, DECODER, None) is not None:
            model.decode(output.poses, torch.zeros(1, dtype=torch.int64, device="meta"))
    operations = counter.get_flop_counts()
    layers = []
    for name, module in model.named_modules():
        own = sum(p.numel() for p in module.parameters(recurse=False))
        if isinstance(module, CapsuleLayer):
            layers += _capsules(name, module)
        elif own and not isinstance(module, nn.ParameterDict):  # a routing's, listed there
            counted = operations.get(f"{type(model).__name__}.{name}")
            products = sum(counted.values()) // 2 if counted else None
            layers.append(Layer(name, type(module).__name__, outputs.get(name), own, products))
    return layers


def _parents(J: int, E: int, children: Tensor, activations=None, couplings=None) -> Parents:
    """Return empty parents of the right shape, without computing them."""
    return Parents(children.new_empty(len(children), J, E), children.new_empty(len(children), J))


def _capsules(name: str, module: CapsuleLayer) -> list[Layer]:
    """Return a row for the votes and one for the routing.

    Dynamic routing has a sum over children per iteration, and an agreement between two iterations.
    """
    J, D, I = module.parent_types, module.weight.shape[3], module.slots
    Q, E = prod(module.grid[1:]), prod(module.pose_shape)
    rounds = module.iterations
    learned = sum(p.numel() for p in module.parameters()) - module.weight.numel()
    agreement = (2 * rounds - 1) * Q * I * J * E if module.routing_name == "dynamic" else None
    kind = f"{module.routing_name}, {rounds} iteration{'s' * (rounds > 1)}"
    votes = ((Q, I, J, E) if Q > 1 else (I, J, E)), module.weight.numel(), Q * I * J * E * D
    return [
        Layer(f"{name}: votes", type(module).__name__, *votes),
        Layer(f"{name}: routing", kind, (Q * J, E), learned, agreement),
    ]
