"""Trace: everything worth looking at in one forward pass, by name, and interventions on routing.

Any capsule network can be traced, and so analysed, that has
    look(images, *, keep, layer=-1, couplings=None, iterations=None)
                                       -> dict of the tensors that a Trace names, those of `keep` at
                                          least; "primary" may stand for "children", "lengths" for
                                          the last activations; activations that are left out are
                                          the norms of poses
    decode(poses (B,J,E), classes (B,)) -> images (B,C,H,W) in [0, 1]
    grid                               (types, rows, columns) of the children, or None; `grids`, one
                                       for each layer, where several are routed; None: no places,
                                       so no maps
    receptive_field(row, column)       -> two slices: the image rows and columns a capsule sees
and, if its children can be replaced,
    from_children(children (B,I,D), activations (B,I), *, layer=-1, couplings=None)
                                       -> poses and activations (B,J) of the classes, `couplings` of
                                          that layer (B,I,J), or a list with those of each
                                          iteration, None where it routes
A network with one routed layer needs no `layer`, one whose couplings cannot be replaced no
`couplings`; one that cannot decode says so by `decoder = None`; one whose poses are matrices has
`pose_shape`, e.g. (4, 4). `capsviz.wrap` makes all this of a network that knows nothing of it. What
is not capsviz's own is verified once, on its first trace.
"""

from capsviz.tracing.features import features
from capsviz.tracing.forward import CHUNK_BYTES, CHUNK_IMAGES, PASS_BYTES, images_at_a_time, trace
from capsviz.tracing.interventions import (
    INTERVENTIONS,
    control_couplings,
    coupling_sd,
    coupling_totals,
    even_couplings,
)
from capsviz.tracing.modes import evaluating, inference
from capsviz.tracing.network import Abilities, Network, abilities
from capsviz.tracing.outputs import (
    LENGTH,
    decode,
    reconstructs,
    require_decoder,
    score_name,
    scores,
)
from capsviz.tracing.places import extent
from capsviz.tracing.record import KEEP, PER_ITERATION, Trace
from capsviz.tracing.remembered import remember
from capsviz.tracing.rerouting import from_children, parents_under, routes_again, under_couplings

__all__ = [
    "CHUNK_BYTES",
    "CHUNK_IMAGES",
    "INTERVENTIONS",
    "KEEP",
    "LENGTH",
    "PASS_BYTES",
    "PER_ITERATION",
    "Abilities",
    "Network",
    "Trace",
    "abilities",
    "control_couplings",
    "coupling_sd",
    "coupling_totals",
    "decode",
    "evaluating",
    "even_couplings",
    "extent",
    "features",
    "from_children",
    "images_at_a_time",
    "inference",
    "parents_under",
    "reconstructs",
    "remember",
    "require_decoder",
    "routes_again",
    "score_name",
    "scores",
    "trace",
    "under_couplings",
]
