"""Routing runs towards agreement: couplings grow where a vote points along the pose."""

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, ApartError, Judgement, UnseenError, fails, passes, told
from capsviz.wrapping.flow import arrange

ABOUT = About(
    paper="§2, procedure 1, line 7: the agreement û·v is added to the logits",
    seen="sums of the first pass drawn at random, and turned round: whether the next couplings go "
    "with votes · sums, and those after them still depend on it",
    breaks="children send to parents that they do not agree with: no part finds its whole",
    mend="`logits + (votes * v.unsqueeze(1)).sum(-1)`, with a plus, and each parent's own pose",
    after=("repeats", "batch", "couplings_sum", "couplings_of_images"),
    layers=True,
)
CLEAR, TINY, FAINT = 0.3, 1e-30, 1e-3


def examine(candidate: Candidate) -> Judgement:
    """How the couplings of the second pass go with agreement in the first."""
    try:
        rounds = candidate.layer.rounds
    except ApartError as error:
        return fails(f"{error}, as the agreement of a vote is not summed over them")
    if len(rounds) < 2:
        raise UnseenError("it routes in one pass")
    images = candidate.images(7)
    votes = candidate.look(images, "votes")["votes"].double()
    (sums, couplings), (_, turned) = (_second(candidate, images, sign) for sign in (1, -1))
    follow = _centred(couplings.log() - turned.log())
    agree = _centred(torch.einsum("bije,bje->bij", votes, sums))
    if float(follow.abs().max()) < 1e-6 * (1 + float(couplings.log().abs().max())):
        if float(agree.abs().max()) < FAINT:
            raise UnseenError(
                "votes are too short to move couplings: weights are tiny, or have collapsed"
            )
        return told("couplings do not follow the poses of the pass before", correlation=0.0)
    along = float((follow * agree).sum() / (follow.norm() * agree.norm()).clamp_min(TINY))
    sentence = f"the next couplings go with the agreement of votes and poses by {along:.2f}"
    if along > CLEAR and _forgets(candidate, images):
        sentence += ", but those of the third pass do not depend on the first: logits are replaced"
        return told(f"{sentence}, and not added to", correlation=along)
    if along > CLEAR:
        return passes(sentence, correlation=along)
    if along < -CLEAR and candidate.by_length:
        return fails(f"{sentence}: away from it", correlation=along)
    return told(f"{sentence}, expected 1", correlation=along)


def _second(candidate: Candidate, images: Tensor, sign: int) -> tuple[Tensor, Tensor]:
    """Sums (B, J, E) put in place of those of the first pass, and the couplings (B, I, J) then."""
    (put, *_), couplings = _altered(candidate, images, (sign,))
    if len(couplings) < 2:
        raise UnseenError("couplings of a second pass are not seen")
    sums = arrange(put, candidate.layer.rounds[0].total_roles, "BJE")
    return sums.double(), couplings[1].double().clamp_min(TINY)


def _forgets(candidate: Candidate, images: Tensor) -> bool:
    """Whether the couplings of a third pass are the same whatever the sums of the first were."""
    if len(candidate.layer.rounds) < 3:
        return False
    one, turned = (_altered(candidate, images, (sign, 1))[1] for sign in (1, -1))
    if len(one) < 3 or not torch.equal(one[0], turned[0]):
        return False
    second, third = (float((one[k] - turned[k]).abs().max()) for k in (1, 2))
    return third < 1e-3 * second


def _altered(candidate: Candidate, images: Tensor, signs) -> tuple[list[Tensor], list[Tensor]]:
    """Sums drawn at random, times a sign, in place of those of the first passes; all couplings."""
    generator, left, put = torch.Generator().manual_seed(6), iter(signs), []

    def change(total):
        sign = next(left, None)
        if sign is None:
            return total
        put.append(sign * torch.randn(total.shape, generator=generator).to(total))
        return put[-1]

    totals = [turn.total for turn in candidate.layer.rounds[: len(signs)]]
    sites = {event.site: event for event in totals}  # a loop has one for all its passes
    return put, candidate.alteration(list(sites.values()), change, images, "couplings")


def _centred(tensor: Tensor) -> Tensor:
    """(B, I, J), less its mean over parents."""
    return tensor - tensor.mean(2, keepdim=True)
