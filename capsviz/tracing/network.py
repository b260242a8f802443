"""What a network offers to be looked into: the protocol, and `abilities`, which answers for it.

A network needs `look` and nothing else; the optional parts are listed in `Network`. Nobody but
`abilities` probes a network for them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn

from capsviz.tracing.record import ALIASES, PARTS

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
        image_bytes      memory of one image in a forward pass, at most about
    `capsviz.wrap` makes a network like this of any other.
    """

    def look(self, images: Tensor, *, keep: Collection[str]) -> dict[str, Any]:
        """Return the parts of one forward pass of images (B, C, H, W), by name."""

    def modules(self) -> Iterator[nn.Module]:
        """Return all modules, as `nn.Module` does."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return all parameters, as `nn.Module` does."""


@dataclass(frozen=True)
class Abilities:
    """What a network offers, found without running it: the answers of `abilities`."""

    name: str  # of its card, or of its class
    has_capsules: bool  # it has `look`; without it nothing below but config and card is filled in
    parts: frozenset[str] = frozenset()  # names of the parts of a trace that it can give
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
    config: Mapping[str, Any] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)

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


def abilities(model: Any) -> Abilities:
    """Return what a network offers; nothing is computed.

    Parameters
    ----------
    model  any network, with capsules or without.
    """
    card, config = (getattr(model, name, None) for name in ("card", "config"))
    card, config = (one if isinstance(one, Mapping) else {} for one in (card, config))
    name = str(card.get("name") or type(model).__name__)
    size = getattr(model, "image_bytes", 1)
    if not callable(getattr(model, "look", None)):
        return Abilities(name, False, image_bytes=size, config=config, card=card)
    parts = frozenset(getattr(model, "parts", {*PARTS, *ALIASES}))
    parts |= {ALIASES[alias] for alias in ALIASES if alias in parts}
    children = getattr(model, "from_children", None)
    replaceable = getattr(model, "replaceable", None)
    if replaceable is None:
        replaceable = {name for name in ("couplings", "iterations") if takes(model.look, name)}
        replaceable |= {"children"} if children is not None else set()
    encodes, capsules = hasattr(model, "encode"), getattr(model, "capsules", None)
    grids = getattr(model, "grids", None) or [getattr(model, "grid", None)]
    pose_shape = getattr(model, "pose_shape", None)
    return Abilities(
        name=name,
        has_capsules=True,
        parts=parts,
        decodes=hasattr(model, "decode") and getattr(model, "decoder", model) is not None,
        grids=tuple(None if grid is None else tuple(grid) for grid in grids),
        has_receptive_fields=hasattr(model, "receptive_field"),
        encodes=encodes,
        routes_again=encodes and hasattr(capsules, "route_votes"),
        replaceable_couplings="couplings" in replaceable,
        replaceable_iterations="iterations" in replaceable,
        replaceable_children="children" in replaceable,
        pose_shape=None if pose_shape is None else tuple(pose_shape),
        links=getattr(model, "links", None),
        routing=_routing(model),
        peculiar=getattr(model, "peculiar", {}),
        image_bytes=size,
        config=config,
        card=card,
    )


def _routing(model: Any) -> str | None:
    """The name of the routing of the class capsules."""
    layers = getattr(model, "layers", None)
    last = layers[-1] if isinstance(layers, nn.ModuleList | list | tuple) and layers else None
    return getattr(getattr(model, "capsules", None) or last, "routing_name", None)


def takes(function: Callable, name: str) -> bool:
    """Return whether a function has an argument of that name."""
    parameters = inspect.signature(function).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
