"""Class capsules are squashed one by one, each over its own numbers."""

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.squashing import HUGE, judged
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes
from capsviz.wrapping.outputs import values_of_scores

ABOUT = About(
    paper="§2, equation 1",
    seen="lengths of classes when the sums of votes are large: 1.000 each; and when they are "
    "short: not so",
    breaks="a length depends on the other classes, or passes 1, and is no probability",
    mend="`squash(s, dim=-1)` where the last axis holds the numbers of one capsule",
    pitfalls=(4,),
    layers=True,
)


SHORT = 1e-3
UNSQUASHED, ELSE = "not squashed", "not each over its own numbers"


def examine(candidate: Candidate) -> Judgement:
    """By sums that are a million times as large."""
    lengths = _large(candidate).norm(dim=-1)
    if not lengths.isfinite().all():
        raise UnseenError("poses of large sums are not finite")
    judgement = judged(lengths, lambda size: _moved(candidate, size))
    if not candidate.of_classes:  # no scores are told of them; what turns them is not followed
        said = judgement.said.replace(UNSQUASHED, f"{UNSQUASHED}, or {ELSE}")
        wrong = said != judgement.said and candidate.classes_by_length
        return fails(said, **judgement.numbers) if wrong else judgement._replace(said=said)
    if float(lengths.max()) > HUGE and _norms_are_scores(candidate):
        return fails(judgement.said, **judgement.numbers)
    if judgement.status != "passes" or not _scores_are_lengths(candidate):
        return judgement
    short = _of_short(candidate)
    numbers = {**judgement.numbers, "short": short}
    if short > 0.5:
        return fails(
            f"{judgement.said}, and of sums as short as {SHORT:g}, too: {short:.3f}; a length says "
            "nothing", **numbers,
        )  # fmt: skip
    return passes(judgement.said, **numbers)


def _of_short(candidate: Candidate) -> float:
    """The longest pose of sums as short as `SHORT`, as far as it turns with them.

    A bias that is added before the squash stays where it is.
    """
    along, against = (
        _large(candidate, lambda total, size=size: total / total.norm() * size)
        for size in (SHORT, -SHORT)
    )
    return float(((along - against) / 2).norm(dim=-1).max())


def _scores_are_lengths(candidate: Candidate) -> bool:
    images = candidate.images(3)
    return bool(
        ((candidate.scores(images) - candidate.poses(images).norm(dim=-1)).abs() < 1e-3).all()
    )


def _norms_are_scores(candidate: Candidate) -> bool:
    """Whether what it says of the classes, in [0, 1] or not, are the norms of their poses."""
    images = candidate.images(7)
    form = candidate.scores_option
    if isinstance(form, str) and form != "norms":
        return False
    output = candidate.call(images)
    said = values_of_scores(output, len(images), candidate.classes, form)
    if not said:  # then poses are what it says
        return candidate.pose_output is not None
    norms = candidate.poses(images).norm(dim=-1)
    return any(bool(torch.allclose(norms, one, rtol=1e-3, atol=1e-3)) for one in said)


def _moved(candidate: Candidate, size: float) -> Tensor:
    """How much the numbers of poses (J, E) move with one number of the sums."""
    axes = [axis for axis, role in enumerate(candidate.last.total_roles) if role in "JE"]
    poses = []
    for factor in (1, -3):

        def change(tensor, factor=factor):
            generator = torch.Generator().manual_seed(5)
            changed = size * torch.randn(tensor.shape, generator=generator).to(tensor)
            one = changed
            for axis in axes:
                one = one.narrow(axis, 0, 1)
            one.mul_(factor)
            return changed

        poses.append(_large(candidate, change)[0])
    return (poses[0] - poses[1]).abs()


def _enlarged(total: Tensor) -> Tensor:
    """A million times as large, and tiny ones more than that."""
    return 1e6 * total / total.abs().max().clamp(1e-30, 1)


def _large(candidate: Candidate, change=_enlarged) -> Tensor:
    totals = [one.total for one in candidate.layer.rounds]
    return candidate.alteration(totals, change, candidate.images(7), "poses")[-1]
