"""Find the scores, the reconstruction and the decoder of a network from its recorded output.

A decoder repeats the recorded events from the masked poses to the reconstruction, with other poses.
So neither its module nor its arguments need to be known. The events contain the batch size of the
recorded pass, so poses are decoded in batches of this size.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from capsviz.wrapping import vectors
from capsviz.wrapping.environment import in_words, without_cuda
from capsviz.wrapping.flow import Flow, Port, embed, is_view
from capsviz.wrapping.layers import Recorded
from capsviz.wrapping.leaves import named_tensors, tensors
from capsviz.wrapping.network import Wrapped
from capsviz.wrapping.vectors import Masked

CLOSE = 1e-3  # largest error of a decoder against the network's own reconstruction
TIE = 1e-6  # scores that differ by less are tied; reconstructions are equal

WAYS = {
    "softmax": lambda result: result.softmax(1),
    "sigmoid": lambda result: result.sigmoid(),
    "exp": lambda result: result.exp(),
    "as they are": lambda result: result,
}
SORTS = ("sort", "topk", "msort")
NAMES = ("softmax", "sigmoid", "exp", "norms")  # accepted by scores=; "norms" are the poses'


def require_scores(scores) -> None:
    """Raise ValueError for a name that scores= does not accept."""
    if isinstance(scores, str) and scores not in NAMES:
        raise ValueError(f"unknown scores '{scores}', expected a function or one of {NAMES}")


def described(output) -> str:
    """Return a line with the names and shapes of the tensors in an output."""
    candidates = named_tensors(output)
    if not candidates:
        return f"{type(output).__name__} without tensors"
    return ", ".join(f"output{name} {tuple(t.shape)}" for name, t in candidates)


def pick(output, name: str) -> Tensor:
    """Return the tensor of an output with this name, as from `named_tensors`."""
    return dict(named_tensors(output))[name]


def find_scores(
    output, flow: Flow, batch: int, classes: int, way=None
) -> tuple[Callable | None, str]:
    """Return a function, output -> scores (B, J), and the evidence for it.

    The function is None if no tensor of the output can be the scores. `way` ("softmax", "sigmoid"
    or "exp") makes scores of the tensor. With None the tensor must be in [0, 1], or log
    probabilities. ValueError if several tensors could be the scores, or the values do not fit.
    """
    candidates = _score_candidates(output, batch, classes)
    candidates = _without_logits(candidates or _score_candidates(output, batch, classes, flow))
    for name in [k for k in candidates if _is_sorted(flow, pick(output, k))]:
        del candidates[name]  # columns of a sorted tensor are ranks, not classes
    if not candidates:
        return None, "none found"
    if len(candidates) > 1:
        names = "; ".join(
            f"output{name}{_made_by(flow, pick(output, name))}" for name in candidates
        )
        raise ValueError(
            f"{len(candidates)} outputs could be the scores ({batch}, {classes}): {names}; "
            f"say which: scores=lambda out: out{next(iter(candidates))}"
        )
    ((name, values),) = candidates.items()
    where = f"output{name} {tuple(pick(output, name).shape)}{_made_by(flow, pick(output, name))}"
    way = way or _default_way(values, where)
    suffix = "" if way == "as they are" else f", {way} of it"
    return lambda result: WAYS[way](pick(result, name).flatten(1)), where + suffix


def _is_sorted(flow: Flow, tensor: Tensor) -> bool:
    """Return whether a tensor, or the tensor that it is a view of, was made by a sort."""
    port = flow.port(tensor)
    made = None if port is None else flow.events[port[0]]
    while made is not None and is_view(made):
        made = flow.maker(made, 0)
    return made is not None and made.name in SORTS


def values_of_scores(output, batch: int, classes: int, scores=None) -> list[Tensor]:
    """Return the tensors of an output that may be the scores (B, J).

    If `scores` is a function, return its result.
    """
    if callable(scores):
        value = scores(output)
        fits = isinstance(value, Tensor) and tuple(value.shape) == (batch, classes)
        return [value] if fits else []
    return [] if scores == "norms" else list(_score_candidates(output, batch, classes).values())


def _score_candidates(
    output, batch: int, classes: int, flow: Flow | None = None
) -> dict[str, Tensor]:
    """Return the tensors of the scores' shape (B, J), by name, without duplicates.

    One-hot tensors are left out. With a `flow`, one is kept if it is computed from floating-point
    numbers alone, as a softmax of large numbers is.
    """
    candidates: dict[str, Tensor] = {}
    for name, tensor in named_tensors(output):
        shape = (*tensor.shape[:1], *(n for n in tensor.shape[1:] if n > 1))
        if shape != (batch, classes) or not tensor.is_floating_point():
            continue
        flat = tensor.reshape(batch, classes)
        hot = bool(((flat == 0) | (flat == 1)).all() and (flat.sum(1) == 1).all())
        if hot and flow is not None and (port := flow.port(tensor)) is not None:
            base = flow.maker(flow.events[port[0]], 0) if is_view(flow.events[port[0]]) else None
            event = base or flow.events[port[0]]
            hot = not all(one.is_floating_point() for one in (*event.inputs, *event.outputs))
        if not hot and not any(flat.equal(other) for other in candidates.values()):
            candidates[name] = flat
    return candidates


def _without_logits(candidates: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the candidates without logits.

    Logits are named so or leave [0, 1], and their softmax is another candidate.
    """

    def is_logits(name: str, one: Tensor) -> bool:
        if "logit" not in name and bool(((one >= 0) & (one <= 1)).all()):
            return False
        others = (other for other in candidates.values() if other is not one)
        return any(torch.allclose(one.softmax(1), other, atol=1e-5) for other in others)

    return {name: one for name, one in candidates.items() if not is_logits(name, one)}


def find_reconstruction(output, images: Tensor, image_shape) -> list[str]:
    """Return the names of outputs that have the size of the images but are not the images."""
    size = prod(image_shape)
    return [
        name
        for name, tensor in named_tensors(output)
        if tensor.dim() >= 2
        and len(tensor) == len(images)
        and tensor[0].numel() == size
        and not tensor.reshape(images.shape).equal(images)
    ]


def _default_way(values: Tensor, where: str) -> str:
    """Return the key of `WAYS` for values in [0, 1] or log probabilities; ValueError for others."""
    if not values.isfinite().all():
        count = int((~values.isfinite()).sum())
        raise ValueError(f"{where}: {count} of {values.numel()} scores are not finite")
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 1 + 1e-5:
        return "as they are"
    if high <= 0 and bool(((values.exp().sum(1) - 1).abs() < 1e-4).all()):
        return "exp"
    raise ValueError(
        f"{where} runs from {low:.3g} to {high:.3g}, expected scores in [0, 1]: give "
        'scores="softmax" or scores="sigmoid", or a function of the output'
    )


def _made_by(flow: Flow, tensor: Tensor) -> str:
    """Return a phrase that names the line which made a tensor; "" if it is not in the pass."""
    port = flow.port(tensor)
    return "" if port is None else f", made by {flow.events[port[0]].where}"


def find_decoder(
    shown: Wrapped, recorded: Recorded, decode: Callable | bool | None = None
) -> tuple[Callable | None, str]:
    """Return the given decoder, or the one that the pass applies to its masked poses; and evidence.

    `shown` is the network with the parts found so far. `decode` is the option of `wrap`; False
    means that there is no decoder.
    """
    if decode is False:
        return None, "none, as given"
    if callable(decode):
        return _given_decoder(shown, recorded, decode), "given"
    if recorded.layer is None:
        return None, "not looked for: give decode="
    decoders, reason = _decoders(shown, recorded)
    if len(decoders) > 1:
        raise ValueError(
            f"{len(decoders)} outputs could be the reconstruction: "
            f"{', '.join('output' + name for name in decoders)}; give decode=, or decode=False"
        )
    if not decoders:
        return None, f"none: {reason}; give decode=lambda poses, classes: ..."
    ((name, tried),) = decoders.items()
    low, high = (float(end) for end in pick(recorded.output, name).aminmax())
    if not (low >= 0 and high <= 1):
        return None, (
            f"output{name} runs from {low:.2g} to {high:.2g}, expected images in [0, 1]: not used; "
            "give decode= that returns such images"
        )
    for decoder in reversed(tried):
        used, finding = _checked(shown, recorded.images, name, decoder)
        if used:
            return decoder, finding
    return None, finding


def _given_decoder(shown: Wrapped, recorded: Recorded, decode: Callable) -> Callable:
    """Return the user's `decode`, after a test that its result has the size of the images."""
    images, shape = recorded.images, shown.recipe.image_shape
    value = shown.look(images, keep=("poses",)).get("poses")
    if value is None:
        raise ValueError("decode= needs poses, and none were found: name them by poses=")
    decode = without_cuda()(decode)
    result = decode(value[-1], torch.zeros_like(value[-1, :, 0, 0], dtype=torch.long))
    if not isinstance(result, Tensor) or result.numel() != images.numel():
        form = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise ValueError(f"decode= must return images {tuple(images.shape)}, it returned {form}")
    return lambda vectors, classes: decode(vectors, classes).reshape(-1, *shape)


def _decoders(shown: Wrapped, recorded: Recorded) -> tuple[dict[str, list[Decoder]], str]:
    """Return candidate decoders by the name of their output, and the reason if there are none."""
    assert recorded.layer is not None
    output, reason = recorded.output, "no output has the size of an image"
    values = values_of_scores(output, len(recorded.images), shown.recipe.classes)
    places, _ = vectors.poses(recorded.flow, recorded.layer.rounds, values, tensors(output))
    masks = vectors.masked(recorded.flow, places[-1])
    decoders: dict[str, list[Decoder]] = {}
    for name in find_reconstruction(output, recorded.images, shown.recipe.image_shape):
        reason = "no mask of the poses that is recognised leads to it"
        for mask in masks:
            try:
                one = Decoder(shown.network, recorded, mask, pick(output, name))
                decoders.setdefault(name, []).append(one)
            except ValueError as error:
                reason = str(error)
    return decoders, reason


def _checked(shown: Wrapped, images: Tensor, name: str, decoder: Decoder) -> tuple[bool, str]:
    """Return whether a decoder reproduces the network's own reconstructions, and the evidence."""
    try:
        off, kept, scores = _error_of(shown, name, decoder, images)
    except RuntimeError as error:  # poses= names other poses than the network masks
        return False, f"found, but does not take these poses: not used ({in_words(error)[:80]})"
    if off > CLOSE:
        return False, f"found, but off by {off:.2g}: not used"
    off = max(off, _error_of(shown, name, decoder, _other_images(images))[0])
    if off > CLOSE:
        return False, f"found, but off by {off:.2g} with other images: not used"
    words = f"output{name}, {decoder.place}, equal to its own within {off:.1g}"
    drawn = scores.gather(1, kept[:, None])[:, 0]
    astray = int((drawn < scores.amax(1) - TIE).sum())
    if 2 * astray > len(images):
        decoder.astray = astray
        words += (
            f"; for {astray} of {len(images)} images the network decodes another class than the "
            "one of the highest score, which a trace decodes"
        )
    return True, words


def _other_images(images: Tensor) -> Tensor:
    """Return other random images, more than in the recorded pass: darker, brighter or shaded."""
    count = len(images) + 4
    result = torch.rand(count, *images.shape[1:], generator=torch.Generator().manual_seed(count))
    result **= torch.linspace(0.2, 5, count).view(-1, 1, 1, 1)
    result[::3] *= torch.linspace(0, 1, images.shape[-1])
    result[1::3] *= torch.linspace(1, 0, images.shape[-2])[:, None]
    return result.to(images)


def _error_of(
    shown: Wrapped, name: str, decoder: Decoder, images: Tensor
) -> tuple[float, Tensor, Tensor]:
    """Compare a decoder with the network's own reconstruction.

    Returns
    -------
    The largest absolute error over the images, each with the class (pose) that fits best; the
    class (B,) that fits best; and the scores (B, J).
    """
    traced = shown.look(images, keep=("poses", "lengths"))
    own = pick(shown.passed(images)[0], name).reshape(images.shape)
    poses, winners = traced["poses"][-1], traced["lengths"].argmax(1)
    off, kept = torch.full((len(images),), torch.inf).to(images), winners
    for shift in range(poses.shape[1]):
        classes = (winners + shift) % poses.shape[1]
        now = (decoder(poses, classes) - own).abs().flatten(1).amax(1)
        off, kept = torch.minimum(now, off), torch.where(now < off, classes, kept)
        if float(off.max()) <= TIE:
            break
    return float(off.max()), kept, traced["lengths"]


class Decoder:
    """Decode as the network does: poses (B, J, E) and classes (B,) -> images (B, C, H, W).

    `place` names the first and last line of the decoder's code. For most images of the recorded
    pass the network may decode another class than the one of the highest score: `astray` then
    counts these images; else it is 0. ValueError if the reconstruction is not made of the poses
    alone.
    """

    def __init__(self, network: nn.Module, recorded: Recorded, masked: Masked, image: Tensor):
        flow, self.masked, self.batch, self.astray = recorded.flow, masked, len(recorded.images), 0
        self.image_shape = recorded.images.shape[1:]
        self.start: Port = (masked.event.index, 0)
        end = flow.port(image)
        needed = set() if end is None else {end[0], *flow.ancestors(end[0], self.start[0])}
        of_poses, of_weights = flow.descendants(self.start[0]) & needed, set[int]()
        if end is None or end[0] not in of_poses:
            raise ValueError("the reconstruction does not come from the masked poses")
        self.own = [  # where each weight is found later: `to` may replace the tensors
            (tensor, module, name)
            for module in network.modules()
            for name, tensor in [*module._parameters.items(), *module._buffers.items()]
            if tensor is not None
        ]
        weights = {id(tensor) for tensor, _, _ in self.own}
        for k in sorted(needed - of_poses):  # repeat what is made of weights: they may change later
            if k in flow.derived:
                raise ValueError(
                    f"{flow.events[k].place} also reads the image, not the poses alone"
                )
            made = {source[0] for source in flow.sources[k] if source is not None}
            if made & of_weights or any(id(one) in weights for one in flow.events[k].inputs):
                of_weights.add(k)
        self.end: Port = end
        self.place = f"{flow.events[min(of_poses)].where} to {flow.events[end[0]].where}"
        self.steps = [(flow.events[k], flow.sources[k]) for k in sorted(of_poses | of_weights)]

    def __call__(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Decode any number of poses."""
        count = -len(poses) % self.batch
        poses = torch.cat((poses, poses[:1].expand(count, -1, -1)))
        classes = torch.cat((classes, classes[:1].expand(count)))
        pieces = zip(poses.split(self.batch), classes.split(self.batch), strict=True)
        values = torch.cat([self._piece(*piece) for piece in pieces])
        return values[: len(values) - count]

    def _piece(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Decode as many poses as the recorded pass had images."""
        masked, shape = self.masked, self.masked.event.outputs[0].shape
        if masked.alone:
            first = poses[torch.arange(len(poses), device=poses.device), classes].reshape(shape)
        else:
            keep = one_hot(classes, poses.shape[1]).to(poses.dtype)
            first = embed(poses * keep[..., None], "BJE", masked.roles, tuple(shape))
        values: dict[Port, Tensor] = {self.start: first}
        now = {id(old): getattr(module, name) for old, module, name in self.own}
        for event, sources in self.steps:
            new: dict[int, Any] = now | {
                id(old): values[source]
                for old, source in zip(event.inputs, sources, strict=True)
                if source in values
            }
            outputs = tensors(event.repeat(lambda leaf, new=new: new.get(id(leaf), leaf)))
            values.update({(event.index, k): output for k, output in enumerate(outputs)})
        return values[self.end].reshape(len(poses), *self.image_shape)
