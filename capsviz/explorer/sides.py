"""Two networks side by side, and trained, uniform and transplanted couplings. No Gradio."""

from __future__ import annotations

from html import escape

import numpy as np
from torch import Tensor

from capsviz.analyses.view.measure import warped
from capsviz.explorer import drawing, look, pair
from capsviz.explorer.network import Networks
from capsviz.explorer.settings import Settings

SENTENCES = {
    None: "As trained: couplings found by routing.",
    "uniform": "Every capsule gives every class the same; what is left is what the votes say.",
    look.ANOTHER: "Couplings of the other image: if they carried the class, it would be {class}.",
}


def compared(networks: Networks, image: Tensor, settings: Settings) -> str:
    """An image (1, C, H, W), warped as set, in both networks, and under three couplings, as HTML.

    Raises
    ------
    ValueError  for a donor that is not there.
    """
    image = warped(image, settings.warp)
    label, number = settings.donor
    donor = networks.test_image(label, number)
    outcomes: list = []  # (couplings, sentence, what was seen or why nothing was)
    for couplings, sentence in SENTENCES.items():
        how = look.Intervention(
            couplings=couplings, donor=settings.donor if couplings == look.ANOTHER else None
        )
        try:
            outcomes.append((couplings, sentence, look.look(networks.model, image, how, donor)))
        except ValueError as error:  # couplings that cannot be replaced
            outcomes.append((couplings, sentence, str(error)))
    traces = [trace for *_, trace in outcomes if not isinstance(trace, str)]
    first = traces[0].lengths if traces else None
    maps = [np.abs(trace.maps).max() for trace in traces if trace.maps is not None]
    shared = (first, float(max(maps, default=0)), donor, label)
    columns = [
        f'<section class="cv-side">{drawing.note(trace, "cv-warn")}</section>'
        if isinstance(trace, str)
        else _column(networks, trace, couplings, sentence, *shared)
        for couplings, sentence, trace in outcomes
    ]
    return (
        f"<h4>Two networks, the same image</h4>{pair.compared(networks, image)}"
        f"<h4>Three couplings of {escape(networks.names[0])}, the same votes</h4>"
        f"{_finding(networks, image)}{drawing.row(*columns)}"
    )


def _column(networks, trace, couplings, sentence, first, limit, donor, label) -> str:
    """One answer; ticks and map are those of the class that is read first, on one scale."""
    names, mapped = networks.classes, int(first.argmax())
    title = {None: "trained", "uniform": "uniform", look.ANOTHER: "transplanted"}[couplings]
    text = sentence.replace("{class}", names[label])
    text += "" if couplings is None else " Ticks: as trained."
    parts = [
        drawing.bars(
            trace.lengths,
            names,
            f"{title.capitalize()} couplings: {networks.names[0]}",
            text,
            None if couplings is None else first,
        ),
        drawing.evidence(trace, mapped, names[mapped], limit),
    ]
    if trace.reconstruction is not None:
        name = names[int(trace.lengths.argmax())]
        parts.append(drawing.pixels(trace.reconstruction, f"Decoded, from the pose of {name}."))
    if couplings == look.ANOTHER:
        pixels = (donor[0] * 255).round().byte().numpy()
        parts.append(drawing.pixels(pixels, f"The other image, a {names[label]}."))
    sd = f"Standard deviation of these couplings about uniform: {trace.coupling_sd:.4f}."
    return (
        f'<section class="cv-side" data-couplings="{title}">{"".join(parts)}'
        f"{drawing.note(sd)}</section>"
    )


def _finding(networks: Networks, image: Tensor) -> str:
    """How much of the answer is left without routing, in a sentence."""
    routed = look.look(networks.model, image).lengths
    even = look.look(networks.model, image, look.Intervention(couplings="uniform")).lengths
    before, after = int(routed.argmax()), int(even.argmax())
    names = networks.classes
    same = "also with uniform couplings" if before == after else (
        f"but {names[after]} with uniform couplings"
    )  # fmt: skip
    gap = float(np.abs(routed - even).max())
    return drawing.note(
        f"{networks.names[0]} reads {names[before]}, {same}; no length differs by more than "
        f"{gap:.2f}. This is one image: `capsviz transplant --n 1000` counts many."
    )
