"""Wrap somebody else's capsule network, so that it can be traced and analysed.

What is not given is found in one recorded pass of a few images, and said with its evidence; between
two candidates nothing is guessed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from capsviz.nn.images import like_of
from capsviz.tracing import evaluating
from capsviz.wrapping import parts
from capsviz.wrapping.arguments import by_hand, raised_at
from capsviz.wrapping.bare import Bare, Recipe, whole_shape
from capsviz.wrapping.checks import checked, put_children, put_grid
from capsviz.wrapping.compiled import as_written
from capsviz.wrapping.decoders import put_decoder
from capsviz.wrapping.device import without_cuda
from capsviz.wrapping.flow import Flow, storage
from capsviz.wrapping.functions import required
from capsviz.wrapping.layers import Layer, layers
from capsviz.wrapping.network import Wrapped
from capsviz.wrapping.outputs import described
from capsviz.wrapping.peculiarities import put_iterations, put_peculiarities
from capsviz.wrapping.recorder import record
from capsviz.wrapping.report import Fact
from capsviz.wrapping.sources import put_source
from capsviz.wrapping.state import restored
from capsviz.wrapping.trial import Trial

FIXED = "invalid for input of size"  # what torch says of a view
BATCHES = (7, 11, 13)  # images in the recorded pass: primes, so that their axis can be told


class NoCapsulesError(ValueError):
    """A network in which nothing weighs votes, or no one number a vote."""


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
    """Make a network that `capsviz.trace` and the analyses take of any capsule network.

    Parameters
    ----------
    network      any module; it is left as it was, and not copied.
    image_shape  (C, H, W) of its images.
    classes      how many there are.
    normalise    (mean, standard deviation) that it expects of images, numbers or one a channel;
                 outside, images stay in [0, 1].
    call         how it is called, (network, images) -> output; None: network(images).
    scores       output -> (B, J) in [0, 1]; or "softmax", "sigmoid", "exp" of what is found;
                 "norms" of the poses. None: found, or the norms.
    poses        a module's name, whose output they are, or output -> (B, J, E). None: found.
    decode       (poses (B, J, E), classes (B,)) -> images in [0, 1]. None: found in the pass;
                 False: there is none.
    couplings    "softmax"; "module.method:variable", to watch a local variable, "method:variable"
                 in the network itself; output -> (B, I, J); None for a network without capsules.
    pair         which softmax, where there are several: the name of its module, or a part of its
                 place as the error lists it.
    grid         (types, rows, columns) of its children, type by type, held against what they see
                 of an image; "probe" to find it by changing rows and columns of an image; None:
                 they have no places, so no maps.
    votes        "module.method:variable" or output -> (B, I, J, E). None: found.
    children     a module's name, "module.method:variable", or output -> (B, I, D). None: found.
    card         what to say of it in results.

    Returns
    -------
    A network with `look`, `decode`, `grid`, `receptive_field`, `config`, `card` and `report()`;
    for couplings=None one that says scores alone.

    Raises
    ------
    NoCapsulesError  a ValueError, where nothing is found that weighs votes.
    ValueError  for a network that has `look`, images that it refuses, functions by hand that raise
                (it names the option and the line), several candidates for one thing (it lists
                them), scores that are none, or scores that depend on the other images of a batch.
    """
    if not isinstance(network, nn.Module):
        raise TypeError(f"expected a network, a torch.nn.Module, got {type(network).__name__}")
    if isinstance(network, Bare):
        raise ValueError(f"this {type(network.network).__name__} is wrapped already")
    if hasattr(network, "look"):
        raise ValueError(
            f"a {type(as_written(network)).__name__} says itself what is inside, by its `look`: "
            "capsviz.trace(network, images) looks into it as it is"
        )
    scores, poses, decode, couplings, votes, children, call, pair, card = by_hand(
        scores=scores, poses=poses, decode=decode, couplings=couplings, votes=votes,
        children=children, call=call, pair=pair, card=card,
    )  # fmt: skip
    sides = grid if isinstance(grid, tuple | list) else ()
    whole = len(sides) == 3 and all(type(side) is int and side > 0 for side in sides)
    if not whole and grid is not None and grid != "probe":
        raise ValueError(f"grid= must be (types, rows, columns), 'probe' or None, got {grid!r}")
    shape = whole_shape(image_shape, classes)
    network = as_written(network)
    recipe = Recipe(call or _images_alone, shape, classes, pair=pair)
    if normalise is not None:
        recipe.expect(normalise)
    facts = [Fact("call", "given" if call else "network(images)")]
    card = {"name": type(network).__name__, "dataset": {"name": "unknown"}, **(card or {})}
    with evaluating(network), restored(network), torch.no_grad(), torch.random.fork_rng(devices=[]):
        trial = _trial(network, recipe, couplings)
        facts[0] = Fact("call", f"{facts[0].finding}: {described(trial.output)}")
        if couplings is None:
            bare = Bare(network, recipe, facts, card)
            parts.put_scores(bare, trial, scores)
            return checked(bare, trial.images)
        wrapped = Wrapped(network, recipe, facts, card)
        if trial.layer is not None:
            parts.put_layer(wrapped, trial)
        else:
            put_source(wrapped, "couplings", couplings, trial)
        by_name = {"votes": votes, "children": children, "poses": poses}
        parts.put_vectors(wrapped, trial, **by_name, scores=scores)
        parts.put_scores(wrapped, trial, scores)
        put_decoder(wrapped, trial, decode)
        recipe.image_bytes = _bytes(trial.flow) // trial.batch
        put_grid(wrapped, grid, trial.images)
        checked(wrapped, trial.images)
        put_children(wrapped, trial.images)
        put_peculiarities(wrapped, trial.images)
        put_iterations(wrapped, trial)
    return wrapped


def _images_alone(network: nn.Module, images: Tensor):
    return network(images)


def _trial(network, recipe, couplings) -> Trial:
    """Record passes with more and more images until a layer's batch axis can be told."""
    like = like_of(network)
    tried = None
    for batch in [n for n in BATCHES if n != recipe.classes]:
        generator = torch.Generator().manual_seed(batch)
        images = torch.rand(batch, *recipe.image_shape, generator=generator).to(like)
        recording = _recorded(network, recipe, images)
        inside = images if recipe.mean is None else recording[1]
        flow, output = Flow(recording[0].events, inside), recording[0].output
        if couplings != "softmax":
            return Trial(images, output, flow)
        known = layers(flow, batch, recipe.classes)
        tried = tried or known
        own = [layer for layer in known if layer.parents == recipe.classes]
        if own:
            layer = chosen(own, flow, recipe.pair)
            if layer.apart is not None:
                raise NoCapsulesError(
                    f"{layer.said_apart}; wrap it with couplings=None: then evaluate, sweep and "
                    "corrupt can be run"
                )
            others = tuple(other for other in known if other is not layer)
            return Trial(images, output, flow, layer, others)
    if isinstance(network, torch.jit.ScriptModule):
        raise NoCapsulesError(
            f"TorchScript runs {type(network).__name__}, and nothing can be seen inside: wrap the "
            "network that was scripted or traced"
        )
    weighing = {turn.softmax.place for one in tried for turn in one.rounds if turn.softmax}
    softmaxes = [e.place for e in flow.events if e.name == "softmax" and e.place not in weighing]
    words = f"; softmax in {', '.join(dict.fromkeys(softmaxes))} weighs none" if softmaxes else ""
    words += "".join(f"; {layer}" for layer in tried)
    if any(layer.parents == recipe.classes + 1 for layer in tried):
        words += f" (one of them no class? then classes={recipe.classes + 1})"
    raise NoCapsulesError(
        f"no capsules found in {type(network).__name__}: no softmax weighs votes for "
        f"{recipe.classes} parents{words}; name the couplings by "
        "couplings='module.method:variable' ('method:variable' of the network itself) or "
        "couplings=lambda output: ..., give the network a `look`, or, if it has none, wrap it with "
        "couplings=None: then evaluate, sweep and corrupt can be run"
    )


def chosen(own: list[Layer], flow: Flow, pair: str | None) -> Layer:
    """The layer to show: the one that `pair` names, or the last, if the others lead to it."""
    listed = "; ".join(map(str, own))
    if pair is not None:
        fits = [layer for layer in own if layer.module == pair]
        fits = fits or [layer for layer in own if pair in layer.place]
        if len(fits) != 1:
            raise ValueError(f"pair '{pair}' names {len(fits)} of the softmaxes: {listed}")
        return fits[0]
    last = own[-1]
    before = flow.ancestors(last.rounds[-1].event.index)
    aside = [layer for layer in own[:-1] if layer.rounds[-1].total.index not in before]
    if aside:
        raise ValueError(
            f"{len(own)} softmaxes have an equal claim: {listed}; say which one by pair="
        )
    return last


def _recorded(network: nn.Module, recipe: Recipe, images: Tensor):
    """One recorded pass, and the images as the network got them."""
    inside = recipe.normalised(images)

    def run():
        with without_cuda() if recipe.cuda else nullcontext():
            return record(network, lambda: recipe.call(network, inside))

    try:
        return run(), inside
    except Exception as error:
        reason = " ".join(str(error).split())
        asks = "cuda" in reason.lower() or "nvidia" in reason.lower()
        if asks and not recipe.cuda and not torch.cuda.is_available():
            recipe.cuda = True
            return _recorded(network, recipe, images)
        more = required(network.forward)[1:] if recipe.call is _images_alone else []
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


def _bytes(flow: Flow) -> int:
    words = {storage(t): t.numel() * t.element_size() for e in flow.events for t in e.outputs}
    return max(1, sum(words.values()))
