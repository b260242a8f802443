"""The loss takes lengths, not a softmax of them."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.losses import Losses
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes, told

ABOUT = About(
    paper="§3, equation 4",
    seen="the same is added to all lengths: a softmax does not change",
    breaks="with 10 classes no share passes 0.232, so that no margin of 0.9 is ever met",
    mend="give the lengths themselves to the margin loss; no `CrossEntropyLoss` on lengths",
    needs="`loss`",
    pitfalls=(8,),
)


SHIFTS = (0.1, 0.2)
GAPS = (0.2, 0.4, 0.6)  # of the present class and all others
STRAIGHT = 1e-4  # of a step of a loss, or of its root


def examine(candidate: Candidate) -> Judgement:
    """A loss that does not see a shift, and that is never at rest, has a softmax in it."""
    losses = Losses(candidate)
    low = losses.at(0.4, 0.2)
    shift = max(abs(losses.at(0.4 + more, 0.2 + more) - low) for more in SHIFTS)
    slope = abs(losses.at(0.99, 0.01) - losses.at(0.95, 0.05))
    moved = abs(losses.at(0.6, 0.2) - low)
    if not max(shift, slope, moved):
        raise UnseenError("the loss does not follow the lengths in the output")
    numbers = {"shift": shift, "moved": moved, "at_rest": slope}
    sentence = f"with up to 0.2 more of all lengths it changes by {shift:.2g}"
    if shift < 1e-4 * moved and slope > 1e-5 * moved:
        if _is_hinge(losses):
            return told(f"{sentence}: it is a margin between classes, not one of each", **numbers)
        return fails(f"{sentence}, with 0.2 more of one by {moved:.2g}", **numbers)
    return passes(sentence, **numbers)


def _is_hinge(losses: Losses) -> bool:
    """Whether it, or its root, falls in a straight line with the gap: `multi_margin_loss` does."""
    values = [losses.at(0.3 + gap, 0.3) for gap in GAPS]
    if min(values) <= 0:
        return False
    for near, middle, far in (values, [value**0.5 for value in values]):
        if near - middle > 0 and abs(near - 2 * middle + far) < STRAIGHT * (near - middle):
            return True
    return False
