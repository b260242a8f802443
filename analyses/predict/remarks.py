"""What is odd about a picture, in words, for lines, figures and the page."""

from __future__ import annotations

from capsviz.statistics.detection import LOW, REASONS

USUAL_PIECES = 2  # of 5,000 validation digits of MNIST, 0.2 % have more


def remarks(unlike: bool | None, reasons, pieces: int | None, score="length") -> list[str]:
    """What is odd about a picture, in words; `score` is what a class gets, see `Result`."""
    texts = []
    if unlike:
        named = REASONS | ({"length": LOW[score]} if score in LOW else {})
        why = f" ({', '.join(named[name] for name in reasons)})" if reasons else ""
        texts.append(f"unlike the training data{why}")
    if pieces is not None and pieces > 1:
        more = ": more than one digit?" if pieces > USUAL_PIECES else ""
        texts.append(f"{pieces} separate pieces of ink{more}")
    return texts
