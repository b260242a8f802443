"""Wrap a user-defined capsule network, so that it can be traced and analysed, in three steps.

record   one pass of a few images: `recorder`, `flow` (its graph), `layers` (routing)
infer    its parts: `vectors` (children, poses), `outputs` (scores, decoder), `grid`, `given`
verify   the result: `capsviz.tracing.verify`

Parts that the user does not give are inferred, and the report shows the evidence. Several
candidates for a part are an error. The result is a `network.Wrapped`, which reads the parts of any
pass with `taps`.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from capsviz.nn.images import like_of
from capsviz.tracing import abilities, evaluating, verification, verify
from capsviz.wrapping import grid as grids
from capsviz.wrapping import outputs, vectors
from capsviz.wrapping.environment import (
    ANY,
    as_written,
    beside_images,
    one_line,
    raised_at,
    restored,
)
from capsviz.wrapping.flow import Flow, arrange
from capsviz.wrapping.given import by_hand, read_given, recipe_of, whole_grid
from capsviz.wrapping.layers import BATCHES, Layer, Recorded, Round, chosen, layers, seen
from capsviz.wrapping.leaves import tensors
from capsviz.wrapping.network import Bare, Inferred, Setter, Wrapped
from capsviz.wrapping.recorder import Recorder, memory
from capsviz.wrapping.taps import (
    ChildEntry,
    Recipe,
    Watched,
    called,
    readers_of_layer,
    tap_of_place,
)  # fmt: skip

NAMES = re.compile(r"iter|rout|^r$|^n_?r$", re.IGNORECASE)  # attributes that may set iterations
FIXED = "invalid for input of size"  # in torch's error for a view with a fixed batch size


class NoCapsulesError(ValueError):
    """Raised if no couplings are found: nothing weighs the votes, or not by one number per vote."""


def wrap(
    network: nn.Module,
    image_shape: tuple[int, int, int] | None = None,
    classes: int | None = None,
    *,
    capsules: int | None = None,
    example: Any = None,
    normalise: tuple | None = None,
    call: Callable | None = None,
    scores: Callable | str | None = None,
    poses: Callable | str | None = None,
    decode: Callable | bool | None = None,
    couplings: Callable | str | None = "softmax",
    pair: str | None = None,
    grid: tuple[int, int, int] | str | None = "probe",
    votes: Callable | str | None = None,
    children: Callable | str | None = None,
    card: Mapping | None = None,
) -> Wrapped | Bare:
    """Wrap a capsule network, so that `capsviz.trace` and the analyses accept it.

    Parameters
    ----------
    network      any module; it is not copied, and afterwards it is unchanged.
    image_shape  (C, H, W) of its images.
    classes      number of classes, if each has a capsule in the last routed layer; else give
    capsules     number of capsules in that layer, if they are attributes, parts or inputs of a
                 classifier. The network can then be traced, and scores are those of the capsules.
                 To evaluate it, wrap it once more with `classes` and couplings=None.
    example      a few inputs, in place of `image_shape`, if they are not images: a tensor, a tuple
                 of tensors, or a dict of tensors (by argument name, or if the network takes a
                 dict). The first axis is the batch. Random inputs like these are drawn.
                 `capsviz.trace` takes inputs of this form. Analyses take them as one tensor
                 (N, ...), which `rows(inputs)` of the wrapped network returns.
    normalise    (mean, standard deviation) for the network's images, as numbers or one for each
                 channel; callers still pass images in [0, 1].
    call         (network, images) -> output; None: network(images).
    scores       output -> (B, J) in [0, 1]; or "softmax", "sigmoid" or "exp", applied to the output
                 that is found; or "norms" of the poses. None: an output in [0, 1] or of log
                 probabilities if there is one, else the norms.
    poses        name of the module that returns them ("head[1]" for one of several tensors),
                 "module.method:variable", or output -> (B, J, E). None: inferred.
    decode       (poses (B, J, E), classes (B,)) -> images in [0, 1]. None: inferred; False: the
                 network has no decoder.
    couplings    name of the torch function whose result weighs the votes: "softmax", "sigmoid", or
                 "clamp" at the end of a sparsemax. Or "module.method:variable", a local variable
                 ("method:variable" in the network itself), or output -> (B, I, J). None: the
                 network has no capsules.
    pair         which softmax, if there are several: the name of its module, or a part of its
                 line in the error that lists them.
    grid         (types, rows, columns) of the children, ordered type by type; it is checked
                 against the pixels that change them. "probe" infers it by changing rows and columns
                 of an image. None: children have no positions, so there are no maps.
    votes        "module.method:variable" or output -> (B, I, J, E). None: inferred.
    children     name of the module that returns them, "module.method:variable", or
                 output -> (B, I, D). None: inferred.
    card         name, data set and more, for results. The key "children" may hold names of the
                 tokens or features whose capsules are routed, for maps.

    Returns
    -------
    A network with `look`, `decode`, `grid`, `receptive_field`, `config`, `card` and `report()`;
    for couplings=None one that gives only scores.

    Raises
    ------
    NoCapsulesError  a ValueError, if no softmax is found that weighs votes.
    ValueError  if the network has `look`; if it fails on images; if a given function raises (the
                message names the option and the line); if there are several candidates for a part
                (the message lists them); if scores are outside [0, 1] or depend on the other images
                of a batch.
    """
    if not isinstance(network, nn.Module):
        raise TypeError(f"expected a network, a torch.nn.Module, got {type(network).__name__}")
    if isinstance(network, Bare):
        raise ValueError(f"this {type(network.network).__name__} is wrapped already")
    if abilities(network).has_capsules:
        raise ValueError(
            f"a {type(as_written(network)).__name__} has a `look` and needs no wrapping: call "
            "capsviz.trace(network, images)"
        )
    call, pair, card = by_hand(call=call, pair=pair, card=card)
    parts = by_hand(scores=scores, poses=poses, decode=decode, couplings=couplings, votes=votes,
                    children=children)  # fmt: skip
    options = Options(whole_grid(grid), *parts)
    network = as_written(network)
    recipe = recipe_of(
        network, image_shape, classes, capsules=capsules, example=example, normalise=normalise,
        call=call, pair=pair,
    )  # fmt: skip
    card = {"name": type(network).__name__, "dataset": {"name": "unknown"}, **(card or {})}
    kind: type[Bare] = Bare if couplings is None else Wrapped
    with evaluating(network), restored(network), torch.no_grad(), torch.random.fork_rng(devices=[]):
        named = couplings if isinstance(couplings, str) and ":" not in couplings else None
        recipe, recorded = _record(network, recipe, named)
        wrapped = kind(network, recipe, infer(network, recipe, recorded, options), card)
        taken = "images" if example is None else "inputs"
        how = f"{'given' if call else f'network({taken})'}: {outputs.described(recorded.output)}"
        wrapped.inferred.facts.insert(0, ("call", how))
        _try_out(wrapped, recorded)
        _infer_below(wrapped, recorded)
        wrapped.config["classes"] = classes
        verify(wrapped, recorded.images)
    return wrapped


def _try_out(shown: Bare, recorded: Recorded) -> None:
    """Try single images and replaced children, compare with a CapsNet, and add the findings."""
    images, known = recorded.images, shown.inferred
    if _refuses_one(shown, images):
        shown.recipe = replace(shown.recipe, smallest=2)
        known.say("batch", "cannot take one image: single images are run twice in one batch")
    if shown.recipe.cuda:
        known.say("device", "its code asks for a GPU: it is run on the CPU")
    if not isinstance(shown, Wrapped):
        return
    if (why := _refuses_children(shown, images)) is not None:
        known.child_entry = None
        finding = f"can be read, not replaced: the classes depend on more than the children ({why})"
        known.say("children", finding)
    seen = shown.look(images, keep=(both := ("couplings", "poses")))
    if len({len(seen[part]) for part in both if part in seen}) > 1:
        known.last_alone = True
        known.say("iterations", "poses are found for the last only, so a trace gives only the last")
    known.peculiar = verification.differences(shown, images)
    if recorded.layer is not None:
        last = recorded.layer.rounds[-1]
        if last.biased:
            known.peculiar["sums"] = "a bias is added after the softmax"
        poses = seen.get("poses")
        event = None if poses is None else vectors.bias(recorded.flow, last, poses[-1])
        if event is not None:
            known.peculiar["votes"] = f"a bias is added to the sum of the votes in {event.place}"
    for reason in known.peculiar.values():
        known.say("note", reason)


def _infer_below(top: Bare, recorded: Recorded) -> None:
    """Infer the earlier routed layers that lead to the classes, and report all other layers."""
    known = top.inferred
    for one in recorded.others:
        own = recorded._replace(layer=one)
        recipe = replace(top.recipe, classes=one.parents)
        finding = f"{one}: trace it by capsules={one.parents}"
        if recorded.layer is not None and one.leads_to(recorded.layer, recorded.flow):
            try:
                options = Options(scores="norms", decode=False)
                shown = Wrapped(top.network, recipe, infer(top.network, recipe, own, options))
                _try_out(shown, own)
                if wrong := next(verification.mistakes(shown, recorded.images), None):
                    raise ValueError(wrong)
                doubts = [text for _, text in shown.inferred.facts if "in doubt" in text]
                finding = "; ".join([f"{one}: trace it by layer={len(known.below)}", *doubts])
                shown.inferred.parents = one.parents
                known.below.append(shown.inferred)
            except ValueError as error:
                finding += f", because it cannot be traced along with the classes: {error}"
        known.say("also", finding)


def _refuses_one(shown: Bare, images: Tensor) -> bool:
    """Return whether one image alone fails, or gets other scores than in a batch."""
    whole = verification.lengths_of(shown, images)
    try:
        alone = verification.lengths_of(shown, images[:1])
        return bool(verification.apart(alone, whole[:1]))
    except Exception:  # the user's code may raise anything
        return True


def _refuses_children(shown: Wrapped, images: Tensor) -> str | None:
    """Return why children cannot be replaced, or None.

    The children of images, put in without the images, must give the same scores.
    """
    if shown.inferred.child_entry is None:
        return None
    traced = shown.look(images, keep=("primary", "lengths"))
    try:
        again = shown.from_children(traced["primary"]).activations
        off = verification.apart(again, traced["lengths"])
        return f"scores then differ by {off:.2g}" if off else None
    except Exception as error:  # the user's code may raise anything
        return f"{type(error).__name__}: {one_line(error)[:80]}"


def _record(network: nn.Module, recipe: Recipe, weighing: str | None) -> tuple[Recipe, Recorded]:
    """Record passes with more and more images, until the routing of the classes is found.

    `weighing` is the name of the function whose result weighs the votes; with None, one pass is
    recorded and no routing is looked for. The recipe is returned too, because it may have changed:
    code that asks for a GPU is run on the CPU.
    """
    like, classes = like_of(network), recipe.classes
    tried: list[Layer] = []
    for batch in [n for n in BATCHES if n != classes]:
        images = recipe.draw(batch, batch).to(like)
        recipe, output, flow = first_pass(network, recipe, images)
        if weighing is None:
            return recipe, Recorded(images, output, flow, [])
        known = layers(flow, batch, classes, weighing)
        tried = tried or known
        own = [layer for layer in known if layer.parents == classes]
        if own:
            layer = chosen(own, flow, recipe.pair)
            if layer.apart is not None:
                raise NoCapsulesError(
                    f"{layer.said_apart}; wrap it with couplings=None: then evaluate, sweep and "
                    "corrupt can be run"
                )
            return recipe, Recorded(images, output, flow, known, layer)
    raise NoCapsulesError(_no_capsules(network, classes, tried, flow, batch, weighing or ""))


def first_pass(network: nn.Module, recipe: Recipe, images: Tensor) -> tuple[Recipe, Any, Flow]:
    """Record one pass; return the recipe, the output and the graph.

    If the code asks for a GPU and there is none, the returned recipe runs it on the CPU.
    """
    try:
        return recipe, *recipe.record(network, images)
    except Exception as error:
        reason = one_line(error)
        of_gpu = any(word in reason.lower() for word in ("cuda", "nvidia"))
        if of_gpu and not recipe.cuda and not torch.cuda.is_available():
            return first_pass(network, replace(recipe, cuda=True), images)
        alone = recipe.call is called and recipe.example is None
        needed = [p.default is p.empty and p.kind not in ANY for p in beside_images(network)]
        if isinstance(error, TypeError) and alone and any(needed):
            needs = f"{type(network).__name__}.forward{inspect.signature(network.forward)}"
            raise ValueError(
                f"the network cannot be called with images alone: {needs}; give "
                f"call=lambda net, images: ... ({reason[:120]})"
            ) from error
        fixed = "; if only one batch size fits, pad the batch in call=" if FIXED in reason else ""
        what = "images" if recipe.example is None else "inputs like the example, as rows"
        raise ValueError(
            f"the network refuses {what} {tuple(images.shape)}: {type(error).__name__}: "
            f"{reason[:200]}{raised_at(error)}{fixed}"
        ) from error


def _no_capsules(
    network: nn.Module, classes: int, tried: list[Layer], flow: Flow, batch: int, weighing: str
) -> str:
    """Return the message that no softmax weighs votes, with those found and what to do."""
    name = type(network).__name__
    if isinstance(network, torch.jit.ScriptModule):
        return (
            f"TorchScript runs {name}, which cannot be recorded: wrap the network that was "
            "scripted or traced"
        )
    words = seen(flow, tried, weighing)
    if tried:
        words += f" (if the capsules are not classes, give capsules={tried[-1].parents})"
    if any(layer.parents == classes + 1 for layer in tried):
        words += f" (if one of them is not a class, give classes={classes + 1})"
    return (
        f"no capsules found in {name}: no {weighing} weighs votes for {classes} parents in a "
        f"pass of {batch} inputs{words}; "
        "name the couplings by couplings='sigmoid' or another function of torch that makes them, "
        "'module.method:variable' ('method:variable' of the network itself) or couplings=lambda "
        "output: ..., give the network a `look`, or, if it has none, wrap it with couplings=None: "
        "then evaluate, sweep and corrupt can be run"
    )


@dataclass(frozen=True)
class Options:
    """The options of `wrap` that name parts of a network."""

    grid: tuple[int, int, int] | str | None = "probe"
    scores: Callable | str | None = None
    poses: Callable | str | None = None
    decode: Callable | bool | None = None
    couplings: Callable | str | None = "softmax"
    votes: Callable | str | None = None
    children: Callable | str | None = None


def infer(network: nn.Module, recipe: Recipe, recorded: Recorded, options: Options) -> Inferred:
    """Return all parts of a network, as given in `options` or found in the recorded pass."""
    known = Inferred()
    if options.couplings is not None:
        known = capsules(network, recipe, recorded, options)
    known.scores, finding = _find_scores(recipe, recorded, options.scores, "poses" in known.readers)
    known.say("scores", finding)
    if options.couplings is None:
        return known
    shown = Wrapped(network, recipe, known)
    _fit_to_sum(shown, recorded)
    known.decode, finding = outputs.find_decoder(shown, recorded, options.decode)
    known.say("decoder", finding)
    known.places = _find_places(shown, recorded.images, options.grid)
    known.say("grid", known.places.evidence)
    made = (t for event in recorded.flow.events for t in event.outputs)
    sizes = {memory(t, whole=False): t.numel() * t.element_size() for t in made}
    known.image_bytes = max(1, sum(sizes.values())) // len(recorded.images)
    if recorded.layer is not None:
        known.passes = len(recorded.layer.rounds)
        if known.passes > 1:
            known.iterations, how = _find_setter(shown, recorded, recorded.layer)
            known.say("iterations", f"{known.passes}, {how}")
    return known


def capsules(network: nn.Module, recipe: Recipe, recorded: Recorded, options: Options) -> Inferred:
    """Return the couplings, votes, children and poses of a network, without the other parts."""
    layer, flow, known = recorded.layer, recorded.flow, Inferred()

    def given(part: str, source: Callable | str) -> None:
        found = read_given(network, recipe, recorded, part, source, known.children)
        known.readers[part], count, finding = found
        known.say("children" if part == "primary" else part, finding)
        if part != "poses":
            known.children = known.children or count

    if layer is not None:
        known.readers, known.entries = readers_of_layer(layer)
        known.children = layer.children
        known.reads["votes"] = flow.occurrence(layer.rounds[0].event)
        _report_layer(known, layer)
    elif options.couplings is not None:
        given("couplings", options.couplings)
    if options.votes is not None:
        given("votes", options.votes)
    if options.children is not None:
        given("primary", options.children)
    elif layer is not None:
        place = vectors.children(flow, layer.rounds[-1])
        if isinstance(place, str):
            known.say("children", f"not found: {place}; name them by children=")
        else:
            tap = tap_of_place("primary", place)
            known.readers["primary"] = (tap,)
            known.reads["primary"] = flow.occurrence(place.event)
            _, I, D = arrange(place.tensor, place.roles, "BID").shape
            known.child_entry = ChildEntry(tap.site, place.position, place.roles, (I, D))
            sizes = zip(place.tensor.shape, place.roles, strict=True)
            size = " × ".join(str(n) for n, role in sizes if role == "D")
            where = f"what {place.event.name} in {place.event.place} makes votes of"
            known.say("children", f"(B, {known.children}, {size}), {where}")
    if options.poses is not None:
        given("poses", options.poses)
    elif layer is not None:
        values = outputs.values_of_scores(
            recorded.output, len(recorded.images), recipe.classes, options.scores
        )
        returned = tensors(recorded.output)
        places, doubt = vectors.poses(flow, layer.rounds, values, returned, recorded.others)
        taps = {place.event.site: tap_of_place("poses", place) for place in places}
        known.readers["poses"] = tuple(taps.values())
        place = places[-1]
        numbers = vectors.rows(place.tensor, place.roles).shape[2]
        known.say("poses", f"(B, {recipe.classes}, {numbers}), {place.made}")
        if doubt is not None:
            known.say("poses", doubt)
    return known


def _fit_to_sum(shown: Wrapped, recorded: Recorded) -> None:
    """Choose how to read couplings and votes, so that Σ couplings · votes is a sum of the pass.

    There is a choice for watched variables: to leave out the last couplings, made after the last
    sum, and to copy votes at once, before they are written to. If nothing fits, report a doubt.
    """
    known, own = shown.inferred, shown.inferred.readers
    if not {"votes", "couplings"} <= set(own):
        return
    votes, couplings = own["votes"], own["couplings"]
    choices = {"votes": [votes], "couplings": [couplings]}
    if isinstance(votes, Watched):
        choices["votes"].append(replace(votes, variable=votes.variable._replace(copied=True)))
    if isinstance(couplings, Watched):
        choices["couplings"].append(replace(couplings, unused=1))
    for pair in product(*choices.values()):
        known.readers = own | dict(zip(choices, pair, strict=True))
        traced = shown.look(recorded.images, keep=("votes", "couplings", "weights"))
        weights = traced.get("weights", traced["couplings"])[-1]
        total = torch.einsum("bij,bije->bje", weights, traced["votes"])
        if vectors.is_made(recorded.flow, total, weights.shape[1]):
            return
    known.readers = own
    known.say(
        "votes",
        "in doubt: no tensor of the pass is Σ couplings · votes: name both factors by votes= and "
        "couplings=",
    )


def _report_layer(known: Inferred, layer: Layer) -> None:
    """Report which softmax makes the couplings, and where they weigh the votes."""
    last, count = layer.rounds[-1], len(layer.rounds)
    iterations = f"{count} iteration{'s' * (count > 1)}"
    known.say("couplings", f"{layer.weighing} in {layer.place}, {iterations}")
    if last.scaled:
        where = f"couplings are scaled in {last.entry.where} before they weigh votes"
        known.say("weights", f"{where}; the scales are not used as activations")
    if any(turn.normalised and turn.whole is None for turn in layer.rounds):
        known.say(
            "note",
            "couplings are scaled by a function of themselves; replacements keep that scale",
        )
    sizes = f"(B, {layer.children}, {layer.parents}, {last.count('E')})"
    known.say("votes", f"{sizes}, weighed by {last.event.name} in {last.event.place}")


def _find_scores(
    recipe: Recipe, recorded: Recorded, scores: Callable | str | None, has_poses: bool
) -> tuple[Callable | None, str]:
    """Return the function, output -> scores, and the evidence; None for norms of the poses."""
    output, expected = recorded.output, (len(recorded.images), recipe.classes)
    if callable(scores):
        value = scores(output)
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        if shape != expected:
            raise ValueError(f"scores= must return {expected}, it returned {shape}")
        return scores, "given as a function of the output"
    outputs.require_scores(scores)
    if scores != "norms":
        found, evidence = outputs.find_scores(output, recorded.flow, *expected, scores)
        if found is not None:
            return found, evidence
    if not has_poses:
        raise ValueError(
            f"no scores found: expected an output {expected}, the network "
            f"returned {outputs.described(output)}; give scores=lambda out: ..."
        )
    return None, "norms of the poses"


def _find_places(shown: Wrapped, images: Tensor, given: tuple[int, int, int] | str | None):
    """Return the positions of the children, as given or found by probing."""
    part = next((name for name in ("primary", "votes") if name in shown.parts), None)
    if shown.draw is not None:
        why = "none: its inputs are not images"
    elif given is None:
        why = "none, as given"
    elif part is None:
        why = "none: neither children nor votes are found"
    else:
        return grids.find(lambda some: shown.capsules(some, part), images, given, part)
    return grids.NOWHERE._replace(evidence=why)


def _find_setter(shown: Bare, recorded: Recorded, layer: Layer) -> tuple[Setter | None, str]:
    """Return the attribute that sets the number of iterations, or None; and the evidence."""
    passes, images = len(layer.rounds), recorded.images[:2]
    values = range(passes - 1, passes + 1)
    fits = setters(shown.network, values, layer.rounds, lambda: shown.passed(images))
    if len(fits) == 1:
        return fits[0], f"set by {fits[0].name}"
    names = ", ".join(fit.name for fit in fits)
    return None, f"fixed: {names or 'no attribute found that sets them'}"


def candidates(network: nn.Module, values: range, *, named: bool = True) -> list[Setter]:
    """Return the attributes of modules that hold one of these values, as an integer.

    With `named`, their names must suggest a number of iterations; else they must not. Attributes of
    PyTorch's own modules are left out.
    """
    return [
        Setter(module, attribute, value, f"{name}.{attribute}".strip("."))
        for name, module in network.named_modules()
        if not type(module).__module__.startswith("torch.")
        for attribute, value in list(vars(module).items())
        if type(value) is int and value in values and bool(NAMES.search(attribute)) == named
    ]


def setters(network: nn.Module, values: range, rounds: list[Round], call: Callable) -> list[Setter]:
    """Return the attributes that, if raised by 1, make the call run one more iteration.

    Each is restored afterwards. Attributes whose names do not match `NAMES` are tried only if none
    of the others fits.
    """
    sites = {turn.event.site for turn in rounds}

    def sets(one: Setter) -> bool:
        recorder = Recorder(network)
        setattr(one.module, one.attribute, one.value + 1)
        try:
            recorder.run(call)
        except Exception:  # the user's code may raise anything for another number
            return False
        finally:
            setattr(one.module, one.attribute, one.value)
        return sum(event.site in sites for event in recorder.events) == len(rounds) + 1

    for named in (True, False):
        if fits := [one for one in candidates(network, values, named=named) if sets(one)]:
            return fits
    return []
