"""A decoder that runs inside the pass: the events from the masked poses on, called again.

Neither a module nor its arguments need be known: what was recorded is done once more with other
poses. The recorded calls hold the number of images, so poses go through in pieces of that many.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from capsviz.wrapping.flow import Flow, Port
from capsviz.wrapping.following import Masked
from capsviz.wrapping.layout import embed
from capsviz.wrapping.leaves import tensors


class Decoder:
    """Poses (B, J, E) and classes (B,) -> images (B, C, H, W), as the network decodes its own.

    `place` says where it begins and ends, `astray` of how many images of the recorded pass the
    network keeps another pose than that of the highest score; 0 where it is not most of them.

    Raises
    ------
    ValueError  where the reconstruction depends on the images by another way than the poses.
    """

    def __init__(
        self, network: nn.Module, flow: Flow, masked: Masked, image: Tensor, image_shape, batch: int
    ):
        self.masked, self.image_shape, self.batch = masked, tuple(image_shape), batch
        self.astray = 0
        self.start: Port = (masked.event.index, 0)
        self.end = flow.port(image)
        needed = flow.ancestors(self.end[0]) | {self.end[0]}
        inside = sorted(flow.descendants(masked.event.index) & needed)
        if self.end[0] not in inside:
            raise ValueError("the reconstruction does not come from the masked poses")
        self.place = f"{flow.events[inside[0]].where} to {flow.events[inside[-1]].where}"
        self.own = own_tensors(network)
        inside = sorted({*inside, *self._of_weights(flow)})
        self.steps = [(flow.events[k], flow.sources[k]) for k in inside]
        known = {self.start[0], *inside}
        for event, sources in self.steps:
            for source in sources:
                if source is not None and source[0] not in known and source[0] in flow.derived:
                    raise ValueError(f"{event.place} also reads the image, not the poses alone")

    def _of_weights(self, flow: Flow) -> set[int]:
        """Events that make of weights what the reconstruction needs: weights may change later."""
        after, left = set(), [self.end[0]]
        while left:
            for source in flow.sources[left.pop()]:
                if source is not None and source[0] not in {self.start[0], *after}:
                    after.add(source[0])
                    left.append(source[0])
        weights, events = {id(tensor) for tensor, _, _ in self.own}, set()
        for k in sorted(after - flow.derived):
            sources = {source[0] for source in flow.sources[k] if source is not None}
            if sources & events or any(id(one) in weights for one in flow.events[k].inputs):
                events.add(k)
        return events

    def __call__(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Decode any number of poses."""
        count = -len(poses) % self.batch
        poses = torch.cat((poses, poses[:1].expand(count, -1, -1)))
        classes = torch.cat((classes, classes[:1].expand(count)))
        pieces = zip(poses.split(self.batch), classes.split(self.batch), strict=True)
        values = torch.cat([self._piece(*piece) for piece in pieces])
        return values[: len(values) - count]

    def _piece(self, poses: Tensor, classes: Tensor) -> Tensor:
        masked, shape = self.masked, self.masked.event.outputs[0].shape
        if masked.alone:
            first = poses[torch.arange(len(poses), device=poses.device), classes].reshape(shape)
        else:
            keep = one_hot(classes, poses.shape[1]).to(poses.dtype)
            first = embed(poses * keep[..., None], "BJE", masked.roles, tuple(shape))
        values: dict[Port, Tensor] = {self.start: first}
        now = {id(old): getattr(module, name) for old, module, name in self.own}
        for event, sources in self.steps:
            new = now | {
                id(old): values[source]
                for old, source in zip(event.inputs, sources, strict=True)
                if source in values
            }
            outputs = tensors(event.repeat(lambda leaf, new=new: new.get(id(leaf), leaf)))
            values.update({(event.index, k): output for k, output in enumerate(outputs)})
        return values[self.end].reshape(len(poses), *self.image_shape)


def own_tensors(network: nn.Module) -> list[tuple[Tensor, nn.Module, str]]:
    """Parameters and buffers with where they are: `to` may put others there."""
    return [
        (tensor, module, name)
        for module in network.modules()
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]
        if tensor is not None
    ]
