"""Routing does not follow agreement: couplings do not grow where a vote points along the pose."""

from typing import NamedTuple

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.capsules import Capsules
from capsviz.checks.primary import noise
from capsviz.checks.verdict import About, ApartError, Judgement, SkippedError, fails, passes, warns
from capsviz.wrapping.flow import arrange

ABOUT = About(
    paper="§2, procedure 1, line 7: the agreement û·v is added to the logits",
    breaks="primary capsules send to class capsules that they do not agree with: no part finds its "
    "whole",
    fix="use `logits + (votes * v.unsqueeze(1)).sum(-1)`: a plus, and each parent's own pose",
    after=("mixed_batch", "wrong_softmax_axis", "constant_couplings", "wrong_class_squash"),
    every_layer=True,
)
CLEAR, TINY, FAINT, ALIKE, EXACT = 0.3, 1e-30, 1e-3, 1e-3, 0.1


def examine(candidate: Candidate, layer: Capsules) -> Judgement:
    """Put noise in place of the first sums: the next couplings must follow votes · poses.

    The slope must be 1, and the third couplings must still depend on the first.
    """
    try:
        iterations = layer.rounds
    except ApartError as error:
        return fails(f"{error}: the agreement of a vote is not summed over them")
    if len(iterations) < 2:
        raise SkippedError("the network routes in one iteration")
    images = candidate.images(7)
    votes = layer.look(images, "votes")["votes"].cpu().double()
    one, opposite = (_probe(layer, images, sign) for sign in (1, -1))
    change = _centred(one.second - opposite.second)
    agreement = _agreement(votes, one.sums)
    if float(change.abs().max()) < 1e-6 * (1 + float(one.second.abs().max())):
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
    spread, usual = (_off(one, one.mean(1, keepdim=True)) for one in (change, agreement))
    if change.shape[1] > 1 and spread < ALIKE < usual:
        return fails(
            "all primary capsules get the same couplings, whatever their votes: the agreement is "
            "averaged over them", spread=spread,
        )  # fmt: skip
    if along < -CLEAR and layer.by_length:
        return fails(f"{message}, expected 1: routing moves away from agreement", correlation=along)
    if along <= CLEAR:
        return warns(f"{message}, expected 1", correlation=along)
    if _forgets(layer, images):
        message += ", but the third iteration forgets the first: logits are replaced, not added to"
        return warns(message, correlation=along)
    even = _centred((one.second + opposite.second) / 2 - one.first)
    if not layer.by_length or float(even.norm()) > EXACT * float(change.norm()):
        return passes(message, correlation=along)  # no product with a pose: it has its own scale
    poses = _poses(layer, images, one) - _poses(layer, images, opposite)
    expected, raw = _agreement(votes, poses), _agreement(votes, one.sums - opposite.sums)
    slope = float((change * expected).sum() / expected.square().sum().clamp_min(TINY))
    numbers = {"correlation": along, "slope": slope}
    if _off(change, raw) < EXACT < _off(change, expected):
        return warns("the agreement is that of votes and sums before the squash", **numbers)
    if _off(change, slope * expected) < EXACT < abs(slope - 1):
        return warns(f"logits grow by {slope:.2g} times the agreement, expected 1", **numbers)
    return passes(f"{message}, with a slope of {slope:.2f}", **numbers)


class Probe(NamedTuple):
    """Noise in place of the sum of votes in the first iteration, and the couplings then."""

    put: Tensor  # in the layout of the network
    sums: Tensor  # (B, J, E)
    first: Tensor  # logarithms of couplings (B, I, J)
    second: Tensor


def _probe(layer: Capsules, images: Tensor, sign: int) -> Probe:
    (put, *_), couplings = _with_noise(layer, images, (sign,))
    if len(couplings) < 2:
        raise SkippedError("the couplings of a second iteration are not found")
    sums = arrange(put, layer.rounds[0].total_roles, "BJE")
    first, second = (one.cpu().double().clamp_min(TINY).log() for one in couplings[:2])
    return Probe(put, sums.cpu().double(), first, second)


def _poses(layer: Capsules, images: Tensor, probe: Probe) -> Tensor:
    """The poses (B, J, E) of its sums."""
    return layer.with_sums(lambda _: probe.put.clone(), images, "poses")[-1].cpu().double()


def _agreement(votes: Tensor, poses: Tensor) -> Tensor:
    return _centred(torch.einsum("bije,bje->bij", votes, poses))


def _off(change: Tensor, expected: Tensor) -> float:
    return float((change - expected).norm() / change.norm())


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
    random, left, put = noise(seed=6), iter(signs), []

    def change(total):
        sign = next(left, None)
        if sign is None:
            return total
        put.append(sign * random(total))
        return put[-1]

    return put, layer.with_sums(change, images, "couplings", len(signs))


def _centred(tensor: Tensor) -> Tensor:
    """(B, I, J), less its mean over parents."""
    return tensor - tensor.mean(2, keepdim=True)
