"""Infer the parts of a network from a recorded pass: capsules, scores, decoder, iterations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from torch import Tensor, nn

from capsviz.wrapping import decoder, grid, outputs, vectors
from capsviz.wrapping.flow import Flow, storage
from capsviz.wrapping.given import read_given
from capsviz.wrapping.layers import Layer, Recorded
from capsviz.wrapping.leaves import tensors
from capsviz.wrapping.network import Bare, Fact, Inferred, Setter, Wrapped
from capsviz.wrapping.recorder import record
from capsviz.wrapping.taps import ChildEntry, Entry, Reader, Recipe, readers_of_layer, tap_of_place

NAMES = re.compile(r"iter|rout|^r$|^n_?r$", re.IGNORECASE)  # of attributes that set iterations


@dataclass(frozen=True)
class Options:
    """The parts that are given to `wrap` by hand; see there."""

    scores: Callable | str | None = None
    poses: Callable | str | None = None
    decode: Callable | bool | None = None
    couplings: Callable | str | None = "softmax"
    grid: tuple[int, int, int] | str | None = "probe"
    votes: Callable | str | None = None
    children: Callable | str | None = None


def infer(network: nn.Module, recipe: Recipe, recorded: Recorded, options: Options) -> Inferred:
    """Return all parts of a network; what is not given is looked for in the recorded pass.

    Raises
    ------
    ValueError  for several candidates for one part, and for what is given and does not fit.
    """
    if options.couplings is None:
        known = Inferred()
    else:
        known = capsules(network, recipe, recorded, options)
    scores, fact = _scores(recipe, recorded, options.scores, "poses" in known.readers)
    known = replace(known, scores=scores, facts=(*known.facts, fact))
    if options.couplings is None:
        return known
    shown = Wrapped(network, recipe, known)
    found = decoder.find(shown, recorded, options.decode)
    places = _places(shown, recorded.images, options.grid)
    setter = _iterations(shown, recorded)
    facts = [Fact("decoder", found.finding), Fact("grid", places.evidence)]
    passes = None if recorded.layer is None else len(recorded.layer.rounds)
    if passes is not None and passes > 1:
        how = f"set by {setter.name}" if isinstance(setter, Setter) else f"fixed: {setter}"
        facts.append(Fact("iterations", f"{passes}, {how}"))
    return replace(
        known,
        facts=(*known.facts, *facts),
        decode=found.decode,
        places=places,
        passes=passes,
        iterations=setter if isinstance(setter, Setter) else None,
        image_bytes=_bytes(recorded.flow) // recorded.batch,
    )


def capsules(
    network: nn.Module, recipe: Recipe, recorded: Recorded, options: Options = Options()
) -> Inferred:  # fmt: skip
    """Return couplings, votes, children and poses alone."""
    layer, flow = recorded.layer, recorded.flow
    readers: dict[str, Reader] = {}
    facts: list[Fact] = []
    entries: tuple[Entry, ...] = ()
    child_entry, children = None, None

    def given(part: str, source: Callable | str) -> int:
        found = read_given(network, recipe, recorded, part, source, children)
        readers[part] = found.reader
        facts.append(Fact("children" if part == "primary" else part, found.finding))
        return found.shape[0]

    if layer is not None:
        readers, entries = readers_of_layer(layer)
        children = layer.children
        facts += _of_layer(layer, recorded.others)
    elif options.couplings is not None:
        children = given("couplings", options.couplings)
    if options.votes is not None:
        count = given("votes", options.votes)
        children = children or count
    if options.children is not None:
        count = given("primary", options.children)
        children = children or count
    elif layer is not None:
        place = vectors.children(flow, layer.rounds[-1])
        if isinstance(place, str):
            facts.append(Fact("children", f"not found: {place}; name them by children="))
        else:
            tap = tap_of_place("primary", place)
            readers["primary"] = (tap,)
            child_entry = ChildEntry(tap.site, tap.name, place.position, place.roles)
            sizes = zip(place.tensor.shape, place.roles, strict=True)
            size = " × ".join(str(n) for n, role in sizes if role == "D")
            where = f"what {place.event.name} in {place.event.place} makes votes of"
            facts.append(Fact("children", f"(B, {children}, {size}), {where}"))
    if options.poses is not None:
        given("poses", options.poses)
    elif layer is not None:
        values = outputs.values_of_scores(
            recorded.output, recorded.batch, recipe.classes, options.scores
        )
        own = vectors.poses(flow, layer.rounds, values, tensors(recorded.output))
        taps = {place.event.site: tap_of_place("poses", place) for place in own.places}
        readers["poses"] = tuple(taps.values())
        place = own.places[-1]
        how = "made by" if place.position < 0 else "what is given to"
        shape = f"(B, {recipe.classes}, {layer.rounds[-1].count('E')})"
        facts.append(Fact("poses", f"{shape}, {how} {place.event.name} in {place.event.place}"))
        if own.doubt is not None:
            facts.append(Fact("poses", own.doubt))
    return Inferred(readers, tuple(facts), None, entries, child_entry, children)


def _of_layer(layer: Layer, others: Iterable[Layer]) -> list[Fact]:
    """Return what a report says of couplings and votes whose softmax was found."""
    last, count = layer.rounds[-1], len(layer.rounds)
    facts = [Fact("couplings", f"softmax in {layer.place}, {count} iteration{'s' * (count > 1)}")]
    if last.scaled:
        facts += [
            Fact("weights", f"couplings are scaled in {last.entry.where} before they weigh votes"),
            Fact(
                "child activations",
                "norms of the children: what couplings are scaled by is not taken for them",
            ),
        ]
    how = {"left": "matmul", "right": "matmul"}.get(last.product.kind, last.product.kind)
    sizes = f"(B, {layer.children}, {layer.parents}, {last.count('E')})"
    facts.append(Fact("votes", f"{sizes}, weighed by {how} in {last.event.place}"))
    return facts + [Fact("also", str(other)) for other in others]


def _scores(
    recipe: Recipe, recorded: Recorded, scores: Callable | str | None, has_poses: bool
) -> tuple[Callable | None, Fact]:
    """Return how scores are made of the output, given or found; None for norms of the poses."""
    output, expected = recorded.output, (recorded.batch, recipe.classes)
    if callable(scores):
        value = scores(output)
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        if shape != expected:
            raise ValueError(f"scores= must return {expected}, it returned {shape}")
        return scores, Fact("scores", "given as a function of the output")
    outputs.require_scores(scores)
    if scores != "norms":
        found = outputs.find_scores(output, recorded.flow, *expected, scores)
        if found is not None:
            return found.of, Fact("scores", found.evidence)
    if not has_poses:
        raise ValueError(
            f"no scores found: expected an output {expected}, the network "
            f"returned {outputs.described(output)}; give scores=lambda out: ..."
        )
    return None, Fact("scores", "norms of the poses")


def _places(shown: Wrapped, images: Tensor, given: tuple[int, int, int] | str | None):
    """Return the positions of the children, given or found."""
    part = next((name for name in ("primary", "votes") if name in shown.parts), None)
    if given is None or part is None:
        why = "none, as given" if given is None else "none: neither children nor votes are found"
        return grid.NOWHERE._replace(evidence=why)
    return grid.find(lambda some: shown.capsules(some, part), images, given, part)


def _iterations(shown: Bare, recorded: Recorded) -> Setter | str | None:
    """Return the attribute that sets the number of iterations, or why there is none."""
    layer = recorded.layer
    if layer is None or len(layer.rounds) < 2:
        return None
    passes, sites = len(layer.rounds), {turn.event.site for turn in layer.rounds}

    def count() -> int:
        run = record(shown.network, lambda: shown.passed(recorded.images[:2]))
        return sum(event.site in sites for event in run.events)

    fits = setters(shown.network, range(passes - 1, passes + 1), passes, count)
    if len(fits) == 1:
        return fits[0]
    return ", ".join(fit.name for fit in fits) or "no attribute found that sets them"


def candidates(network: nn.Module, values: range, *, named: bool = True) -> list[Setter]:
    """Return attributes that hold one of these values, named like a number of iterations or not.

    Those of PyTorch's own modules are left out.
    """
    return [
        Setter(module, attribute, value, f"{name}.{attribute}".strip("."))
        for name, module in network.named_modules()
        if not type(module).__module__.startswith("torch.")
        for attribute, value in list(vars(module).items())
        if type(value) is int and value in values and bool(NAMES.search(attribute)) == named
    ]


def setters(
    network: nn.Module, values: range, passes: int, count: Callable[[], int]
) -> list[Setter]:
    """Return the candidates that, raised by 1, make one iteration more; all are put back.

    Those of other names are tried only if none of these names fits.

    Parameters
    ----------
    passes  that the network makes.
    count   returns how many it makes now.
    """
    for named in (True, False):
        tried = candidates(network, values, named=named)
        if fits := [one for one in tried if _sets(one, passes, count)]:
            return fits
    return []


def _sets(one: Setter, passes: int, count: Callable[[], int]) -> bool:
    setattr(one.module, one.attribute, one.value + 1)
    try:
        return count() == passes + 1
    except Exception:  # the user's code, with a number that it was not made for
        return False
    finally:
        setattr(one.module, one.attribute, one.value)


def _bytes(flow: Flow) -> int:
    sizes = {storage(t): t.numel() * t.element_size() for e in flow.events for t in e.outputs}
    return max(1, sum(sizes.values()))
