"""Find the decoder of a network in its pass: the events from masked poses to a reconstruction.

Neither a module nor its arguments need be known: the recorded events run again with other poses.
They hold the number of images, so poses go through in pieces of that many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from capsviz.wrapping import outputs, vectors
from capsviz.wrapping.environment import in_words, on_cpu
from capsviz.wrapping.flow import Flow, Port, embed
from capsviz.wrapping.layers import Recorded
from capsviz.wrapping.leaves import tensors
from capsviz.wrapping.network import Wrapped
from capsviz.wrapping.vectors import Masked, rows

CLOSE = 1e-3
TIE = 1e-6  # of scores: either class may be decoded
OTHERS = 4  # more images than in the recorded pass, where a decoder is tried on others


class Found(NamedTuple):
    """A decoder, or None with the reason."""

    decode: Callable | None
    finding: str


def find(shown: Wrapped, recorded: Recorded, decode: Callable | bool | None = None) -> Found:
    """Return a given decoder, or the one that the pass runs on its masked poses.

    Parameters
    ----------
    shown   the network as far as it is known: its poses and scores are read.
    decode  as given to `wrap`; False for none.
    """
    if decode is False:
        return Found(None, "none, as given")
    if callable(decode):
        return Found(_given(shown, recorded, decode), "given")
    if recorded.layer is None:
        return Found(None, "not looked for: give decode=")
    decoders, reason = _candidates(shown, recorded)
    if len(decoders) > 1:
        raise ValueError(
            f"{len(decoders)} outputs could be the reconstruction: "
            f"{', '.join('output' + name for name in decoders)}; give decode=, or decode=False"
        )
    if not decoders:
        return Found(None, f"none: {reason}; give decode=lambda poses, classes: ...")
    ((name, tried),) = decoders.items()
    result = outputs.pick(recorded.output, name)
    low, high = float(result.min()), float(result.max())
    if not (low >= 0 and high <= 1):
        return Found(
            None,
            f"output{name} runs from {low:.2g} to {high:.2g}, expected [0, 1]: not used; give "
            "decode= to bring it there",
        )
    found = Found(None, "")
    for decoder in reversed(tried):
        found = _compared(shown, recorded, name, decoder)
        if found.decode is not None:
            break
    return found


def _given(shown: Wrapped, recorded: Recorded, decode: Callable) -> Callable:
    """Return `decode=`, after a test that its result has the size of the images."""
    images, shape = recorded.images, shown.recipe.image_shape
    value = shown.look(images, keep=("poses",)).get("poses")
    if value is None:
        raise ValueError("decode= needs poses, and none were found: name them by poses=")
    decode = on_cpu(decode)
    result = decode(value[-1], torch.zeros(recorded.batch, dtype=torch.long, device=value.device))
    if not isinstance(result, Tensor) or result.numel() != images.numel():
        form = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise ValueError(f"decode= must return images {tuple(images.shape)}, it returned {form}")
    return lambda vectors, classes: decode(vectors, classes).reshape(-1, *shape)


def _candidates(shown: Wrapped, recorded: Recorded) -> tuple[dict[str, list[Decoder]], str]:
    """Return decoders by the name of their output, and why there are none."""
    assert recorded.layer is not None
    shape, output = shown.recipe.image_shape, recorded.output
    names = outputs.find_reconstruction(output, recorded.images, shape)
    if not names:
        return {}, "no output has the size of an image"
    values = outputs.values_of_scores(output, recorded.batch, shown.recipe.classes)
    poses = vectors.poses(recorded.flow, recorded.layer.rounds, values, tensors(output))
    decoders: dict[str, list[Decoder]] = {}
    reason = "no mask of the poses that is recognised leads to it"
    for name in names:
        image = outputs.pick(output, name)
        for mask in poses.masked:
            try:
                one = Decoder(shown.network, recorded.flow, mask, image, shape, recorded.batch)
                decoders.setdefault(name, []).append(one)
            except ValueError as error:
                reason = str(error)
    return decoders, reason


def _compared(shown: Wrapped, recorded: Recorded, name: str, decoder: Decoder) -> Found:
    """Compare a decoder with the network's own output, on the recorded images and on others."""
    images, result = recorded.images, outputs.pick(recorded.output, name)
    traced = shown.look(images, keep=("poses", "lengths"))
    poses, scores = traced["poses"][-1], traced["lengths"]
    try:
        kept = kept_poses(decoder.masked, poses)
        off = float((decoder(poses, kept) - result.reshape(images.shape)).abs().max())
    except RuntimeError as error:  # poses= names others than it masks
        why = in_words(error)[:80]
        return Found(None, f"found, but takes no poses {tuple(poses.shape)}: not used ({why})")
    where = ""
    if off <= CLOSE:
        off = max(off, _off(shown, name, decoder, _others(images)))
        where = " with other images"
    if off > CLOSE:
        return Found(None, f"found, but off by {off:.2g}{where}: not used")
    words = f"output{name}, {decoder.place}, equal to its own within {off:.1g}"
    drawn = scores.gather(1, kept[:, None])[:, 0]
    astray = int((drawn < scores.amax(1) - TIE).sum())
    if 2 * astray > len(images):
        decoder.astray = astray
        words += (
            f"; it draws another class than the longest of {astray} of {len(images)} images, and "
            "a trace the longest"
        )
    return Found(decoder, words)


def _others(images: Tensor) -> Tensor:
    """Return more images than in the recorded pass: darker, brighter, shaded."""
    count, generator = len(images) + OTHERS, torch.Generator().manual_seed(len(images) + OTHERS)
    result = torch.rand(count, *images.shape[1:], generator=generator)
    result **= torch.linspace(0.2, 5, count).view(-1, 1, 1, 1)
    result[::3] *= torch.linspace(0, 1, images.shape[-1])
    result[1::3] *= torch.linspace(1, 0, images.shape[-2])[:, None]
    return result.to(images)


def _off(shown: Wrapped, name: str, decoder: Decoder, images: Tensor) -> float:
    """Return the largest error against the network's own output, whichever pose it kept."""
    traced = shown.look(images, keep=("poses", "lengths"))
    own = outputs.pick(shown.passed(images)[0], name).reshape(images.shape)
    poses, winners = traced["poses"][-1], traced["lengths"].argmax(1)
    off = torch.full((len(images),), torch.inf).to(images)
    for shift in range(poses.shape[1]):
        drawn = decoder(poses, (winners + shift) % poses.shape[1])
        off = off.minimum((drawn - own).abs().flatten(1).amax(1))
        if float(off.max()) <= CLOSE:
            break
    return float(off.max())


def kept_poses(masked: Masked, poses: Tensor) -> Tensor:
    """Return which pose of each image a recorded pass kept."""
    result = masked.event.outputs[0]
    if masked.alone:
        return (poses - result.reshape(len(poses), 1, -1)).abs().sum(2).argmin(1)
    return rows(result, masked.roles).abs().sum(2).argmax(1)


class Decoder:
    """Poses (B, J, E) and classes (B,) -> images (B, C, H, W), as the network decodes its own.

    `place` is where it begins and ends. `astray` counts the images of the recorded pass of which
    the network keeps another pose than that of the highest score; 0 if it is not most of them.

    Raises
    ------
    ValueError  where the reconstruction depends on the images other than by the poses.
    """

    def __init__(
        self, network: nn.Module, flow: Flow, masked: Masked, image: Tensor, image_shape, batch: int
    ):
        self.masked, self.image_shape, self.batch = masked, tuple(image_shape), batch
        self.astray = 0
        self.start: Port = (masked.event.index, 0)
        end = flow.port(image)
        if end is None:
            raise ValueError("the reconstruction does not come from the masked poses")
        self.end: Port = end
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
        """Return events it needs that read weights: these may change later."""
        after: set[int] = set()
        left = [self.end[0]]
        while left:
            for source in flow.sources[left.pop()]:
                if source is not None and source[0] not in {self.start[0], *after}:
                    after.add(source[0])
                    left.append(source[0])
        weights = {id(tensor) for tensor, _, _ in self.own}
        events: set[int] = set()
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
    """Return parameters and buffers with their module and name: `to` may put others there."""
    return [
        (tensor, module, name)
        for module in network.modules()
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]
        if tensor is not None
    ]
