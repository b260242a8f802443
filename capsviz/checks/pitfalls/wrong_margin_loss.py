"""The margin loss is not squared, not summed over classes, or exchanges present and absent."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.response import Response
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes, warns

ABOUT = About(
    paper="§3, equation 4",
    method="the loss for other lengths in the output, one class at a time",
    breaks="training minimises another loss than the reported one",
    fix="use `present * relu(0.9 - v)**2 + 0.5 * (1 - present) * relu(v - 0.1)**2`, summed over "
    "classes",
    needs="`loss`",
    after=("not_repeatable", "softmax_in_loss"),
)
ROUNDING = 1e-5  # of a loss in float32
# lengths of the true class, and of the others, on the costly side of the margins
WITHIN = (0.2, 0.4, 0.6), (0.9, 0.75, 0.6)
EXCHANGED = (0.02, 0.04, 0.06), (0.98, 0.96, 0.94)


def examine(candidate: Candidate) -> Judgement:
    """Measure its growth with the distance from the margin: 4 at twice the distance if squared."""
    loss = Response(candidate)
    rest = loss.at(0.95, 0.05)
    near, far = (loss.at(length, 0.05) - rest for length in (0.7, 0.5))
    false_near, false_far = (loss.at(0.95, length) - rest for length in (0.3, 0.5))
    flat = abs(loss.at(0.99, 0.01) - rest)
    worst = loss.at(0.05, 0.95)
    if worst == rest:
        raise SkippedError("the loss does not follow the lengths in the output")
    if (shared := loss.shared()) > 0.05:
        return fails(
            "the loss of an image depends on the lengths of the others: two images change it by "
            f"{shared:.0%} more or less than each by itself", shared=shared,
        )  # fmt: skip
    if worst < rest:
        return fails(
            f"the loss is {worst:.3g} if the true class is short and the others long, else "
            f"{rest:.3g}: present and absent are exchanged", exchanged=worst - rest,
        )  # fmt: skip
    for costs_more, other in (
        ("the true class costs more if it is long", loss.at(0.05, 0.05)),
        ("other classes cost more if they are short", loss.at(0.95, 0.95)),
    ):
        if rest - other > ROUNDING * abs(rest):
            return fails(f"{costs_more}: {rest:.3g}, else {other:.3g}", wrong_sign=rest - other)
    margins = _margins(loss, rest, *EXCHANGED)
    if margins is not None and abs(margins[0] - 0.1) + abs(margins[1] - 0.9) < 0.02:
        return fails(
            f"the margins are exchanged: {margins[0]:.2f} for the true class and "
            f"{margins[1]:.2f} for the others", present_margin=margins[0],
            absent_margin=margins[1],
        )  # fmt: skip
    if near <= 0 or flat > 0.02 * near:
        return warns(f"it is no margin loss: from 0.95 to 0.99 it changes by {flat:.2g}", flat=flat)
    apart = abs(loss.at(0.7, 0.3) - rest - near - false_near)
    one = (loss.at(0.95, 0.05, 0.3) - rest) * (candidate.classes - 1)
    if apart > 0.02 * near or abs(one - false_near) > 0.02 * false_near:
        return warns("it is no margin loss: classes are not summed one by one",
                     together=apart, one_absent=one, all_absent=false_near)  # fmt: skip
    if loss.at(0.95, 0.95) - rest < ROUNDING * near:
        return fails("other classes cost nothing, however long they are", absent=0.0)
    growth = far / near
    false_growth = false_far / false_near if false_near > 0 else float("inf")
    absent = false_near / near / (candidate.classes - 1)
    margins = _margins(loss, rest, *WITHIN)
    if margins is not None and max(abs(margins[0] - 0.9), abs(margins[1] - 0.1)) > 0.01:
        return warns(
            f"it is squared, with margins of {margins[0]:.2f} and {margins[1]:.2f}, expected 0.9 "
            "and 0.1", present_margin=margins[0], absent_margin=margins[1],
        )  # fmt: skip
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


def _margins(loss: Response, rest: float, present, absent) -> tuple[float, float] | None:
    """Where two parabolas begin, each through two points and checked by a third; else None.

    Of k (m - v)², roots of the loss are straight in v, and zero at the margin m.
    """
    margins = []
    for points, at in (
        (present, lambda v: loss.at(v, 0.05)),
        (absent, lambda v: loss.at(0.95, v)),
    ):
        values = [at(v) - rest for v in points]
        if min(values) <= 0:
            return None
        first, middle, last = (value**0.5 for value in values)
        slope = (last - first) / (points[2] - points[0])
        straight = abs(first + slope * (points[1] - points[0]) - middle) < 0.005 * middle
        if not straight or slope == 0:
            return None
        margins.append(points[0] - first / slope)
    return margins[0], margins[1]
