"""Two networks side by side: one image, how each routes it, and to what end. No Gradio."""

from __future__ import annotations

from html import escape

import numpy as np
from torch import Tensor

from capsviz import tracing
from capsviz.explorer import drawing, look
from capsviz.explorer.network import Networks
from capsviz.tracing.needs import routing_words

ENDS = "Each network has colour scales of its own: read their ends."


def compared(networks: Networks, image: Tensor) -> str:
    """An image (1, C, H, W), as both networks see it, inside each of them, as HTML."""
    columns, mapped = [], None
    for model, name in zip((networks.model, networks.other), networks.names, strict=True):
        if tracing.abilities(model).has_capsules:
            trace = look.look(model, image)
            mapped = int(trace.lengths.argmax()) if mapped is None else mapped
            parts = _inside(networks, trace, model, name, mapped)
        else:
            scores = tracing.scores(model, image)[0].numpy()
            text = "Probability of each class: they sum to 1. It has no capsules, so no routing."
            parts = [drawing.bars(scores, networks.classes, name, text)]
        columns.append(
            f'<section class="cv-both" data-network="{escape(name)}">{"".join(parts)}</section>'
        )
    return drawing.note(ENDS) + drawing.row(*columns)


def _inside(networks, trace, model, name, mapped) -> list[str]:
    classes, R = networks.classes, len(trace.couplings)
    effective = float(np.exp(trace.entropy_nats[-1]).mean())
    parts = [
        drawing.note(f"{name} – {routing_words(model)}."),
        drawing.bars(trace.lengths, classes, name, "Activation of each class, as routed."),
        drawing.couplings(trace, R, classes),
        drawing.note(
            f"A capsule has {effective:.2f} of {len(classes)} effective parents; standard "
            f"deviation of the couplings about uniform: {trace.coupling_sd:.4f}."
        ),
        drawing.evidence(trace, mapped, classes[mapped]),
    ]
    if trace.reconstruction is not None:
        read = classes[int(trace.lengths.argmax())]
        parts.append(drawing.pixels(trace.reconstruction, f"Decoded, from the pose of {read}."))
    return parts
