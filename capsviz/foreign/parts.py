"""Put the parts of a wrapped network in place: each found in the recorded pass, or as given."""

from __future__ import annotations

import torch
from torch import Tensor

from capsviz.foreign import outputs, vectors
from capsviz.foreign.bare import Bare
from capsviz.foreign.decoding import Decoder
from capsviz.foreign.flow import Flow
from capsviz.foreign.layers import Layer
from capsviz.foreign.network import Wrapped
from capsviz.foreign.report import Fact
from capsviz.foreign.sources import put_source
from capsviz.foreign.taps import tap_of_place, taps_of_layer

CLOSE = 1e-3


def put_layer(wrapped: Wrapped, flow: Flow, layer: Layer, others: list[Layer]) -> None:
    """Couplings, weights, votes and logits of a layer whose softmax was found."""
    recipe, last = wrapped.recipe, layer.rounds[-1]
    recipe.taps, recipe.entries = taps_of_layer(layer)
    recipe.children = layer.children
    count = len(layer.rounds)
    wrapped.facts.append(
        Fact("couplings", f"softmax in {layer.place}, {count} pass{'es' if count > 1 else ''}")
    )
    if last.biased:
        wrapped.peculiar["sums"] = "a bias is added after the softmax"
    if last.scaled:
        wrapped.facts.append(
            Fact("weights", f"couplings are scaled in {last.entry.where} before they weigh votes")
        )
    how = {"left": "matmul", "right": "matmul"}.get(last.product.kind, last.product.kind)
    sizes = (layer.children, layer.parents, last.count("E"))
    wrapped.facts.append(
        Fact("votes", f"(B, {', '.join(map(str, sizes))}), weighed by {how} in {last.event.place}")
    )
    wrapped.facts.extend(Fact("also", str(other)) for other in others)


def put_vectors(wrapped, flow, routed, batch, output, images, votes, children, poses) -> None:
    """Children, votes and poses: given, or before and after the sum of the layer."""
    recipe = wrapped.recipe
    last = routed[0].rounds[-1] if routed is not None else None
    if votes is not None:
        recipe.taps = [tap for tap in recipe.taps if tap.part != "votes"]
        put_source(wrapped, "votes", votes, batch, output)
    if children is not None:
        put_source(wrapped, "primary", children, batch, output)
    elif last is not None:
        place = vectors.children(flow, last)
        if isinstance(place, str):
            wrapped.facts.append(Fact("children", f"not seen: {place}; name them by children="))
        else:
            recipe.taps.append(tap_of_place("primary", place, "BID"))
            size = [
                n for n, role in zip(place.tensor.shape, place.roles, strict=True) if role == "D"
            ]
            wrapped.facts.append(
                Fact("children", f"(B, {recipe.children}, {' × '.join(map(str, size))}), "
                     f"what {place.event.name} in {place.event.place} makes votes of")
            )  # fmt: skip
    if poses is not None:
        put_source(wrapped, "poses", poses, batch, output)
    elif last is not None:
        result = [vectors.poses(flow, one)[0] for one in routed[0].rounds]
        by_site = {}
        for place in result:
            by_site[place.event.site] = tap_of_place("poses", place, "BJE")
        recipe.taps += by_site.values()
        wrapped.facts.append(
            Fact("poses", f"(B, {recipe.classes}, {last.count('E')}), made by "
                 f"{result[-1].event.name} in {result[-1].event.place}")
        )  # fmt: skip


def put_scores(wrapped: Bare, output, flow, batch, scores, routed) -> None:
    """Scores of the output, found or given; else norms of the poses."""
    recipe = wrapped.recipe
    if callable(scores):
        recipe.scores = scores
        value = scores(output)
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        if shape != (batch, recipe.classes):
            raise ValueError(f"scores= must return {(batch, recipe.classes)}, it returned {shape}")
        wrapped.facts.append(Fact("scores", "given as a function of the output"))
        return
    known = ("softmax", "sigmoid", "exp", "norms")
    if scores is not None and scores not in known:
        raise ValueError(f"unknown scores '{scores}', expected a function or one of {known}")
    result = None
    if scores != "norms":
        result = outputs.find_scores(output, flow, batch, recipe.classes, scores)
    if result is not None:
        recipe.scores = result.of
        wrapped.facts.append(Fact("scores", result.evidence))
        return
    if not hasattr(wrapped, "parts") or "poses" not in wrapped.parts:
        raise ValueError(
            f"no scores found: expected an output ({batch}, {recipe.classes}), the network "
            f"returned {outputs.described(output)}; give scores=lambda out: ..."
        )
    wrapped.facts.append(Fact("scores", "norms of the poses"))


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
    masked = [m for one in routed[0].rounds for m in vectors.poses(flow, one)[1]]
    decoders = {}
    reason = (
        "no output has the size of an image"
        if not names
        else "no mask of the poses that is recognised leads to it"
    )
    for name in names:
        for mask in masked:
            try:
                image = outputs.pick(output, name)
                decoders[name] = Decoder(flow, mask, image, shape, batch)
            except ValueError as error:
                reason = str(error)
    if len(decoders) > 1:
        raise ValueError(
            f"{len(decoders)} outputs could be the reconstruction: "
            f"{', '.join('output' + name for name in decoders)}; give decode=, or decode=False"
        )
    for name, decoder in decoders.items():
        result = outputs.pick(output, name)
        low, high = float(result.min()), float(result.max())
        if not (low >= 0 and high <= 1):
            wrapped.facts.append(
                Fact("decoder", f"output{name} runs from {low:.2g} to {high:.2g}, expected [0, 1]: "
                     "not used; give decode= to bring it there")
            )  # fmt: skip
            return
        value = wrapped.look(images, keep=("poses",))["poses"][-1]
        masks = decoder.masked
        kept = kept_poses(masks, value)
        off = float((decoder(value, kept) - result.reshape(images.shape)).abs().max())
        if off > CLOSE:
            wrapped.facts.append(Fact("decoder", f"found, but off by {off:.2g}: not used"))
            return
        recipe.decode = decoder
        wrapped.facts.append(
            Fact("decoder", f"output{name}, {decoder.place}, equal to its own within {off:.1g}")
        )
        return
    wrapped.facts.append(Fact("decoder", f"none: {reason}; give decode=lambda poses, classes: ..."))


def kept_poses(masked, poses: Tensor) -> Tensor:
    """Which pose of each image a recorded pass kept."""
    result = masked.event.outputs[0]
    if masked.alone:
        return (poses - result.reshape(len(poses), 1, -1)).abs().sum(2).argmin(1)
    return vectors.rows(result, masked.roles).abs().sum(2).argmax(1)
