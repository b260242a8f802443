"""The margin loss is not squared, not summed over classes, or exchanges present and absent."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes, warns

ABOUT = About(
    paper="§3, equation 4",
    breaks="training minimises another loss than the reported one",
    fix="use `present * relu(0.9 - v)**2 + 0.5 * (1 - present) * relu(v - 0.1)**2`, summed over "
    "classes",
    needs="`loss`",
    after=("not_repeatable", "softmax_in_loss"),
)
ROUNDING = 1e-5  # of a loss in float32
# lengths of the true class, and of the others, on the costly side of the margins
PRESENT, ABSENT = (0.2, 0.4, 0.6), (0.9, 0.75, 0.6)


def examine(candidate: Candidate) -> Judgement:
    """Change the lengths in the output, one class at a time."""
    at = candidate.loss.at
    rest = at(0.95, 0.05)
    if at(0.05, 0.95) == rest:
        raise SkippedError("the loss does not follow the lengths in the output")
    for present, absent in ((0.05, 0.95), (0.05, 0.05), (0.95, 0.95)):
        gain = rest - at(present, absent)
        if gain > ROUNDING * abs(rest):
            return fails(
                f"a length of {present} for the true class and {absent} for the others costs "
                f"{gain:.2g} less than 0.95 and 0.05: a sign is wrong, or present and absent are "
                "exchanged", costs_less=gain,
            )  # fmt: skip
    near, far = (at(length, 0.05) - rest for length in (0.7, 0.5))
    false_near, false_far = (at(0.95, length) - rest for length in (0.3, 0.5))
    flat = abs(at(0.99, 0.01) - rest)
    if near <= 0 or flat > 0.02 * near:
        return warns(
            f"it is no margin loss of 0.9 and 0.1: lengths of 0.99 and 0.01 change it by {flat:.2g}"
            f" from 0.95 and 0.05, 0.7 and 0.05 by {near:.2g}", flat=flat, near=near,
        )  # fmt: skip
    apart = abs(at(0.7, 0.3) - rest - near - false_near)
    one = (at(0.95, 0.05, 0.3) - rest) * (candidate.classes - 1)
    if apart > 0.02 * near or abs(one - false_near) > 0.02 * false_near:
        return warns("it is no margin loss: classes are not summed one by one",
                     together=apart, one_absent=one, all_absent=false_near)  # fmt: skip
    if at(0.95, 0.95) - rest < ROUNDING * near:
        return fails("other classes cost nothing, however long they are", absent=0.0)
    upper = _margin(lambda v: at(v, 0.05) - rest, PRESENT)
    lower = _margin(lambda v: at(0.95, v) - rest, ABSENT)
    if upper and lower and max(abs(upper - 0.9), abs(lower - 0.1)) > 0.01:
        return warns(
            f"it is squared, with margins of {upper:.2f} and {lower:.2f}, expected 0.9 and 0.1",
            present_margin=upper, absent_margin=lower,
        )  # fmt: skip
    growth, absent = far / near, false_near / near / (candidate.classes - 1)
    false_growth = false_far / false_near if false_near > 0 else float("inf")
    numbers = {"growth": growth, "false_growth": false_growth, "absent": absent,
               "present": near / 0.04}  # fmt: skip
    if not (abs(growth - 4) < 0.2 and abs(false_growth - 4) < 0.2):
        return fails(
            f"at twice the distance from the margin the loss is {growth:.2f} times as large for "
            f"the true class, {false_growth:.2f} for the others, expected 4", **numbers,
        )  # fmt: skip
    message = f"it is squared (growth {growth:.2f}), with λ = {absent:.2g}"
    if abs(absent - 0.5) < 0.02:
        return passes(message, **numbers)
    return warns(f"{message}, expected 0.5", **numbers)


def _margin(cost, lengths: tuple[float, float, float]) -> float | None:
    """Where a cost k (m - v)² through three points begins; None for another form of cost."""
    roots = [max(cost(v), 0) ** 0.5 for v in lengths]
    slope = (roots[2] - roots[0]) / (lengths[2] - lengths[0])
    middle = roots[0] + slope * (lengths[1] - lengths[0])
    straight = slope != 0 and abs(middle - roots[1]) < 0.005 * roots[1]
    return lengths[0] - roots[0] / slope if straight else None
