"""Checks of the squash of primary and class capsules: its axis, its lengths, NaN."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.capsules import GROWTH, Capsules, Change, PrimaryCapsules, noise, squeezed
from capsviz.checks.verdict import Judgement, SkippedError, check, fails, passes, warns
from capsviz.wrapping.leaves import tensors
from capsviz.wrapping.outputs import values_of_scores
from capsviz.wrapping.taps import TapPass, of_outputs

SHORT, ALIKE = 1e-3, 0.01
ONE, MOVED, HUGE, POWER = 2e-2, 1e-4, 1e3, 0.02
SIZES = (1e4, 1.0)  # a saturated tanh only changes its sign
UNSQUASHED, OTHER_AXIS = "not squashed", "squashed over another axis"
ALL_MOVE = f"{OTHER_AXIS}: one input moves all capsules"
BY_COMPONENT, VANISH = "each component is squashed by itself", "they vanish"
BEFORE = "components are squashed before the capsule is"
GAIN = f"all are alike: a squash with a gain, or {BEFORE}"
ALTERNATIVES = {  # another explanation of the measurement, if the mistake is not certain
    UNSQUASHED: ", or by a function without a bound: lengths grow as the sums to the power {:.2f}",
    ALL_MOVE: ", or normalised over all capsules after it",
}
HALF = 0.5
MIDDLE = (0.2, 1 - math.exp(-HALF))  # lengths for HALF in the paper, and in Efficient-CapsNet


@check
def unsquashed_primary(candidate: Candidate) -> Judgement:
    """Measure lengths for large features, which must be 1.000, and small ones, which must not."""
    primary, by_length = candidate.primary, candidate.capsules.by_length
    low, high, grown = float(primary.large.min()), float(primary.large.max()), primary.growth
    numbers = {"lowest": low, "highest": high, "growth": grown}
    if grown >= GROWTH:
        message = f"lengths grow with the features, to {high:.3g}, expected at most 1"
        if abs((power := math.log10(grown) / 2) - 1) > POWER:
            other = ALTERNATIVES[UNSQUASHED].format(power)
            return warns(f"{message}: {UNSQUASHED}{other}", **numbers)
        if not by_length:
            return warns(f"{message}; length is not presence in this network", **numbers)
        if primary.squashed_earlier():
            where = primary.features[-1].place
            return warns(f"{message}; but not with the capsules before {where}", **numbers)
        return fails(message, **numbers)
    short = primary.lengths(SHORT)
    small = float(short.max())
    alike = max(high, small) - min(low, float(short.min())) < ALIKE
    message = f"lengths are {low:.3f} to {high:.3f} for large features"
    if small > HALF and alike and high < 1 + ALIKE and by_length:
        return fails(
            f"{message} and up to {small:.3f} for small ones, expected 0: lengths carry no "
            "information", **numbers, small=small,
        )  # fmt: skip
    return passes(message, **numbers)


@check
def wrong_squash_axis(candidate: Candidate) -> Judgement:
    """Measure lengths of primary capsules for large features, which must be 1.000 each."""
    primary = candidate.primary
    if primary.growth >= GROWTH:
        raise SkippedError("lengths of primary capsules grow with the features")
    if float((primary.large - primary.lengths(0.1)).abs().max()) < 1e-3:
        raise SkippedError("features are normalised before the squash: their size has no effect")
    measured = _lengths(primary.large, lambda size: _moved(primary, size))
    return _judged(primary.large_capsules, *measured)


def _moved(primary: PrimaryCapsules, size: float) -> Tensor:
    """Return how much each component of the capsules (I, D) changes with one feature value."""
    random = noise(size, seed=4)
    changed_one: list[bool] = []

    def change(tensor):
        changed = random(tensor[:1]).repeat(2, *[1] * (tensor.dim() - 1))
        if not changed_one:  # if there are several convolutions, only in the first
            changed[1].view(-1)[0] *= -3
        changed_one.append(True)
        return changed

    first, second = primary.of(change, primary.caller.images(2))
    return (first - second).abs()


def _lengths(
    lengths: Tensor, moved: Callable[[float], Tensor]
) -> tuple[str | None, str, dict[str, float]]:
    """Test whether the lengths of capsules with large inputs are 1.000.

    Returns the mistake or None, and the measurement in words and numbers. `moved(size)` returns how
    much components (capsules, components) change with one of their inputs of that size.
    """
    lengths = lengths[lengths > 0]  # a ReLU may set a capsule to zero
    if not lengths.numel():
        raise SkippedError("all capsules are zero for large inputs")
    low, high = float(lengths.min()), float(lengths.max())
    form = ".3f" if high < HUGE else ".2g"
    message = f"lengths are {low:{form}} to {high:{form}} for large inputs"
    return _mistake(low, high, moved), message, {"lowest": low, "highest": high}


def _judged(
    capsules: Tensor, mistake: str | None, message: str, numbers: dict, *,
    presence: bool = True, power: float = 0,
) -> Judgement:  # fmt: skip
    """Return FAIL for a certain mistake, and else WARN with the alternative explanation.

    `capsules` (B, capsules, components) have large inputs, and lengths grow as these to the
    `power`. No mistake is certain if lengths do not encode `presence`.
    """
    if mistake is None:
        return passes(message, **numbers)
    message += f", expected 1: {mistake}"
    certain = mistake in (OTHER_AXIS, BY_COMPONENT)
    certain |= mistake == UNSQUASHED and abs(power - 1) < POWER
    if mistake == ALL_MOVE:  # a length of 1 over the other axes
        squares = capsules.square()
        others = (squares.sum(axes).sqrt() for axes in (1, (1, 2)))
        certain = any(bool(((one - 1).abs() < ONE).all()) for one in others)
    if certain and presence:
        return fails(message, **numbers)
    return warns(message + ALTERNATIVES.get(mistake, "").format(power), **numbers)


def _mistake(low: float, high: float, moved: Callable[[float], Tensor]) -> str | None:
    if abs(low - 1) < ONE and abs(high - 1) < ONE:
        return None
    if high > HUGE:
        return UNSQUASHED
    if high < ONE:
        return VANISH
    for size in SIZES:
        change = moved(size)
        change = change > MOVED * change.max()
        if (count := int(change.any(1).sum())) > 1:
            return OTHER_AXIS if count < len(change) else ALL_MOVE
        if change.shape[1] == 1:  # a capsule is one number
            return None
        if int(change.sum()) > 1:
            return GAIN if high - low < ONE * high else BEFORE
    return BY_COMPONENT


@check
def wrong_class_squash(candidate: Candidate, layer: Capsules) -> Judgement:
    """Measure lengths for large sums, which must be 1, and sums of n = 0.5: n² / (1 + n²)."""
    poses = _poses(layer, _enlarged)
    lengths = poses.norm(dim=-1)
    if not lengths.isfinite().all():
        raise SkippedError("poses are not finite for large sums of votes")
    mistake, message, numbers = _lengths(lengths, lambda size: _moved_poses(layer, size))
    presence = _lengths_are_output(candidate) if layer.of_classes else candidate.capsules.by_length
    if mistake is not None:
        larger = _poses(layer, lambda total: 10 * _enlarged(total)).norm(dim=-1)
        power = float((larger.max() / lengths.max()).log10())
        return _judged(poses, mistake, message, numbers, presence=presence, power=power)
    if not (presence and layer.of_classes):  # a layer before has no scores to compare with
        return passes(message, **numbers)
    if float(_poses(layer, torch.zeros_like).norm(dim=-1).max()) > SHORT:  # there is a bias
        return passes(message, **numbers)
    middle = _mean_length(layer, HALF)
    if middle > 0.9 and (small := _mean_length(layer, SHORT)) > 0.9:
        return fails(
            f"{message}, but also {small:.3f} for sums of length {SHORT}: lengths carry no "
            "information", **numbers, middle=middle,
        )  # fmt: skip
    if any(abs(middle / one - 1) < 0.05 for one in MIDDLE):
        return passes(message, **numbers)
    return warns(
        f"lengths are {middle:.3f} for sums of length {HALF}, expected {MIDDLE[0]:.3f}: n² / "
        "(1 + n²)", **numbers, middle=middle,
    )  # fmt: skip


def _lengths_are_output(candidate: Candidate) -> bool:
    """Return whether the output holds the lengths of the poses, or poses but no scores."""
    form = candidate.given_scores
    if isinstance(form, str) and form != "norms":
        return False
    images = candidate.images(7)
    values = values_of_scores(candidate.call(images), len(images), candidate.classes, form)
    poses = candidate.poses(images)
    if not values:
        shapes = [squeezed(tensor).shape for tensor in candidate.caller.floats(images)]
        return shapes.count(poses.shape) == 1
    lengths = poses.norm(dim=-1)
    return any(bool(torch.allclose(lengths, one, rtol=1e-3, atol=1e-3)) for one in values)


def _moved_poses(layer: Capsules, size: float) -> Tensor:
    """Return how much each component of the poses (J, E) changes with one value of the sums."""
    first = tuple(
        slice(1) if role in "JE" else slice(None) for role in layer.rounds[-1].total_roles
    )
    poses = []
    for factor in (1, -3):

        def change(tensor, factor=factor):
            changed = noise(size, seed=5)(tensor)
            changed[first] *= factor
            return changed

        poses.append(_poses(layer, change)[0])
    return (poses[0] - poses[1]).abs()


def _enlarged(total: Tensor) -> Tensor:
    """Return sums times a million; if the largest is below 1, it is scaled to a million."""
    return 1e6 * total / total.abs().max().clamp(1e-30, 1)


def _mean_length(layer: Capsules, length: float) -> float:
    """Return the mean length of poses for random sums of a length, or for random means.

    Means are replaced if the sums are divided by sums of couplings.
    """
    caller, turns = layer.caller, layer.rounds
    flow, total = caller.recorded.flow, turns[-1].total
    axes = [axis for axis, role in enumerate(turns[-1].total_roles) if role == "E"]

    def random(sums):
        direction = noise(seed=7)(sums)
        return length * direction / direction.norm(dim=axes, keepdim=True)

    others = flow.derived - flow.descendants(total.index)
    means = [
        event
        for event, position in flow.readers.get((total.index, 0), [])
        if event.name == "div" and position == 0 and len(event.inputs) == 2
        and event.outputs[0].shape == total.outputs[0].shape
        and (by := flow.sources[event.index][1]) is not None and by[0] in others
    ]  # fmt: skip
    events = means or [one.total for one in turns]
    found = caller.changed(events, random, caller.images(7), layer.taps("poses"))[1]
    return float(found["poses"][-1].norm(dim=-1).mean())


def _poses(layer: Capsules, change: Change) -> Tensor:
    return layer.with_sums(change, layer.caller.images(7), "poses")[-1]


@check
def relu_before_squash(candidate: Candidate) -> Judgement:
    """Count the negative components, for features of both signs."""
    primary = candidate.primary
    capsules = primary.of(noise(seed=3), candidate.images(7))
    share = float((capsules < 0).float().mean())
    if share > 0.01:
        return passes(f"{share:.0%} of the components are negative", negative=share)
    relus = [e.place for e in primary.between() if e.name in ("relu", "clamp", "clamp_min")]
    where = f" (relu in {', '.join(dict.fromkeys(relus))})" if relus else ""
    judge = fails if candidate.capsules.by_length else warns
    return judge(f"no component is negative, expected about half{where}", negative=share)


@check
def nan_at_zero(candidate: Candidate) -> Judgement:
    """Take outputs and gradients for features of zero."""
    capsules = candidate.lower.of(torch.zeros_like, candidate.images(2))
    judgement = _finite(candidate, torch.zeros_like)
    if "outputs" in judgement.numbers:
        return judgement
    if not capsules.isfinite().all():
        return fails("primary capsules are not finite for features of zero", outputs=0)
    if float(capsules.abs().max()) > 0:
        raise SkippedError("features of zero do not make primary capsules of zero")
    return judgement


@check
def nan_at_long_capsules(candidate: Candidate) -> Judgement:
    """Take outputs and gradients for random features a thousand times as large as usual."""
    return _finite(candidate, noise(1e3, seed=3))


def _finite(candidate: Candidate, change: Change) -> Judgement:
    """Judge whether outputs and gradients of a pass with `change(features)` are finite."""
    leaves: list[Tensor] = []

    def put(tensor):
        leaves.append(change(tensor).detach().requires_grad_())
        return leaves[-1]

    mode = TapPass(candidate.network, [], of_outputs(candidate.lower.features, put))
    with torch.enable_grad():
        output = candidate.caller.run(mode, candidate.images(2))
        values = [t for t in tensors(output) if t.is_floating_point()]
        if wrong := _infinite(values):
            return fails(f"{wrong:,} numbers of the output are NaN or infinite", outputs=wrong)
        total = sum((t * (1 + k)).sum() for k, t in enumerate(values) if t.requires_grad)
        weights = [p for p in candidate.network.parameters() if p.requires_grad]
        gradients: tuple[Tensor | None, ...] = ()
        if isinstance(total, Tensor):
            gradients = torch.autograd.grad(total, [*leaves, *weights], allow_unused=True)
    slopes = [slope for slope in gradients if slope is not None]
    wrong, count = _infinite(slopes), sum(slope.numel() for slope in slopes)
    if not count:
        return warns("outputs are finite; gradients are unknown, as the pass keeps none")
    if wrong:
        return fails(f"{wrong:,} of {count:,} gradients are NaN or infinite", gradients=wrong)
    return passes(f"outputs and {count:,} gradients are finite", gradients=0)


def _infinite(values: list[Tensor]) -> int:
    return sum(int((~value.isfinite()).sum()) for value in values)
