"""Couplings sum to 1 over parents, not over children."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.parents import places
from capsviz.checks.verdict import About, Judgement, fails, passes, told
from capsviz.wrapping.flow import arrange

ABOUT = About(
    paper="§2, equation 3",
    seen="sums of what the softmax gives, in every pass of routing",
    breaks="children do not choose between parents: what routing maps show is no routing",
    mend="softmax over the axis of length J: `logits.softmax(dim=2)` for logits (B, I, J)",
    pitfalls=(2,),
    layers=True,
)
CLOSE = 1e-3
WORDS = {"I": "children", "B": "the images of a batch"}
OF_IMAGES = ("batch",)  # what couplings that each image has of its own do not upset


def examine(candidate: Candidate) -> Judgement:
    """The axis of the softmax by the sums of its output."""
    if candidate.has_layer or candidate.own_look is None:
        softmaxes = [one for one in candidate.layer.rounds if one.softmax is not None]
        where = candidate.layer.place
    else:
        softmaxes, where = [], "as its `look` says"
    for one in softmaxes:
        softmax = one.softmax
        if softmax is None or one.logits is None:
            continue
        event, _, roles = one.logits
        out = softmax.outputs[0]
        if event is not softmax or out.dim() != len(roles):
            continue
        dim = softmax.kwargs.get("dim")
        dim = softmax.args[1] if dim is None and len(softmax.args) > 1 else dim
        if dim is None:  # as torch chooses
            dim = 0 if out.dim() in (0, 1, 3) else 1
        axes = {roles[dim]} if isinstance(dim, int) else set()
        for letter, word in WORDS.items():
            if letter in axes:
                sums = arrange(out, roles, "BIJ").sum(2)
                low, high = float(sums.min()), float(sums.max())
                judgement = fails(
                    f"they sum to 1 over {word}, and over parents to {low:.3g} to {high:.3g} "
                    f"({where})", lowest=low, highest=high,
                )  # fmt: skip
                return judgement if letter == "B" else judgement._replace(spares=OF_IMAGES)
    couplings = candidate.look(candidate.images(7), "couplings")["couplings"][-1]
    sums = couplings.sum(2)
    low, high = float(sums.min()), float(sums.max())
    numbers = {"lowest": low, "highest": high}
    if max(abs(low - 1), abs(high - 1)) <= CLOSE:
        return passes(f"they sum to {low:.4f} to {high:.4f} over parents ({where})", **numbers)
    if not candidate.of_classes and (count := places(couplings)) is not None:
        return passes(f"they sum to 1 over the parents of each of {count} places ({where})",
                      **numbers)  # fmt: skip
    over = couplings.sum(1)
    if float((over - 1).abs().max()) <= CLOSE:
        return fails(
            f"they sum to 1 over children, and over parents to {low:.3g} to {high:.3g} ({where})",
            **numbers,
        )._replace(spares=OF_IMAGES)
    if softmaxes and softmaxes[-1].biased:
        return told(f"with the bias after the softmax they sum to {low:.3g} to {high:.3g}",
                    **numbers)  # fmt: skip
    return told(f"they sum to {low:.3g} to {high:.3g} over parents ({where})", **numbers)
