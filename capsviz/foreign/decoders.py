"""Put the decoder of a wrapped network in place: given, or found, and held against its own."""

from __future__ import annotations

import torch
from torch import Tensor

from capsviz.foreign import outputs
from capsviz.foreign import poses as class_poses
from capsviz.foreign.decoding import Decoder
from capsviz.foreign.device import followed
from capsviz.foreign.following import rows
from capsviz.foreign.functions import in_words
from capsviz.foreign.leaves import tensors
from capsviz.foreign.network import Wrapped
from capsviz.foreign.report import Fact

CLOSE = 1e-3
TIE = 1e-6  # of scores: either class may be drawn
OTHERS = 4  # more images than in the recorded pass, where a decoder is tried on others


def put_decoder(wrapped: Wrapped, flow, routed, batch, output, images, decode) -> None:
    """A decoder: given, or what the pass does with its masked poses."""
    recipe, shape = wrapped.recipe, wrapped.recipe.image_shape
    if decode is False:
        wrapped.facts.append(Fact("decoder", "none, as given"))
        return
    if decode is not None:
        value = wrapped.look(images, keep=("poses",)).get("poses")
        if value is None:
            raise ValueError("decode= needs poses, and none were found: name them by poses=")
        decode = followed(decode)
        result = decode(value[-1], torch.zeros(batch, dtype=torch.long, device=value.device))
        if not isinstance(result, Tensor) or result.numel() != images.numel():
            form = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
            raise ValueError(
                f"decode= must return images {tuple(images.shape)}, it returned {form}"
            )
        recipe.decode = lambda vectors, classes: decode(vectors, classes).reshape(-1, *shape)
        wrapped.facts.append(Fact("decoder", "given"))
        return
    if routed is None:
        wrapped.facts.append(Fact("decoder", "not looked for: give decode="))
        return
    names = outputs.find_reconstruction(output, images, shape)
    values = outputs.values_of_scores(output, batch, recipe.classes)
    masked = class_poses.of_layer(flow, routed[0].rounds, values, tensors(output)).masked
    decoders: dict[str, list[Decoder]] = {}
    reason = (
        "no output has the size of an image"
        if not names
        else "no mask of the poses that is recognised leads to it"
    )
    for name in names:
        for mask in masked:
            try:
                image = outputs.pick(output, name)
                one = Decoder(wrapped.network, flow, mask, image, shape, batch)
                decoders.setdefault(name, []).append(one)
            except ValueError as error:
                reason = str(error)
    if len(decoders) > 1:
        raise ValueError(
            f"{len(decoders)} outputs could be the reconstruction: "
            f"{', '.join('output' + name for name in decoders)}; give decode=, or decode=False"
        )
    if not decoders:
        missing = Fact("decoder", f"none: {reason}; give decode=lambda poses, classes: ...")
        wrapped.facts.append(missing)
        return
    ((name, tried),) = decoders.items()
    result = outputs.pick(output, name)
    low, high = float(result.min()), float(result.max())
    if not (low >= 0 and high <= 1):
        wrapped.facts.append(
            Fact("decoder", f"output{name} runs from {low:.2g} to {high:.2g}, expected [0, 1]: "
                 "not used; give decode= to bring it there")
        )  # fmt: skip
        return
    value = wrapped.look(images, keep=("poses",))["poses"][-1]
    others = _others(images)
    for decoder in reversed(tried):
        try:
            kept = kept_poses(decoder.masked, value)
            off = float((decoder(value, kept) - result.reshape(images.shape)).abs().max())
        except RuntimeError as error:  # of poses= by hand, that are others than it masks
            said = (
                f"found, but takes no poses {tuple(value.shape)}: not used ({in_words(error)[:80]})"
            )
            continue
        where = ""
        if off <= CLOSE:
            off, where = max(off, _off(wrapped, name, decoder, others)), " with other images"
        if off <= CLOSE:
            recipe.decode = decoder
            said = f"output{name}, {decoder.place}, equal to its own within {off:.1g}"
            scores = wrapped.look(images, keep=("lengths",))["lengths"]
            drawn = scores.gather(1, kept[:, None])[:, 0]
            astray = int((drawn < scores.amax(1) - TIE).sum())
            if 2 * astray > len(images):
                decoder.astray = astray
                said += (
                    f"; it draws another class than the longest of {astray} of "
                    f"{len(images)} images, and a trace the longest"
                )
            break
        said = f"found, but off by {off:.2g}{where}: not used"
    wrapped.facts.append(Fact("decoder", said))


def _others(images: Tensor) -> Tensor:
    """Other images than those of the recorded pass, and more: darker, brighter, shaded."""
    count, generator = len(images) + OTHERS, torch.Generator().manual_seed(len(images) + OTHERS)
    result = torch.rand(count, *images.shape[1:], generator=generator)
    result **= torch.linspace(0.2, 5, count).view(-1, 1, 1, 1)
    result[::3] *= torch.linspace(0, 1, images.shape[-1])
    result[1::3] *= torch.linspace(1, 0, images.shape[-2])[:, None]
    return result.to(images)


def _off(wrapped: Wrapped, name: str, decoder: Decoder, images: Tensor) -> float:
    """How far its pictures of these images are from the network's own, whichever pose that kept."""
    traced = wrapped.look(images, keep=("poses", "lengths"))
    own = outputs.pick(wrapped.passed(images)[0], name).reshape(images.shape)
    poses, winners = traced["poses"][-1], traced["lengths"].argmax(1)
    off = torch.full((len(images),), torch.inf).to(images)
    for shift in range(poses.shape[1]):
        drawn = decoder(poses, (winners + shift) % poses.shape[1])
        off = off.minimum((drawn - own).abs().flatten(1).amax(1))
        if float(off.max()) <= CLOSE:
            break
    return float(off.max())


def kept_poses(masked, poses: Tensor) -> Tensor:
    """Which pose of each image a recorded pass kept."""
    result = masked.event.outputs[0]
    if masked.alone:
        return (poses - result.reshape(len(poses), 1, -1)).abs().sum(2).argmin(1)
    return rows(result, masked.roles).abs().sum(2).argmax(1)
