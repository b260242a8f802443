"""Put the parts of a wrapped network in place: each found in the recorded pass, or as given."""

from __future__ import annotations

from torch import Tensor

from capsviz.wrapping import outputs, vectors
from capsviz.wrapping import poses as class_poses
from capsviz.wrapping.bare import Bare
from capsviz.wrapping.leaves import tensors
from capsviz.wrapping.network import Wrapped
from capsviz.wrapping.report import Fact
from capsviz.wrapping.sources import put_source
from capsviz.wrapping.taps import ChildEntry, tap_of_place, taps_of_layer
from capsviz.wrapping.trial import Trial


def put_layer(wrapped: Wrapped, trial: Trial) -> None:
    """Couplings, weights, votes and logits of a layer whose softmax was found."""
    recipe, layer = wrapped.recipe, trial.layer
    assert layer is not None
    last = layer.rounds[-1]
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
        wrapped.facts.append(
            Fact("child activations", "norms of the children: what couplings are scaled by is not "
                 "taken for them")
        )  # fmt: skip
    how = {"left": "matmul", "right": "matmul"}.get(last.product.kind, last.product.kind)
    sizes = (layer.children, layer.parents, last.count("E"))
    wrapped.facts.append(
        Fact("votes", f"(B, {', '.join(map(str, sizes))}), weighed by {how} in {last.event.place}")
    )
    wrapped.facts.extend(Fact("also", str(other)) for other in trial.others)


def put_vectors(
    wrapped: Wrapped, trial: Trial, *, votes=None, children=None, poses=None, scores=None
) -> None:
    """Children, votes and poses: given, or before and after the sum of the layer."""
    recipe, flow, layer = wrapped.recipe, trial.flow, trial.layer
    last = None if layer is None else layer.rounds[-1]
    if votes is not None:
        recipe.taps = [tap for tap in recipe.taps if tap.part != "votes"]
        put_source(wrapped, "votes", votes, trial)
    if children is not None:
        put_source(wrapped, "primary", children, trial)
    elif last is not None:
        place = vectors.children(flow, last)
        if isinstance(place, str):
            wrapped.facts.append(Fact("children", f"not seen: {place}; name them by children="))
        else:
            tap = tap_of_place("primary", place, "BID")
            recipe.taps.append(tap)
            recipe.child_entry = ChildEntry(tap.site, tap.name, place.position, place.roles)
            size = [
                n for n, role in zip(place.tensor.shape, place.roles, strict=True) if role == "D"
            ]
            wrapped.facts.append(
                Fact("children", f"(B, {recipe.children}, {' × '.join(map(str, size))}), "
                     f"what {place.event.name} in {place.event.place} makes votes of")
            )  # fmt: skip
    if poses is not None:
        put_source(wrapped, "poses", poses, trial)
    elif layer is not None and last is not None:
        values = outputs.values_of_scores(trial.output, trial.batch, recipe.classes, scores)
        own = class_poses.of_layer(flow, layer.rounds, values, tensors(trial.output))
        by_site = {}
        for place in own.places:
            by_site[place.event.site] = tap_of_place("poses", place, "BJE")
        recipe.taps += by_site.values()
        place = own.places[-1]
        how = "made by" if place.position < 0 else "what is given to"
        wrapped.facts.append(
            Fact("poses", f"(B, {recipe.classes}, {last.count('E')}), {how} "
                 f"{place.event.name} in {place.event.place}")
        )  # fmt: skip
        if own.doubt is not None:
            wrapped.facts.append(Fact("poses", own.doubt))


def put_scores(wrapped: Bare, trial: Trial, scores) -> None:
    """Scores of the output, found or given; else norms of the poses."""
    recipe, output, batch = wrapped.recipe, trial.output, trial.batch
    if callable(scores):
        recipe.scores = scores
        value = scores(output)
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        if shape != (batch, recipe.classes):
            raise ValueError(f"scores= must return {(batch, recipe.classes)}, it returned {shape}")
        wrapped.facts.append(Fact("scores", "given as a function of the output"))
        return
    outputs.require_scores(scores)
    result = None
    if scores != "norms":
        result = outputs.find_scores(output, trial.flow, batch, recipe.classes, scores)
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
