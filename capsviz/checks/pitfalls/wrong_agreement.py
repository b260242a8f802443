"""Routing does not follow agreement: couplings do not grow where a vote points along the pose."""

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.capsules import Capsules
from capsviz.checks.verdict import About, ApartError, Judgement, SkippedError, fails, passes, warns
from capsviz.wrapping.layout import arrange

ABOUT = About(
    paper="§2, procedure 1, line 7: the agreement û·v is added to the logits",
    method="the sums of votes of the first iteration are replaced by noise, and by its negative: "
    "do the next couplings follow votes · sums, and do the third still depend on the first?",
    breaks="primary capsules send to class capsules that they do not agree with: no part finds its "
    "whole",
    fix="use `logits + (votes * v.unsqueeze(1)).sum(-1)`: a plus, and each parent's own pose",
    after=("not_repeatable", "mixed_batch", "wrong_softmax_axis", "constant_couplings"),
    every_layer=True,
)
CLEAR, TINY, FAINT = 0.3, 1e-30, 1e-3


def examine(candidate: Candidate, layer: Capsules) -> Judgement:
    """Correlate the couplings of the second iteration with the agreement in the first."""
    try:
        iterations = layer.rounds
    except ApartError as error:
        return fails(f"{error}: the agreement of a vote is not summed over them")
    if len(iterations) < 2:
        raise SkippedError("the network routes in one iteration")
    images = candidate.images(7)
    votes = layer.look(images, "votes")["votes"].double()
    sums, couplings = _second(layer, images, 1)
    _, opposite = _second(layer, images, -1)
    change = _centred(couplings.log() - opposite.log())
    agreement = _centred(torch.einsum("bije,bje->bij", votes, sums))
    if float(change.abs().max()) < 1e-6 * (1 + float(couplings.log().abs().max())):
        if float(agreement.abs().max()) < FAINT:
            raise SkippedError(
                "votes are too short to change couplings: weights are tiny or have collapsed"
            )
        return warns(
            "couplings do not depend on the poses of the iteration before", correlation=0.0
        )
    size = (change.norm() * agreement.norm()).clamp_min(TINY)
    along = float((change * agreement).sum() / size)
    message = f"couplings correlate with the agreement of votes and poses by {along:.2f}"
    if along > CLEAR and _forgets(layer, images):
        message += ", but the third iteration forgets the first: logits are replaced, not added to"
        return warns(message, correlation=along)
    if along > CLEAR:
        return passes(message, correlation=along)
    if along < -CLEAR and layer.by_length:
        return fails(f"{message}, expected 1: routing moves away from agreement", correlation=along)
    return warns(f"{message}, expected 1", correlation=along)


def _second(layer: Capsules, images: Tensor, sign: int) -> tuple[Tensor, Tensor]:
    """Sums (B, J, E) put into the first iteration, and the couplings (B, I, J) of the second."""
    (put, *_), couplings = _with_noise(layer, images, (sign,))
    if len(couplings) < 2:
        raise SkippedError("the couplings of a second iteration are not found")
    sums = arrange(put, layer.rounds[0].total_roles, "BJE", {})
    return sums.double(), couplings[1].double().clamp_min(TINY)


def _forgets(layer: Capsules, images: Tensor) -> bool:
    """Whether the third couplings are the same whatever the sums of the first iteration were."""
    if len(layer.rounds) < 3:
        return False
    one, opposite = (_with_noise(layer, images, (sign, 1))[1] for sign in (1, -1))
    if len(one) < 3 or not torch.equal(one[0], opposite[0]):
        return False
    second, third = (float((one[k] - opposite[k]).abs().max()) for k in (1, 2))
    return third < 1e-3 * second


def _with_noise(layer: Capsules, images: Tensor, signs) -> tuple[list[Tensor], list[Tensor]]:
    """Noise times a sign, put in place of the sums of the first iterations, and all couplings."""
    generator, left, put = torch.Generator().manual_seed(6), iter(signs), []

    def change(total):
        sign = next(left, None)
        if sign is None:
            return total
        put.append(sign * torch.randn(total.shape, generator=generator).to(total))
        return put[-1]

    return put, layer.with_sums(change, images, "couplings", len(signs))


def _centred(tensor: Tensor) -> Tensor:
    """(B, I, J), less its mean over parents."""
    return tensor - tensor.mean(2, keepdim=True)
