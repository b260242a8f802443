"""Two networks side by side: one image, how each routes it, and to what end. No Gradio."""

from __future__ import annotations

from html import escape

import numpy as np
from torch import Tensor

from capsviz import tracing
from capsviz.analyses.side_by_side.measure import routing_words
from capsviz.explorer import drawing, look
from capsviz.explorer.network import Networks

ENDS = "Each network has colour scales of its own: read their ends."


def compared(networks: Networks, image: Tensor) -> str:
    """An image (1, C, H, W), as both networks see it, inside each of them, as HTML."""
    columns, mapped = [], None
    for model, name in zip((networks.model, networks.other), networks.names, strict=True):
        if hasattr(model, "look"):
            seen = look.look(model, image)
            mapped = int(seen.lengths.argmax()) if mapped is None else mapped
            parts = _inside(networks, seen, model, name, mapped)
        else:
            scores = tracing.scores(model, image)[0].numpy()
            text = "Probability of each class: they sum to 1. It has no capsules, so no routing."
            parts = [drawing.bars(scores, networks.classes, name, text)]
        columns.append(
            f'<section class="cv-both" data-network="{escape(name)}">{"".join(parts)}</section>'
        )
    return drawing.note(ENDS) + drawing.row(*columns)


def _inside(networks, seen, model, name, mapped) -> list[str]:
    classes, R = networks.classes, len(seen.couplings)
    effective = float(np.exp(seen.entropy_nats[-1]).mean())
    parts = [
        drawing.note(f"{name} – {routing_words(model)}."),
        drawing.bars(seen.lengths, classes, name, "Activation of each class, as routed."),
        drawing.couplings(seen, R, classes),
        drawing.note(
            f"A capsule has {effective:.2f} of {len(classes)} effective parents; standard "
            f"deviation of the couplings about uniform: {seen.coupling_sd:.4f}."
        ),
        drawing.evidence(seen, mapped, classes[mapped]),
    ]
    if seen.reconstruction is not None:
        read = classes[int(seen.lengths.argmax())]
        parts.append(drawing.pixels(seen.reconstruction, f"Decoded, from the pose of {read}."))
    return parts
