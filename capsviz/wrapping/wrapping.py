"""Wrap a user's capsule network, so that it can be traced and analysed, in three steps.

record   one pass of a few images: `recorder`, `flow` (its graph), `products` and `layers` (routing)
infer    the parts: `vectors` (children, poses), `outputs` (scores), `decoder`, `grid`, `given`
verify   the result against itself: `verify`

What is not given is inferred, and the report gives the evidence. Two candidates are an error.
The result is a `network.Wrapped`, which reads parts of any pass by `taps`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from capsviz.nn.images import like_of
from capsviz.tracing import abilities, evaluating
from capsviz.wrapping.environment import (
    as_written,
    names_cuda,
    one_line,
    raised_at,
    required,
    restored,
)
from capsviz.wrapping.flow import Flow
from capsviz.wrapping.given import by_hand, mean_and_deviation, whole_grid, whole_shape
from capsviz.wrapping.infer import Options, infer
from capsviz.wrapping.layers import BATCHES, Layer, Recorded, chosen, layers
from capsviz.wrapping.network import Bare, Fact, Wrapped
from capsviz.wrapping.outputs import described
from capsviz.wrapping.recorder import Recorder
from capsviz.wrapping.taps import Recipe
from capsviz.wrapping.verify import verify

FIXED = "invalid for input of size"  # torch's message for a view


class NoCapsulesError(ValueError):
    """Raised for a network in which nothing weighs votes, or not by one number a vote."""


def wrap(
    network: nn.Module,
    image_shape: tuple[int, int, int],
    classes: int,
    *,
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
    """Make any capsule network one that `capsviz.trace` and the analyses take.

    Parameters
    ----------
    network      any module; it is left as it was, and not copied.
    image_shape  (C, H, W) of its images.
    classes      their number.
    normalise    (mean, standard deviation) that it expects of images, numbers or one a channel;
                 callers still pass images in [0, 1].
    call         (network, images) -> output; None: network(images).
    scores       output -> (B, J) in [0, 1]; or "softmax", "sigmoid", "exp" of the output that is
                 found; "norms" of the poses. None: found, or the norms.
    poses        a module's name, whose output they are, or output -> (B, J, E). None: found.
    decode       (poses (B, J, E), classes (B,)) -> images in [0, 1]. None: found in the pass;
                 False: there is none.
    couplings    "softmax"; "module.method:variable", to watch a local variable, "method:variable"
                 in the network itself; output -> (B, I, J); None for a network without capsules.
    pair         which softmax, if there are several: the name of its module, or a part of its
                 line as the error lists it.
    grid         (types, rows, columns) of its children, type by type, compared with the pixels
                 that change them; "probe" finds it by changing rows and columns of an image; None:
                 they have no positions, so there are no maps.
    votes        "module.method:variable" or output -> (B, I, J, E). None: found.
    children     a module's name, "module.method:variable", or output -> (B, I, D). None: found.
    card         name, data set and more, for results.

    Returns
    -------
    A network with `look`, `decode`, `grid`, `receptive_field`, `config`, `card` and `report()`;
    for couplings=None one that gives only scores.

    Raises
    ------
    NoCapsulesError  a ValueError, if no softmax is found that weighs votes.
    ValueError  for a network that has `look`, images that it refuses, given functions that raise
                (it names the option and the line), several candidates for one part (it lists
                them), scores out of [0, 1], or scores that depend on the other images of a batch.
    """
    if not isinstance(network, nn.Module):
        raise TypeError(f"expected a network, a torch.nn.Module, got {type(network).__name__}")
    if isinstance(network, Bare):
        raise ValueError(f"this {type(network.network).__name__} is wrapped already")
    if abilities(network).has_capsules:
        raise ValueError(
            f"a {type(as_written(network)).__name__} says itself what is inside, by its `look`: "
            "capsviz.trace(network, images) looks into it as it is"
        )
    scores, poses, decode, couplings, votes, children, call, pair, card = by_hand(
        scores=scores, poses=poses, decode=decode, couplings=couplings, votes=votes,
        children=children, call=call, pair=pair, card=card,
    )  # fmt: skip
    options = Options(scores, poses, decode, couplings, whole_grid(grid), votes, children)
    shape, network = whole_shape(image_shape, classes), as_written(network)
    mean, std = (None, None) if normalise is None else mean_and_deviation(normalise)
    recipe = Recipe(call or images_alone, shape, classes, mean, std, pair=pair)
    card = {"name": type(network).__name__, "dataset": {"name": "unknown"}, **(card or {})}
    kind: type[Bare] = Bare if couplings is None else Wrapped
    with evaluating(network), restored(network), torch.no_grad(), torch.random.fork_rng(devices=[]):
        recipe, recorded = _record(network, recipe, searched=couplings == "softmax")
        inferred = infer(network, recipe, recorded, options)
        how = f"{'given' if call else 'network(images)'}: {described(recorded.output)}"
        inferred = replace(inferred, facts=(Fact("call", how), *inferred.facts))
        verified = verify(kind(network, recipe, inferred), recorded)
    return kind(network, recipe, inferred, verified, card)


def images_alone(network: nn.Module, images: Tensor):
    """Call a network in the usual way."""
    return network(images)


def _record(network: nn.Module, recipe: Recipe, *, searched: bool) -> tuple[Recipe, Recorded]:
    """Record passes with more and more images until a layer's batch axis can be identified.

    Parameters
    ----------
    searched  whether a softmax is looked for that weighs votes for the classes.

    Returns
    -------
    The recipe, which runs on the CPU what asks for a GPU, and the recorded pass.
    """
    like, classes = like_of(network), recipe.classes
    tried: list[Layer] = []
    for batch in [n for n in BATCHES if n != classes]:
        generator = torch.Generator().manual_seed(batch)
        images = torch.rand(batch, *recipe.image_shape, generator=generator).to(like)
        recipe, flow, output = _pass(network, recipe, images)
        if not searched:
            return recipe, Recorded(images, output, flow)
        known = layers(flow, batch, classes)
        tried = tried or known
        own = [layer for layer in known if layer.parents == classes]
        if own:
            layer = chosen(own, flow, recipe.pair)
            if layer.apart is not None:
                raise NoCapsulesError(
                    f"{layer.said_apart}; wrap it with couplings=None: then evaluate, sweep and "
                    "corrupt can be run"
                )
            others = tuple(other for other in known if other is not layer)
            return recipe, Recorded(images, output, flow, layer, others)
    raise NoCapsulesError(_no_capsules(network, classes, tried, flow))


def _pass(network: nn.Module, recipe: Recipe, images: Tensor) -> tuple[Recipe, Flow, object]:
    """Record one pass; the recipe that is returned runs it without a GPU if it asks for one."""
    inside = recipe.normalised(images)
    recorder = Recorder(network)
    try:
        output = recipe.run(recorder, network, inside)
        return recipe, Flow(recorder.events, inside), output
    except Exception as error:
        reason = one_line(error)
        if names_cuda(error) and not recipe.cuda and not torch.cuda.is_available():
            return _pass(network, replace(recipe, cuda=True), images)
        more = required(network.forward)[1:] if recipe.call is images_alone else []
        if isinstance(error, TypeError) and more:
            needs = f"{type(network).__name__}.forward{inspect.signature(network.forward)}"
            raise ValueError(
                f"the network cannot be called with images alone: {needs}; give "
                f"call=lambda net, images: ... ({reason[:120]})"
            ) from error
        fixed = "; a batch of one size alone? then call= may fill it up" if FIXED in reason else ""
        raise ValueError(
            f"the network refuses images {tuple(images.shape)}: {type(error).__name__}: "
            f"{reason[:200]}{raised_at(error)}{fixed}"
        ) from error


def _no_capsules(network: nn.Module, classes: int, tried: list[Layer], flow: Flow) -> str:
    """Say that no softmax weighs votes for the classes, which ones there are, and what to do."""
    name = type(network).__name__
    if isinstance(network, torch.jit.ScriptModule):
        return (
            f"TorchScript runs {name}, which cannot be recorded: wrap the network that was "
            "scripted or traced"
        )
    weighing = {turn.softmax.place for one in tried for turn in one.rounds if turn.softmax}
    softmaxes = [e.place for e in flow.events if e.name == "softmax" and e.place not in weighing]
    words = f"; softmax in {', '.join(dict.fromkeys(softmaxes))} weighs none" if softmaxes else ""
    words += "".join(f"; {layer}" for layer in tried)
    if any(layer.parents == classes + 1 for layer in tried):
        words += f" (one of them no class? then classes={classes + 1})"
    return (
        f"no capsules found in {name}: no softmax weighs votes for {classes} parents{words}; name "
        "the couplings by couplings='module.method:variable' ('method:variable' of the network "
        "itself) or couplings=lambda output: ..., give the network a `look`, or, if it has none, "
        "wrap it with couplings=None: then evaluate, sweep and corrupt can be run"
    )
