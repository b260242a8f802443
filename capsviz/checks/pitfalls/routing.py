"""Checks of routing: couplings, their softmax, the agreement, iterations and gradients."""

from contextlib import suppress

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.capsules import Capsules, noise, positions
from capsviz.checks.verdict import ApartError, Judgement, SkippedError, check, fails, passes, warns
from capsviz.nn.functional import squash
from capsviz.wrapping.environment import in_words
from capsviz.wrapping.flow import SUMS, Flow, arrange
from capsviz.wrapping.layers import Round, votes_base
from capsviz.wrapping.leaves import tensors
from capsviz.wrapping.recorder import Event
from capsviz.wrapping.wrapping import candidates, setters

SUM, SAME = 1e-3, 1e-7
AXES = {1: "primary capsules", 0: "the images of a batch"}  # of couplings (B, I, J)
CLEAR, TINY, FAINT, ALIKE, EXACT = 0.3, 1e-30, 1e-3, 1e-3, 0.1


@check
def wrong_softmax_axis(candidate: Candidate, layer: Capsules) -> Judgement:
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
                # over primary capsules, images still have their own couplings: judge mixed_batch
                stops = ("constant_couplings", "wrong_agreement") if axis == 1 else None
                return judgement._replace(stops=stops)
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
    """Return the smallest and the largest sum over an axis, and whether all are 1."""
    sums = couplings.sum(axis)
    low, high = float(sums.min()), float(sums.max())
    return low, high, max(abs(low - 1), abs(high - 1)) <= SUM


@check
def constant_couplings(candidate: Candidate, layer: Capsules) -> Judgement:
    """Compare votes and couplings of seven images; if these are the same, with larger sums."""
    candidate.caller.require_different()
    images = candidate.images(7)
    parts = layer.look(images, "votes", "couplings")
    votes, couplings = parts["votes"], parts["couplings"][-1]
    moved = _between(votes)
    if moved <= SAME:
        raise SkippedError("votes do not differ between images: the weights have collapsed")
    differ = _between(couplings)
    off = float((couplings - 1 / couplings.shape[2]).abs().max())
    numbers = {"between_images": differ, "from_uniform": off}
    if differ > SAME:
        return passes(
            f"couplings differ by up to {differ:.2g} between images, and by up to {off:.2g} from "
            "1/J", **numbers,
        )  # fmt: skip
    message = f"votes differ by {moved:.2g} between images, couplings by {differ:.1g}"
    message += ": all are 1/J" if off <= SAME else ""
    if not layer.routed or len(layer.rounds) < 2:
        return warns(f"{message}, in one iteration", **numbers)
    # with short poses, float32 may be too coarse for the agreement
    apart = _between(layer.with_sums(lambda total: 1e6 * total, images, "couplings")[-1])
    numbers["between_images_enlarged"] = apart
    if apart > SAME:
        return passes(
            f"couplings differ by up to {apart:.2g} between images if poses are long; here poses "
            "are so short that couplings stay uniform", **numbers,
        )  # fmt: skip
    return fails(message, **numbers)


def _between(tensor: Tensor) -> float:
    """Return the largest difference between the first image and the others."""
    return float((tensor - tensor[:1]).abs().max())


@check
def wrong_agreement(candidate: Candidate, layer: Capsules) -> Judgement:
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
    (put, first, second), (_, _, opposite) = (_probe(layer, images, sign) for sign in (1, -1))
    change = _centred(second - opposite)
    agreement = _agreement(votes, arrange(put, iterations[0].total_roles, "BJE").cpu().double())
    if float(change.abs().max()) < 1e-6 * (1 + float(second.abs().max())):
        if float(agreement.abs().max()) < FAINT:
            raise SkippedError(
                "votes are too short to change couplings: weights are tiny or have collapsed"
            )
        return warns(
            "couplings do not depend on the poses of the iteration before", correlation=0.0
        )
    along = _slope(change, agreement) * float(agreement.norm() / change.norm().clamp_min(TINY))
    message = f"couplings correlate with the agreement of votes and poses by {along:.2f}"
    spread, usual = (_relative_error(one, one.mean(1, keepdim=True)) for one in (change, agreement))
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
    even = _centred((second + opposite) / 2 - first)
    if not layer.by_length or float(even.norm()) > EXACT * float(change.norm()):
        return passes(message, correlation=along)  # the agreement is not a dot product with a pose
    end, other = (
        layer.with_sums(lambda _, sign=sign: sign * put, images, "poses")[-1] for sign in (1, -1)
    )
    poses = (end - other).cpu().double()
    forms = {
        "votes and poses": _agreement(votes, poses),
        "votes and sums before the squash": 2 * agreement,
        "squashed votes and poses": _agreement(squash(votes), poses),
    }
    fits = [
        (words, slope)
        for words, form in forms.items()
        if _relative_error(change, (slope := _slope(change, form)) * form) < EXACT
    ]
    if not fits:
        if left_out := _count_left_out(iterations[0], change, votes, poses):
            return warns(
                f"{message}: {left_out} of {poses.shape[2]} components of a pose have no share in "
                "the agreement", correlation=along, left_out=left_out,
            )  # fmt: skip
        return passes(message, correlation=along)
    words, slope = fits[0]
    numbers = {"correlation": along, "slope": slope}
    if words == "votes and poses" and abs(slope - 1) <= EXACT:
        return passes(f"{message}, with a slope of {slope:.2f}", **numbers)
    return warns(
        f"logits grow by {slope:.2g} times the agreement of {words}, expected once that of votes "
        "and poses", **numbers,
    )  # fmt: skip


def _probe(layer: Capsules, images: Tensor, sign: int) -> tuple[Tensor, Tensor, Tensor]:
    """Replace the first sums by noise; return it, and the logarithms of the first two couplings."""
    (put, *_), couplings = _with_noise(layer, images, (sign,))
    if len(couplings) < 2:
        raise SkippedError("the couplings of a second iteration are not found")
    first, second = (one.cpu().double().clamp_min(TINY).log() for one in couplings[:2])
    return put, first, second


def _agreement(votes: Tensor, poses: Tensor) -> Tensor:
    return _centred(torch.einsum("bije,bje->bij", votes, poses))


def _slope(change: Tensor, expected: Tensor) -> float:
    return float((change * expected).sum() / expected.square().sum().clamp_min(TINY))


def _relative_error(change: Tensor, expected: Tensor) -> float:
    return float((change - expected).norm() / change.norm())


def _count_left_out(turn: Round, change: Tensor, votes: Tensor, poses: Tensor) -> int:
    """Return how many pose components have no weight in the agreement.

    0 if `change` is not a weighted sum of the products of components.
    """
    own = zip(turn.product.weights(turn.event.inputs).shape, turn.roles, strict=True)
    if any(n > 1 and role == "E" for n, role in own):  # couplings differ between heads
        return 0
    each = votes * poses[:, None]
    products = (each - each.mean(2, keepdim=True)).flatten(0, 2)
    shares = torch.linalg.lstsq(products, change.flatten()[:, None]).solution
    fits = _relative_error(change, (products @ shares).view(change.shape)) < EXACT
    small = shares.abs() < EXACT * shares.abs().max()
    return int(small.sum()) if fits else 0


def _forgets(layer: Capsules, images: Tensor) -> bool:
    """Return whether the third couplings do not depend on the sums of the first iteration."""
    if len(layer.rounds) < 3:
        return False
    one, opposite = (_with_noise(layer, images, (sign, 1))[1] for sign in (1, -1))
    if len(one) < 3 or not torch.equal(one[0], opposite[0]):
        return False
    second, third = (float((one[k] - opposite[k]).abs().max()) for k in (1, 2))
    return third < 1e-3 * second


def _with_noise(layer: Capsules, images: Tensor, signs) -> tuple[list[Tensor], list[Tensor]]:
    """Replace the first sums by noise, each times its sign; return them, and all couplings."""
    random, left, put = noise(seed=6), iter(signs), []

    def change(total):
        sign = next(left, None)
        if sign is None:
            return total
        put.append(sign * random(total))
        return put[-1]

    return put, layer.with_sums(change, images, "couplings", len(signs))


def _centred(tensor: Tensor) -> Tensor:
    """Return a tensor (B, I, J) minus its mean over parents."""
    return tensor - tensor.mean(2, keepdim=True)


@check
def wrong_iterations(candidate: Candidate) -> Judgement:
    """Find those on which outputs depend, and change the attribute for their number."""
    rounds, declared, by = candidate.capsules.rounds, candidate.iterations, "iterations="
    with suppress(SkippedError):  # other sums may lead to other code
        if len(rounds) > 1 and (judgement := _unused(candidate, len(rounds))) is not None:
            return judgement
    flow, first = candidate.caller.recorded.flow, rounds[0]
    votes = votes_base(flow, first)
    sums = (event for event in flow.events[: first.event.index] if event.name in SUMS)
    plain = any(event.inputs and flow.base(event, 0) == votes for event in sums)
    made = len(rounds) + plain  # a sum or mean of votes without couplings comes first
    if declared is None:
        near = range(made - 1, made + 2)
        if made < 2 and not candidates(candidate.network, near):
            raise SkippedError("the network routes in one iteration, and no attribute has more")
        images = candidate.images(2)
        fits = setters(candidate.network, near, rounds, lambda: candidate.call(images))
        if len(fits) != 1:
            names = ", ".join(one.name for one in fits) or "no attribute"
            raise SkippedError(
                f"{made} iterations made; {names} sets their number: give iterations="
            )
        declared, by = fits[0].value, fits[0].name
    message = f"{made} iteration{'s' if made != 1 else ''} made, {declared} declared by {by}"
    return (passes if made == declared else fails)(message, made=made, declared=declared)


def _unused(candidate: Candidate, made: int) -> Judgement | None:
    """Fail if the output does not depend on all iterations; None if it does."""
    sums = [one.total for one in candidate.capsules.rounds]

    def outputs(kept: int) -> list[Tensor]:
        """Return the output with noise in place of the sums after the first `kept` iterations."""
        random, calls = noise(seed=6), list[Tensor]()

        def change(total):
            calls.append(random(total))
            return total if len(calls) <= kept else calls[-1]

        output = candidate.caller.changed(sums, change, candidate.caller.recorded.images)[0]
        if len(calls) != made:
            raise SkippedError("routing ends earlier with other sums")
        return tensors(output)

    own, used = outputs(made), made
    while used and all(map(torch.equal, own, outputs(used - 1))):
        used -= 1
    if used == made:
        return None
    where = f"those after iteration {used}" if used else "their poses"
    return fails(f"{made} iterations made, but no output depends on {where}", made=made, used=used)


@check
def handwritten_softmax(candidate: Candidate) -> Judgement:
    """Find exponentials divided by their sum, in the code that weighs the votes."""
    softmaxes = [one.softmax for one in candidate.capsules.rounds if one.softmax is not None]
    if not softmaxes:
        raise SkippedError("couplings come from no softmax")
    flow = candidate.caller.recorded.flow
    written = [one for one in softmaxes if one.name == "div" and not _below_largest(flow, one)]
    if written:
        return warns(f"the softmax is written by hand in {written[0].place}", written=len(written))
    made = "written by hand, of logits below 0" if softmaxes[-1].name == "div" else "PyTorch's"
    return passes(f"the softmax is {made}, in {softmaxes[-1].place}", written=0)


def _below_largest(flow: Flow, division: Event) -> bool:
    """Return whether the maximum is subtracted from the logits before the exponential."""
    powers = flow.maker(division, 0)
    less = None if powers is None else flow.maker(powers, 0)
    if less is None or less.name not in ("sub", "subtract") or len(less.inputs) < 2:
        return False
    largest = flow.maker(less, 1)
    along = less.inputs[1].shape == division.inputs[1].shape
    return largest is not None and largest.name in ("max", "amax") and along


@check
def detached_gradients(candidate: Candidate, layer: Capsules) -> Judgement:
    """Find whether the gradient of the last sum reaches the inner iterations, and all weights."""
    place = layer.layer.place
    with torch.enable_grad():
        recorded = candidate.caller.record(candidate.caller.recorded.images)
    own = [one for one in recorded.layers if one.place == place]
    if not own:
        raise SkippedError("the layer is not found again in a pass with gradients")
    flow, sums = recorded.flow, [one.total for one in own[0].rounds]
    *inner, total = [one.outputs[0] for one in sums]
    events = flow.ancestors(sums[-1].index)
    used = {id(tensor) for index in events for tensor in flow.events[index].inputs}
    weights = {
        name: weight
        for name, weight in candidate.network.named_parameters()
        if weight.requires_grad and id(weight) in used
    }
    if not weights:
        raise SkippedError("no weight that the votes depend on asks for a gradient")
    gradients = _gradients(total, list(weights.values()))
    lost = [name for name, one in zip(weights, gradients, strict=True) if one is None]
    if len(lost) == len(weights):
        return fails("no gradient reaches the votes: what makes them does not learn", cut=1)
    if lost:
        names = ", ".join(lost[:3]) + (" and others" if len(lost) > 3 else "")
        return warns(
            f"no gradient reaches {names}, on which the last iteration depends: they do not learn, "
            "unless they are trained separately", unlearned=len(lost),
        )  # fmt: skip
    if not inner:
        raise SkippedError("the network routes in one iteration")
    reached = _gradients(total, [one for one in inner if one.requires_grad])
    cut = len(inner) - sum(one is not None for one in reached)
    if cut:
        return warns(f"{cut} of {len(inner)} inner iterations are detached", detached=cut)
    return passes(f"gradients flow through all {len(inner) + 1} iterations", detached=0)


def _gradients(total: Tensor, of: list[Tensor]) -> tuple[Tensor | None, ...]:
    if not of or not total.requires_grad:
        return (None,) * len(of)
    try:
        with torch.enable_grad():
            return torch.autograd.grad(total.sum(), of, retain_graph=True, allow_unused=True)
    except RuntimeError as error:  # an in-place operation, or a function without a backward
        raise SkippedError(f"the gradient cannot be computed: {in_words(error)}") from error
