"""Record the internals of a capsule network in a forward pass, by name.

`trace` runs a network on images, optionally with other couplings, and returns a `Trace`. It works
on any network that follows the protocol `Network`. `abilities` returns which of the optional parts
a network has. `capsviz.wrap` turns a custom network into one that can be traced.
"""

from capsviz.tracing.forward import CHUNK_IMAGES as CHUNK_IMAGES
from capsviz.tracing.forward import DRAWN_IMAGES as DRAWN_IMAGES
from capsviz.tracing.forward import fit_at_a_time as fit_at_a_time
from capsviz.tracing.forward import images_at_a_time as images_at_a_time
from capsviz.tracing.forward import trace as trace
from capsviz.tracing.interventions import INTERVENTIONS as INTERVENTIONS
from capsviz.tracing.interventions import control_couplings as control_couplings
from capsviz.tracing.interventions import coupling_sd as coupling_sd
from capsviz.tracing.interventions import even_couplings as even_couplings
from capsviz.tracing.network import Abilities as Abilities
from capsviz.tracing.network import Network as Network
from capsviz.tracing.network import abilities as abilities
from capsviz.tracing.network import evaluating as evaluating
from capsviz.tracing.network import extent as extent
from capsviz.tracing.network import inference as inference
from capsviz.tracing.outputs import LENGTH as LENGTH
from capsviz.tracing.outputs import decode as decode
from capsviz.tracing.outputs import features as features
from capsviz.tracing.outputs import require_decoder as require_decoder
from capsviz.tracing.outputs import right as right
from capsviz.tracing.outputs import score_name as score_name
from capsviz.tracing.outputs import scores as scores
from capsviz.tracing.record import KEEP as KEEP
from capsviz.tracing.record import Trace as Trace
from capsviz.tracing.rerouting import from_children as from_children
from capsviz.tracing.rerouting import parents as parents
from capsviz.tracing.rerouting import parents_under as parents_under
from capsviz.tracing.rerouting import under_couplings as under_couplings
from capsviz.tracing.verification import verify as verify
