"""The softmax of the couplings runs over primary capsules, or images, not over class capsules."""

from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.capsules import Capsules, positions
from capsviz.checks.verdict import About, Judgement, fails, passes, warns
from capsviz.wrapping.flow import arrange
from capsviz.wrapping.layers import Round

ABOUT = About(
    paper="§2, equation 3",
    breaks="primary capsules do not choose between class capsules: routing maps show no routing",
    fix="apply the softmax over the axis of length J: `logits.softmax(dim=2)` for logits (B, I, J)",
    every_layer=True,
)
CLOSE = 1e-3
WORDS = {"I": "primary capsules", "B": "the images of a batch"}


def examine(candidate: Candidate, layer: Capsules) -> Judgement:
    """Sum the softmax over each axis, in every routing iteration."""
    iterations: list[Round] = []
    where = "by its `look`"
    if layer.routed or layer.own_look is None:
        iterations, where = [one for one in layer.rounds if one.softmax], layer.layer.place
    for one in iterations:
        axis, softmax = _softmax(one)
        if softmax is not None and axis in WORDS:
            return _over(axis, softmax.sum(2), where)
    couplings = layer.look(candidate.images(7), "couplings")["couplings"][-1]
    sums = couplings.sum(2)
    low, high = float(sums.min()), float(sums.max())
    numbers = {"lowest": low, "highest": high}
    if max(abs(low - 1), abs(high - 1)) <= CLOSE:
        return passes(
            f"couplings sum to {low:.4f} to {high:.4f} over class capsules ({where})", **numbers
        )
    if not layer.of_classes and (count := positions(couplings)) is not None:
        return passes(f"couplings sum to 1 over capsules at each of {count} positions ({where})",
                      **numbers)  # fmt: skip
    if float((couplings.sum(1) - 1).abs().max()) <= CLOSE:
        return _over("I", sums, where)
    message = f"couplings sum to {low:.3g} to {high:.3g} over class capsules"
    if iterations and iterations[-1].biased:
        return warns(f"{message}, with the bias after the softmax", **numbers)
    return warns(f"{message} ({where}), expected 1", **numbers)


def _over(axis: str, sums: Tensor, where: str) -> Judgement:
    low, high = float(sums.min()), float(sums.max())
    judgement = fails(
        f"couplings sum to 1 over {WORDS[axis]}, and over class capsules to {low:.3g} to "
        f"{high:.3g} ({where}), expected 1", lowest=low, highest=high,
    )  # fmt: skip
    # each image still has couplings of its own, so that a mixed batch shows
    return judgement._replace(spares=("mixed_batch",)) if axis == "I" else judgement


def _softmax(one: Round) -> tuple[str, Tensor | None]:
    """The role of a softmax's axis, "I" for primary capsules, and its output (B, I, J).

    "" and None if they are not known.
    """
    softmax = one.softmax
    if softmax is None or one.logits is None or one.logits[0] is not softmax:
        return "", None
    roles, out = one.logits[2], softmax.outputs[0]
    dim = softmax.kwargs.get("dim")
    dim = softmax.args[1] if dim is None and len(softmax.args) > 1 else dim
    if dim is None:  # the default of torch
        dim = 0 if out.dim() in (0, 1, 3) else 1
    if out.dim() != len(roles) or not isinstance(dim, int):
        return "", None
    return roles[dim], arrange(out, roles, "BIJ")
