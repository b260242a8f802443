"""The loss applies a softmax to the lengths."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes, warns

ABOUT = About(
    paper="§3, equation 4",
    breaks="with 10 classes no share exceeds 0.232, so that a margin of 0.9 is never reached",
    fix="give the lengths themselves to the margin loss; no `CrossEntropyLoss` of lengths",
    needs="`loss`",
)
STRAIGHT = 1e-4  # of a step of a loss, or of its root


def examine(candidate: Candidate) -> Judgement:
    """Add one number to all lengths, which does not change a softmax."""
    at = candidate.loss.at
    low = at(0.4, 0.2)
    shift = max(abs(at(0.4 + more, 0.2 + more) - low) for more in (0.1, 0.2))
    slope = abs(at(0.99, 0.01) - at(0.95, 0.05))
    moved = abs(at(0.6, 0.2) - low)
    if not max(shift, slope, moved):
        raise SkippedError("the loss does not follow the lengths in the output")
    numbers = {"shift": shift, "moved": moved, "at_rest": slope}
    message = f"adding up to 0.2 to all lengths changes the loss by {shift:.2g}"
    if shift >= 1e-4 * moved or slope <= 1e-5 * moved:
        return passes(message, **numbers)
    # a margin between classes falls in a straight line with the gap, or its root does
    values = [at(0.3 + gap, 0.3) for gap in (0.2, 0.4, 0.6)]
    for near, middle, far in (values, [max(value, 0) ** 0.5 for value in values]):
        if near - middle > 0 and abs(near - 2 * middle + far) < STRAIGHT * (near - middle):
            return warns(f"{message}: it is a margin between classes, not one of each", **numbers)
    return fails(f"{message}, adding 0.2 to one of them by {moved:.2g}", **numbers)
