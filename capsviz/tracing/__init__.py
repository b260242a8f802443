"""Look into a capsule network: everything worth seeing in a forward pass, by name.

`trace` runs a network over images, may replace its couplings, and returns a `Trace`. Any network
that follows the protocol `Network` can be traced; `abilities` says which of its optional parts it
has, and `capsviz.wrap` makes such a network of any other. Everything here works on the networks of
capsviz, on wrapped ones and on hand-written ones alike.
"""

from capsviz.tracing.forward import (
    CHUNK_IMAGES,
    PASS_BYTES,
    images_at_a_time,
    remember,
    trace,
)
from capsviz.tracing.interventions import (
    INTERVENTIONS,
    control_couplings,
    coupling_sd,
    even_couplings,
)
from capsviz.tracing.network import (
    Abilities,
    Network,
    abilities,
    evaluating,
    extent,
    inference,
)
from capsviz.tracing.outputs import (
    LENGTH,
    decode,
    features,
    reconstructs,
    require_decoder,
    score_name,
    scores,
)
from capsviz.tracing.record import KEEP, Trace
from capsviz.tracing.rerouting import (
    from_children,
    parents,
    parents_under,
    routes_again,
    under_couplings,
)
from capsviz.tracing.verification import verify

__all__ = [
    "CHUNK_IMAGES",
    "INTERVENTIONS",
    "KEEP",
    "LENGTH",
    "PASS_BYTES",
    "Abilities",
    "Network",
    "Trace",
    "abilities",
    "control_couplings",
    "coupling_sd",
    "decode",
    "evaluating",
    "even_couplings",
    "extent",
    "features",
    "from_children",
    "images_at_a_time",
    "inference",
    "parents",
    "parents_under",
    "reconstructs",
    "remember",
    "require_decoder",
    "routes_again",
    "score_name",
    "scores",
    "trace",
    "under_couplings",
    "verify",
]
