"""The protocol `Network` of a network that can be traced, and `abilities`, what a network supports.

A network needs only `look`; `Network` lists the optional parts. Code that needs to know which of
them a network has calls `abilities`.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from capsviz import discovery
from capsviz.nn import routing
from capsviz.nn.images import check_images
from capsviz.tracing.record import ALIASES

if TYPE_CHECKING:
    from capsviz.nn.models.capsnet import CapsNet
    from capsviz.nn.models.matrix_capsnet import MatrixCapsNet

Grid = tuple[int, int, int]  # (types, rows, columns) of the children of a layer


class Network(Protocol):
    """A capsule network that can be traced, and so analysed: an `nn.Module` with `look`.

    `look` returns tensors by their names in a `Trace`, at least those of `keep`. "primary" may
    replace "children", and "lengths" the last activations. By default, activations are the norms of
    the poses. `look` may have these optional arguments:
        layer=-1         index of the routed layer
        couplings=None   (B, I, J) or (I, J) to replace its own, in every iteration
        iterations=None  number of routing iterations, to replace its own

    Optional attributes and methods (shapes as in `capsviz.nn.functional`):
        decode(poses (B, J, E), classes (B,)) -> images (B, C, H, W) in [0, 1]
        decoder          None if the network has a method `decode`, but no decoder
        grid             (types, rows, columns) of the children, or None: they have no positions
        grids            the same for each routed layer, if there are several
        receptive_field(row, column, [layer=-1]) -> (slice, slice)
                         the image rows and columns that a capsule depends on
        from_children(children (B, I, D), activations (B, I), *, [layer=-1], [couplings=None])
                         -> poses and activations (B, J) of the classes, for children that need not
                         come from an image; `couplings` (B, I, J) of that layer, or a list with
                         those of each iteration, None if the network routes
        encode(images) -> children and their activations. With it and
        capsules         a layer with `votes` and `route_votes`, children can be routed again
                         without the layers before
        pose_shape       shape of a class pose, e.g. (4, 4) for matrices
        links            which children each position of a convolutional layer sees
        parts            names of the parts of a trace that `look` can give; by default all
        replaceable      which of "couplings", "iterations" and "children" can be replaced; by
                         default the arguments of `look`, and children if it has `from_children`
        peculiar         check of `tracing.verification` -> why the deviation is intended
        config           {"image_shape": (C, H, W), "classes": J, ...}
        card             metadata: name, data set, recipe
        draw             (count, seed) -> random inputs (N, ...), if inputs are not images
        rows             inputs of any form -> the same as one tensor (N, ...), needed with `draw`
        image_bytes      upper estimate of the memory of one image in a forward pass
    `capsviz.wrap` makes such a network of any other.
    """

    def look(self, images: Tensor, *, keep: Collection[str]) -> dict[str, Any]:
        """Return the parts of one forward pass of images (B, C, H, W), by name."""

    def modules(self) -> Iterator[nn.Module]:
        """Return all modules, as `nn.Module` does."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return all parameters, as `nn.Module` does."""


if TYPE_CHECKING:  # our own networks follow the protocol
    _own: tuple[type[Network], ...] = (CapsNet, MatrixCapsNet)


@dataclass(frozen=True)
class Abilities:
    """Features of a network, as found by `abilities` without running it."""

    name: str  # of its card, or of its class
    has_capsules: bool  # it has `look`; without it, no part of a trace is known
    parts: frozenset[str] | None = None  # of a trace that it can give; None: not declared
    decodes: bool = False  # it reconstructs images from poses
    grids: tuple[Grid | None, ...] = (None,)  # of the children of each routed layer
    has_receptive_fields: bool = False  # it has `receptive_field`
    encodes: bool = False  # it has `encode`, from images to children
    routes_again: bool = False  # children can be routed again without the layers before
    replaceable_couplings: bool = False
    replaceable_iterations: bool = False  # the number of iterations can be changed
    replaceable_children: bool = False
    pose_shape: tuple[int, ...] | None = None  # None: a vector
    links: object | None = None
    routing: str | None = None  # of the class capsules; None: no capsviz layer routes them
    peculiar: Mapping[str, str] = field(default_factory=dict)  # check -> why it deviates
    image_bytes: int = 1
    draw: Callable[[int, int], Tensor] | None = None  # random inputs; None: it takes images
    config: Mapping[str, Any] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)

    def gives(self, part: str) -> bool:
        """Return whether it can give a part of a trace; true if its parts are not declared."""
        return self.has_capsules and (self.parts is None or part in self.parts)

    @property
    def grid(self) -> Grid | None:
        """(types, rows, columns) of the children of the class capsules; None: no positions."""
        return self.grids[-1]

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """(C, H, W) of its images; None: not declared."""
        shape = self.config.get("image_shape")
        return None if shape is None else tuple(shape)

    @property
    def classes(self) -> int | None:
        """J, the number of classes; None: not declared."""
        return self.config.get("classes")

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes on its card; None: not declared."""
        names = self.card.get("dataset", {}).get("classes", ())
        return tuple(map(str, names)) if names and len(names) == self.classes else None


def abilities(model: Any) -> Abilities:
    """Return the features of any network, with capsules or without, without running it."""
    card, config = (getattr(model, name, None) for name in ("card", "config"))
    card, config = (one if isinstance(one, Mapping) else {} for one in (card, config))
    name = str(card.get("name") or type(model).__name__)
    size, draw = getattr(model, "image_bytes", 1), getattr(model, "draw", None)
    if not callable(getattr(model, "look", None)):
        return Abilities(name, False, image_bytes=size, draw=draw, config=config, card=card)
    parts = getattr(model, "parts", None)
    if parts is not None:
        parts = frozenset({*parts, *(ALIASES[name] for name in ALIASES if name in parts)})
    children = getattr(model, "from_children", None)
    replaceable = getattr(model, "replaceable", None)
    if replaceable is None:
        replaceable = {name for name in ("couplings", "iterations") if takes(model.look, name)}
        replaceable |= {"children"} if children is not None else set()
    capsules = getattr(model, "capsules", None)
    grids = getattr(model, "grids", None) or [getattr(model, "grid", None)]
    pose_shape = getattr(model, "pose_shape", None)
    peculiar: dict[str, str] = {}
    for routed in plugin_routings(model):
        peculiar |= getattr(routing.get(routed), "PECULIAR", {})
    peculiar |= getattr(model, "peculiar", {})
    return Abilities(
        name=name,
        has_capsules=True,
        parts=parts,
        decodes=hasattr(model, "decode") and getattr(model, "decoder", model) is not None,
        grids=tuple(None if grid is None else tuple(grid) for grid in grids),
        has_receptive_fields=hasattr(model, "receptive_field"),
        encodes=hasattr(model, "encode"),
        routes_again=hasattr(model, "encode") and hasattr(capsules, "route_votes"),
        replaceable_couplings="couplings" in replaceable and "couplings" not in peculiar,
        replaceable_iterations="iterations" in replaceable,
        replaceable_children="children" in replaceable,
        pose_shape=None if pose_shape is None else tuple(pose_shape),
        links=getattr(model, "links", None),
        routing=_routing(model),
        peculiar=peculiar,
        image_bytes=size,
        draw=draw,
        config=config,
        card=card,
    )


def inputs_of(model: Any, inputs: Any) -> Tensor:
    """Return inputs of a network as one tensor (N, ...); ValueError for invalid inputs.

    They are images (N, C, H, W) in [0, 1], unless the network has `draw`.
    """
    if abilities(model).draw is None:
        check_images(inputs)
        return inputs
    rows = model.rows(inputs)
    if len(rows) == 0 or not rows.isfinite().all():
        raise ValueError(f"expected finite inputs, at least one, got {tuple(rows.shape)}")
    return rows


def _routing(model: Any) -> str | None:
    """Return the name of the routing of the class capsules; None if no capsviz layer routes."""
    layers = getattr(model, "layers", None)
    last = layers[-1] if isinstance(layers, nn.ModuleList | list | tuple) and layers else None
    return getattr(getattr(model, "capsules", None) or last, "routing_name", None)


def plugin_routings(model: Any) -> list[str]:
    """Return the names of a network's routings that are plug-ins."""
    known = discovery.entries("capsviz.nn.routing")
    names = {getattr(layer, "routing_name", None) for layer in getattr(model, "modules", list)()}
    return sorted(name for name in names if name in known and not known[name].ours)


def takes(function: Callable, name: str) -> bool:
    """Return whether a function has an argument of that name."""
    parameters = inspect.signature(function).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def check_layer(model: Any, layer: int, function: Callable) -> None:
    """Raise ValueError for a layer that does not exist, or if a function has no such argument."""
    if layer == -1:
        return
    layers = len(abilities(model).grids)
    if layers == 1 or not takes(function, "layer"):
        raise ValueError(
            f"this network shows one routed layer, expected layer 0 or -1, got {layer}"
        )
    if layer not in range(-layers, layers):
        raise ValueError(
            f"this network has {layers} routed layers: expected layer 0 to {layers - 1}, "
            f"got {layer}"
        )


def check_look(
    model: Any, layer: int, couplings: str | Tensor | None, iterations: int | None = None
) -> None:
    """Raise ValueError for a layer, couplings or iterations that `look` does not support."""
    check_layer(model, layer, model.look)
    if isinstance(couplings, Tensor) and not couplings.isfinite().all():
        raise ValueError("expected finite couplings, got some that are not finite")
    if couplings is not None and not takes(model.look, "couplings"):
        raise ValueError(
            "this network's couplings cannot be replaced: its `look` takes no `couplings`"
        )
    if couplings is not None and (why := abilities(model).peculiar.get("couplings")):
        raise ValueError(f"this network's couplings cannot be replaced: {why}")
    if iterations is not None and not takes(model.look, "iterations"):
        raise ValueError(
            "this network's iterations cannot be changed: its `look` takes no `iterations`"
        )


def below_classes(model: Any, layer: int | None) -> int | None:
    """Return a non-negative index of a routed layer; None for the class capsules.

    An index that does not exist is returned unchanged, and `trace` raises for it.
    """
    count = len(abilities(model).grids)
    if layer is None or layer in (-1, count - 1):
        return None
    return layer % count if -count <= layer < count else layer


def children_words(model: Any) -> str:
    """Return the term for the children of the class capsules in a caption."""
    return "capsules below the classes" if len(abilities(model).grids) > 1 else "primary capsules"


def extent(model: Any, layer: int = -1) -> list[float]:
    """Return the extent of a layer's grid on the image in pixels: left, right, bottom, top.

    Each position is drawn at the centre of its whole receptive field, even if the border cuts the
    field off, and is as large as the step to the next. If there is no step (one position, or equal
    fields), the field is divided evenly. ValueError if the children have no positions, or the
    network does not give those of this layer.
    """
    able = abilities(model)
    count = len(able.grids)
    if layer not in range(-count, count):
        raise ValueError(f"expected a routed layer from {-count} to {count - 1}, got {layer}")
    grid = able.grids[layer]
    if grid is None or not able.has_receptive_fields:
        raise ValueError("the capsules of this network have no positions: its grid is None")
    field = model.receptive_field
    if takes(field, "layer"):
        field = partial(field, layer=layer)
    elif layer not in (-1, count - 1):
        raise ValueError(f"this network has positions for its last layer only, not for {layer}")
    _, rows, columns = grid
    top, bottom = _ends([field(row, 0)[0] for row in range(rows)])
    left, right = _ends([field(0, column)[1] for column in range(columns)])
    return [left, right, bottom, top]


def _ends(fields: list[slice]) -> tuple[float, float]:
    """Return the outer edges of a row of positions with these receptive fields.

    Shorter fields are cut off at the border of the image; their positions are extrapolated from
    the whole fields.
    """
    centres = [(one.start + one.stop - 1) / 2 for one in fields]
    low, high, count = centres[0], centres[-1], len(fields)
    sizes = [one.stop - one.start for one in fields]
    whole = [k for k, size in enumerate(sizes) if size == max(sizes)]
    if 1 < len(whole) < count and (span := centres[whole[-1]] - centres[whole[0]]) > 0:
        step = span / (whole[-1] - whole[0])
        low = centres[whole[0]] - step * whole[0]
        high = low + step * (count - 1)
    half = (high - low) / (count - 1) / 2 if high > low else sizes[0] / 2
    return low - half, high + half


_lock = threading.Lock()
_evaluated: WeakKeyDictionary = WeakKeyDictionary()  # network -> [users, modules in training]


@contextmanager
def evaluating(model):
    """Put a network into evaluation mode, then restore each module's mode, also after an error.

    If several threads use one network at a time, the last one restores it.
    """
    with _lock:
        training = [module for module in model.modules() if module.training]
        entry = _evaluated.setdefault(model, [0, training])
        entry[0] += 1
        model.eval()
    try:
        yield
    finally:
        with _lock:
            entry[0] -= 1
            if not entry[0]:
                del _evaluated[model]
                for module in entry[1]:
                    module.training = True


@contextmanager
def inference(model):
    """Put a network into evaluation mode, as `evaluating` does, and compute no gradients."""
    with evaluating(model), torch.inference_mode():
        yield
