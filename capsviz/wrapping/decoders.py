"""Put the decoder of a wrapped network in place: given, or found, and held against its own."""

from __future__ import annotations

import torch
from torch import Tensor

from capsviz.wrapping import outputs
from capsviz.wrapping import poses as class_poses
from capsviz.wrapping.decoding import Decoder
from capsviz.wrapping.device import followed
from capsviz.wrapping.following import rows
from capsviz.wrapping.functions import in_words
from capsviz.wrapping.leaves import tensors
from capsviz.wrapping.network import Wrapped
from capsviz.wrapping.report import Fact
from capsviz.wrapping.trial import Trial

CLOSE = 1e-3
TIE = 1e-6  # of scores: either class may be drawn
OTHERS = 4  # more images than in the recorded pass, where a decoder is tried on others


def put_decoder(wrapped: Wrapped, trial: Trial, decode=None) -> None:
    """A decoder: given, or what the pass does with its masked poses."""
    if decode is False:
        fact = "none, as given"
    elif decode is not None:
        wrapped.recipe.decode = _by_hand(wrapped, trial, decode)
        fact = "given"
    elif trial.layer is None:
        fact = "not looked for: give decode="
    else:
        fact = _of_pass(wrapped, trial)
    wrapped.facts.append(Fact("decoder", fact))


def _by_hand(wrapped: Wrapped, trial: Trial, decode):
    """`decode=`, whose pictures have the size of the images."""
    images, shape = trial.images, wrapped.recipe.image_shape
    value = wrapped.look(images, keep=("poses",)).get("poses")
    if value is None:
        raise ValueError("decode= needs poses, and none were found: name them by poses=")
    decode = followed(decode)
    result = decode(value[-1], torch.zeros(trial.batch, dtype=torch.long, device=value.device))
    if not isinstance(result, Tensor) or result.numel() != images.numel():
        form = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise ValueError(f"decode= must return images {tuple(images.shape)}, it returned {form}")
    return lambda vectors, classes: decode(vectors, classes).reshape(-1, *shape)


def _of_pass(wrapped: Wrapped, trial: Trial) -> str:
    """Put the decoder of the pass in place, if there is one; what was seen of it, in words."""
    decoders, reason = _candidates(wrapped, trial)
    if len(decoders) > 1:
        raise ValueError(
            f"{len(decoders)} outputs could be the reconstruction: "
            f"{', '.join('output' + name for name in decoders)}; give decode=, or decode=False"
        )
    if not decoders:
        return f"none: {reason}; give decode=lambda poses, classes: ..."
    ((name, tried),) = decoders.items()
    result = outputs.pick(trial.output, name)
    low, high = float(result.min()), float(result.max())
    if not (low >= 0 and high <= 1):
        return (
            f"output{name} runs from {low:.2g} to {high:.2g}, expected [0, 1]: not used; give "
            "decode= to bring it there"
        )
    words = ""
    for decoder in reversed(tried):
        fits, words = _compared(wrapped, trial, name, decoder)
        if fits:
            wrapped.recipe.decode = decoder
            break
    return words


def _candidates(wrapped: Wrapped, trial: Trial) -> tuple[dict[str, list[Decoder]], str]:
    """By name of an output, what leads from a mask of the poses to it; why there is nothing."""
    assert trial.layer is not None
    shape, output = wrapped.recipe.image_shape, trial.output
    names = outputs.find_reconstruction(output, trial.images, shape)
    if not names:
        return {}, "no output has the size of an image"
    values = outputs.values_of_scores(output, trial.batch, wrapped.recipe.classes)
    poses = class_poses.of_layer(trial.flow, trial.layer.rounds, values, tensors(output))
    decoders: dict[str, list[Decoder]] = {}
    reason = "no mask of the poses that is recognised leads to it"
    for name in names:
        image = outputs.pick(output, name)
        for mask in poses.masked:
            try:
                one = Decoder(wrapped.network, trial.flow, mask, image, shape, trial.batch)
                decoders.setdefault(name, []).append(one)
            except ValueError as error:
                reason = str(error)
    return decoders, reason


def _compared(wrapped: Wrapped, trial: Trial, name: str, decoder: Decoder) -> tuple[bool, str]:
    """Whether a decoder draws what the network does, of the recorded images and of others."""
    images, result = trial.images, outputs.pick(trial.output, name)
    traced = wrapped.look(images, keep=("poses", "lengths"))
    poses, scores = traced["poses"][-1], traced["lengths"]
    try:
        kept = kept_poses(decoder.masked, poses)
        off = float((decoder(poses, kept) - result.reshape(images.shape)).abs().max())
    except RuntimeError as error:  # of poses= by hand, that are others than it masks
        why = in_words(error)[:80]
        return False, f"found, but takes no poses {tuple(poses.shape)}: not used ({why})"
    where = ""
    if off <= CLOSE:
        off = max(off, _off(wrapped, name, decoder, _others(images)))
        where = " with other images"
    if off > CLOSE:
        return False, f"found, but off by {off:.2g}{where}: not used"
    words = f"output{name}, {decoder.place}, equal to its own within {off:.1g}"
    drawn = scores.gather(1, kept[:, None])[:, 0]
    astray = int((drawn < scores.amax(1) - TIE).sum())
    if 2 * astray > len(images):
        decoder.astray = astray
        words += (
            f"; it draws another class than the longest of {astray} of {len(images)} images, and "
            "a trace the longest"
        )
    return True, words


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
