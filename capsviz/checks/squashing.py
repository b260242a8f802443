"""Over what a squash goes, told by capsules whose inputs are large."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from capsviz.checks.verdict import Judgement, UnseenError, fails, passes, told

ONE, MOVED, HUGE = 2e-2, 1e-4, 1e3
SIZES = (1e4, 1.0)  # a saturated tanh only changes its sign
WRONG = {"over another axis", "number by number"}


def judged(lengths: Tensor, moved: Callable[[float], Tensor]) -> Judgement:
    """Lengths at large inputs must be 1.000.

    Parameters
    ----------
    lengths  of capsules whose inputs are large.
    moved    size of inputs -> how much the numbers of capsules (capsules, numbers) move with one of
             their inputs.
    """
    lengths = lengths[lengths > 0]  # a ReLU may leave nothing of a capsule
    if not lengths.numel():
        raise UnseenError("all capsules are zero at large inputs")
    low, high = float(lengths.min()), float(lengths.max())
    kind = _kind(low, high, moved)
    text = f"{low:.3f} to {high:.3f}" if high < HUGE else f"{low:.2g} to {high:.2g}"
    sentence, numbers = f"lengths at large inputs: {text}", {"lowest": low, "highest": high}
    if kind == "own":
        return passes(sentence, **numbers)
    sentence = f"{sentence} ({kind})"
    return fails(sentence, **numbers) if kind in WRONG else told(sentence, **numbers)


def _kind(low: float, high: float, moved: Callable[[float], Tensor]) -> str:
    if abs(low - 1) < ONE and abs(high - 1) < ONE:
        return "own"
    if high > HUGE:
        return "not squashed"
    if high < ONE:
        return "they vanish"
    for size in SIZES:
        change = moved(size)
        change = change > MOVED * change.max()
        if int(change.any(1).sum()) > 1:
            return "over another axis"
        if change.shape[1] == 1:  # a capsule is one number
            return "own"
        if int(change.sum()) > 1:
            return "each by itself"
    return "number by number"
