"""The protocol of a network that can be looked into, and `abilities`, which says what one offers.

A network needs `look` and nothing else; the optional parts are listed in `Network`. Nobody but
`abilities` probes a network for them.
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

    `look` returns the tensors that a `Trace` names, those of `keep` at least. "primary" may stand
    for "children" and "lengths" for the last activations; activations that are left out are the
    norms of the poses. It may take more, by these names:
        layer=-1         index of the routed layer to describe
        couplings=None   (B, I, J) or (I, J) in place of its own, in every iteration
        iterations=None  of routing, in place of its own

    Optional attributes and methods (shapes as in `capsviz.nn.functional`):
        decode(poses (B, J, E), classes (B,)) -> images (B, C, H, W) in [0, 1]
        decoder          None for a network that has `decode`, but cannot decode
        grid             (types, rows, columns) of the children, or None: they have no positions
        grids            the same for each routed layer, if there are several
        receptive_field(row, column, [layer=-1]) -> (slice, slice)
                         the image rows and columns that a capsule depends on
        from_children(children (B, I, D), activations (B, I), *, [layer=-1], [couplings=None])
                         -> poses and activations (B, J) of the classes, for children that need not
                         come from an image; `couplings` (B, I, J) of that layer, or a list with
                         those of each iteration, None where it routes
        encode(images) -> children and their activations, and
        capsules         a layer with `votes` and `route_votes`: its children can be routed again
                         without the layers before
        pose_shape       of a class pose, e.g. (4, 4) for matrices
        links            which children each position of a convolutional layer sees
        parts            names of the parts of a trace that `look` can give; left out: all
        replaceable      which of "couplings", "iterations" and "children" can be replaced; left
                         out: those that `look` and `from_children` take
        peculiar         check -> reason, for what is meant and no mistake (`tracing.verification`)
        config           {"image_shape": (C, H, W), "classes": J, ...}
        card             what is known of it: name, data set, recipe
        draw             (count, seed) -> inputs (N, ...) like its own, if they are not images, and
        rows             inputs of any form -> the same as one tensor (N, ...)
        image_bytes      memory of one image in a forward pass, at most about
    `capsviz.wrap` makes a network like this of any other.
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
    """Answers of `abilities`: what a network offers, found without running it."""

    name: str  # of its card, or of its class
    has_capsules: bool  # it has `look`; without it nothing below but config and card is filled in
    parts: frozenset[str] | None = None  # of a trace that it can give; None: it does not say
    decodes: bool = False  # poses into images
    grids: tuple[Grid | None, ...] = (None,)  # of the children of each routed layer
    has_receptive_fields: bool = False  # it says which pixels a capsule depends on
    encodes: bool = False  # it has `encode`, from images to children
    routes_again: bool = False  # children can be routed again without the layers before
    replaceable_couplings: bool = False
    replaceable_iterations: bool = False  # another number of iterations can be asked for
    replaceable_children: bool = False
    pose_shape: tuple[int, ...] | None = None  # None: a vector
    links: object | None = None
    routing: str | None = None  # file of the routing of the class capsules; None: not capsviz's
    peculiar: Mapping[str, str] = field(default_factory=dict)  # what is meant and no mistake
    image_bytes: int = 1
    draw: Callable[[int, int], Tensor] | None = None  # random inputs; None: it takes images
    config: Mapping[str, Any] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)

    def gives(self, part: str) -> bool:
        """Return whether it can give a part of a trace; true where it does not say."""
        return self.has_capsules and (self.parts is None or part in self.parts)

    @property
    def grid(self) -> Grid | None:
        """(types, rows, columns) of the children of the classes; None: they have no positions."""
        return self.grids[-1]

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """(C, H, W) of its images; None: it does not say."""
        shape = self.config.get("image_shape")
        return None if shape is None else tuple(shape)

    @property
    def classes(self) -> int | None:
        """J, the number of classes; None: it does not say."""
        return self.config.get("classes")

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, by its card; None: it does not say."""
        names = self.card.get("dataset", {}).get("classes", ())
        return tuple(map(str, names)) if names and len(names) == self.classes else None


def abilities(model: Any) -> Abilities:
    """Return what any network offers, with capsules or without; nothing is computed."""
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
    """Return inputs of a network as one tensor (N, ...); ValueError for others than it takes.

    They are images (N, C, H, W) in [0, 1], unless the network draws its own.
    """
    if abilities(model).draw is None:
        check_images(inputs)
        return inputs
    rows = model.rows(inputs)
    if len(rows) == 0 or not rows.isfinite().all():
        raise ValueError(f"expected finite inputs, at least one, got {tuple(rows.shape)}")
    return rows


def _routing(model: Any) -> str | None:
    """Return the name of the routing of the class capsules; None if it is not capsviz's."""
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
    """Raise ValueError for a layer that a network does not have, or a function does not take."""
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
    """Raise ValueError for a layer, couplings or iterations that its `look` does not take."""
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
    """Return a routed layer's number from 0; None for that of the classes, by whatever index.

    A number that does not exist is returned as it is: `trace` refuses it.
    """
    count = len(abilities(model).grids)
    if layer is None or layer in (-1, count - 1):
        return None
    return layer % count if -count <= layer < count else layer


def children_words(model: Any) -> str:
    """Return what to call the children of the classes in a caption."""
    return "capsules below the classes" if len(abilities(model).grids) > 1 else "primary capsules"


def extent(model: Any, layer: int = -1) -> list[float]:
    """Return where the grid of a layer's children lies on the image, in pixels: left, right, bottom
    and top, for `imshow`.

    Each position is drawn at the centre of its whole receptive field, also where the border cuts
    the field off, and is as large as the step to the next. Where there is no step (one position, or
    equal fields), the field is divided evenly. ValueError for a network whose children have no
    positions, or that does not say those of the layer.
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
        raise ValueError(f"this network says the positions of its last layer, not of {layer}")
    _, rows, columns = grid
    top, bottom = _ends([field(row, 0)[0] for row in range(rows)])
    left, right = _ends([field(0, column)[1] for column in range(columns)])
    return [left, right, bottom, top]


def _ends(fields: list[slice]) -> tuple[float, float]:
    """Return the outer edges of a row of positions with these receptive fields.

    Fields that are shorter than others are cut off at the border of the image: their positions
    follow from those of whole fields.
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
_under_way: WeakKeyDictionary = WeakKeyDictionary()  # network -> [looks, modules in training]


@contextmanager
def evaluating(model):
    """Put a network into evaluation mode, and each module's mode back, also after an error.

    If several threads look at one network at a time, the last one puts it back.
    """
    with _lock:
        training = [module for module in model.modules() if module.training]
        entry = _under_way.setdefault(model, [0, training])
        entry[0] += 1
        model.eval()
    try:
        yield
    finally:
        with _lock:
            entry[0] -= 1
            if not entry[0]:
                del _under_way[model]
                for module in entry[1]:
                    module.training = True


@contextmanager
def inference(model):
    """Put a network into evaluation mode, as `evaluating`, and compute no gradients."""
    with evaluating(model), torch.inference_mode():
        yield
