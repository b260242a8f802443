"""The softmax of the couplings runs over primary capsules, or images, not over class capsules."""

from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.capsules import Capsules, positions
from capsviz.checks.verdict import About, Judgement, fails, passes, warns

ABOUT = About(
    paper="§2, equation 3",
    breaks="primary capsules do not choose between class capsules: routing maps show no routing",
    fix="apply the softmax over the axis of length J: `logits.softmax(dim=2)` for logits (B, I, J)",
    every_layer=True,
)
CLOSE = 1e-3
AXES = {1: "primary capsules", 0: "the images of a batch"}  # of couplings (B, I, J)


def examine(candidate: Candidate, layer: Capsules) -> Judgement:
    """Sum the couplings over each axis, in every routing iteration."""
    iterations = layer.look(candidate.images(7), "couplings")["couplings"]
    where = layer.layer.place if layer.routed else "by its `look`"
    for couplings in iterations:
        low, high, one = _sums(couplings, 2)
        numbers = {"lowest": low, "highest": high}
        count = None if one or layer.of_classes else positions(couplings)
        if one or count is not None:
            continue
        for axis, words in AXES.items():
            if _sums(couplings, axis)[2]:
                judgement = fails(
                    f"couplings sum to 1 over {words}, and over class capsules to {low:.3g} to "
                    f"{high:.3g} ({where}), expected 1", **numbers,
                )  # fmt: skip
                # each image still has couplings of its own, so that a mixed batch shows
                return judgement._replace(spares=("mixed_batch",)) if axis == 1 else judgement
    if one:
        return passes(
            f"couplings sum to {low:.4f} to {high:.4f} over class capsules ({where})", **numbers
        )
    if count is not None:
        return passes(f"couplings sum to 1 over capsules at each of {count} positions ({where})",
                      **numbers)  # fmt: skip
    message = f"couplings sum to {low:.3g} to {high:.3g} over class capsules"
    if layer.routed and layer.rounds[-1].biased:
        return warns(f"{message}, with the bias after the softmax", **numbers)
    return warns(f"{message} ({where}), expected 1", **numbers)


def _sums(couplings: Tensor, axis: int) -> tuple[float, float, bool]:
    """The least and the largest sum over an axis, and whether all are 1."""
    sums = couplings.sum(axis)
    low, high = float(sums.min()), float(sums.max())
    return low, high, max(abs(low - 1), abs(high - 1)) <= CLOSE
