"""The features of which primary capsules are made: what the last layer with weights gives."""

from __future__ import annotations

from capsviz.checks.verdict import UnseenError
from capsviz.wrapping.flow import Flow, Port, is_view
from capsviz.wrapping.recorder import Event

MIXING = frozenset(
    ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "linear", "addmm",
     "baddbmm", "bilinear")
)  # fmt: skip
POOLING = frozenset(
    ("avg_pool2d", "max_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d", "lp_pool2d",
     "interpolate", "upsample")
)  # fmt: skip
NORMALISING = frozenset(("batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"))


def last_before(flow: Flow, port: Port | None, normalised: bool = True) -> list[Event]:
    """The last convolutions, pools, or products with weights, before a tensor.

    With `normalised`, a normalisation counts, too, unless only views follow: then it stands in the
    squash's place.

    Raises
    ------
    UnseenError  where there is none.
    """
    queue, visited, events = [(port, True)], set(), []
    while queue:
        source, bare = queue.pop()  # bare: only views follow
        if source is None or source[0] in visited or source[0] not in flow.derived:
            continue
        visited.add(source[0])
        event = flow.events[source[0]]
        own = [k for k in range(len(event.inputs)) if flow.from_images(event, k)]
        product = event.name in ("matmul", "rmatmul", "einsum") and len(event.inputs) > len(own)
        scaled = normalised and not bare and event.name in NORMALISING
        if event.name in MIXING | POOLING or product or scaled:
            events.append(event)
            continue
        bare = bare and is_view(event)
        queue += [(flow.sources[event.index][k], bare) for k in range(len(event.inputs))]
    if not events:
        raise UnseenError("no convolution or product with weights comes before the children")
    return sorted(events, key=lambda event: event.index)
