"""Checks of the loss, the reconstruction, the data, and the gradients of the weights."""

from contextlib import suppress

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from capsviz.checks.candidate import Candidate
from capsviz.checks.capsules import noise
from capsviz.checks.verdict import Judgement, SkippedError, check, fails, passes, warns
from capsviz.nn.computation import seeded
from capsviz.wrapping import outputs
from capsviz.wrapping.environment import in_words
from capsviz.wrapping.flow import embed
from capsviz.wrapping.leaves import replaced, tensors

STRAIGHT = 1e-4  # tolerance for a straight line, relative to one step
ROUNDING = 1e-5  # rounding error of a loss in float32
# lengths of the true class below its margin, and of the other classes above theirs
PRESENT, ABSENT = (0.2, 0.4, 0.6), (0.9, 0.75, 0.6)
STEP, FAR = 0.1, 10.0  # changes of the targets: a square has the same curvature for both
TOO_SMALL, PUBLISHED = 5e-5, (5e-4, 1e-2)  # weights of a squared pixel
IMAGES, LEARNED = 64, 0.6  # correlation of a reconstructed pixel with an image pixel
SLACK = 1e-3
SAME, FAINT = 1e-6, 1e-4
ALIKE = 0.5  # effect of other poses relative to that of the predicted class


@check
def softmax_in_loss(candidate: Candidate) -> Judgement:
    """Add one number to all lengths, which does not change a softmax."""
    at = candidate.loss.at
    low = at(0.4, 0.2)
    shift = max(abs(at(0.4 + more, 0.2 + more) - low) for more in (0.1, 0.2))
    slope = abs(at(0.99, 0.01) - at(0.95, 0.05))
    moved = abs(at(0.6, 0.2) - low)
    if not max(shift, slope, moved):
        raise SkippedError("the loss does not follow the lengths in the output")
    numbers = {"shift": shift, "moved": moved, "at_rest": slope}
    message = f"adding up to 0.2 to all lengths changes the loss by {shift:.2g}"
    if shift >= 1e-4 * moved or slope <= 1e-5 * moved:
        return passes(message, **numbers)
    # a margin between classes, or its root, decreases linearly with the gap
    values = [at(0.3 + gap, 0.3) for gap in (0.2, 0.4, 0.6)]
    for near, middle, far in (values, [max(value, 0) ** 0.5 for value in values]):
        if near - middle > 0 and abs(near - 2 * middle + far) < STRAIGHT * (near - middle):
            return warns(f"{message}: it is a margin between classes, not one of each", **numbers)
    return fails(f"{message}, adding 0.2 to one of them by {moved:.2g}", **numbers)


@check
def wrong_margin_loss(candidate: Candidate) -> Judgement:
    """Change the lengths in the output, one class at a time."""
    at = candidate.loss.at
    rest = at(0.95, 0.05)
    if at(0.05, 0.95) == rest == at(0.5, 0.5):
        raise SkippedError("the loss does not follow the lengths in the output")
    if rest > at(0.05, 0.05) and (cheapest := candidate.loss.cheapest_classes()) is not None:
        labels, J = candidate.loss.labels.tolist(), candidate.classes
        by, *others = {(one - label) % J for one, label in zip(cheapest, labels, strict=True)}
        if others:
            return fails(f"labels are in another order: for labels {labels} the loss is least for "
                         f"long capsules of the classes {cheapest}", permuted=1.0)  # fmt: skip
        if by:
            by = by if by <= J / 2 else by - J
            return fails(f"labels are shifted: the loss is least for a long capsule of class label "
                         f"{by:+d}", shift=by)  # fmt: skip
    if (ignored := candidate.loss.ignored()) is not None:
        return fails(f"{ignored} change nothing in the loss", change=0.0)
    for present, absent in ((0.05, 0.95), (0.05, 0.05), (0.95, 0.95)):
        gain = rest - at(present, absent)
        if gain > ROUNDING * abs(rest):
            return fails(
                f"a length of {present} for the true class and {absent} for the others costs "
                f"{gain:.2g} less than 0.95 and 0.05: a sign is wrong, or present and absent are "
                "exchanged", costs_less=gain,
            )  # fmt: skip
    middle = at(0.5, 0.5) - rest
    if middle <= ROUNDING * abs(rest) < at(0.02, 0.98) - rest:
        return fails("a length of 0.5 for all classes costs no more than 0.95 for the true one and "
                     "0.05 for the others: the margins are exchanged", middle=middle)  # fmt: skip
    near, far = (at(length, 0.05) - rest for length in (0.7, 0.5))
    false_near, false_far = (at(0.95, length) - rest for length in (0.3, 0.5))
    flat = abs(at(0.99, 0.01) - rest)
    if near <= 0 or flat > 0.02 * near:
        return warns(
            f"it is not a margin loss of 0.9 and 0.1: lengths of 0.99 and 0.01 change it by "
            f"{flat:.2g} from 0.95 and 0.05, 0.7 and 0.05 by {near:.2g}", flat=flat, near=near,
        )  # fmt: skip
    apart = abs(at(0.7, 0.3) - rest - near - false_near)
    one = (at(0.95, 0.05, 0.3) - rest) * (candidate.classes - 1)
    if apart > 0.02 * near or abs(one - false_near) > 0.02 * false_near:
        return warns("it is not a margin loss: classes are not summed one by one",
                     together=apart, one_absent=one, all_absent=false_near)  # fmt: skip
    if at(0.95, 0.95) - rest < ROUNDING * near:
        return fails("other classes cost nothing, however long they are", absent=0.0)
    upper = _margin(lambda v: at(v, 0.05) - rest, PRESENT)
    lower = _margin(lambda v: at(0.95, v) - rest, ABSENT)
    if upper and lower and max(abs(upper - 0.9), abs(lower - 0.1)) > 0.01:
        return warns(
            f"it is squared, with margins of {upper:.2f} and {lower:.2f}, expected 0.9 and 0.1",
            present_margin=upper, absent_margin=lower,
        )  # fmt: skip
    growth, absent = far / near, false_near / near / (candidate.classes - 1)
    false_growth = false_far / false_near if false_near > 0 else float("inf")
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


def _margin(cost, lengths: tuple[float, float, float]) -> float | None:
    """Return m of a cost k (m - v)² through three points; None for other costs."""
    roots = [max(cost(v), 0) ** 0.5 for v in lengths]
    slope = (roots[2] - roots[0]) / (lengths[2] - lengths[0])
    middle = roots[0] + slope * (lengths[1] - lengths[0])
    straight = slope != 0 and abs(middle - roots[1]) < 0.005 * roots[1]
    return lengths[0] - roots[0] / slope if straight else None


@check
def wrong_reconstruction_weight(candidate: Candidate) -> Judgement:
    """Measure the curvature of the loss in the targets: 5e-4 a pixel, or the authors' 0.01."""
    candidate.caller.require_images()
    loss = candidate.loss
    images, pixels = loss.images, loss.images[0].numel()
    below, at, above = (loss.of(loss.output, images + k * STEP) for k in (-1, 0, 1))
    curve = (above - 2 * at + below) / (2 * pixels * STEP**2)
    far = sum(loss.of(loss.output, images + k * FAR) - at for k in (-1, 1)) / (2 * pixels * FAR**2)
    slope = abs(above - below) / pixels
    if max(abs(curve), abs(far), slope) < 1e-12:
        raise SkippedError("the loss does not depend on the images: it has no reconstruction")
    if abs(curve) < 1e-12 or abs(far - curve) > 0.2 * abs(far):
        return warns(
            f"the loss changes with the targets by {slope:.2g} a pixel, not by a square",
            slope=slope,
        )
    margin = loss.margin()
    weight = curve if margin is None else curve / margin
    numbers = {"weight": weight, "mean_of_pixels_would_be": 5e-4 / pixels}
    message = f"a squared pixel weighs {weight:.2g}"
    if margin is None:
        return warns(f"{message}, beside a loss that is not a margin loss", **numbers)
    message += " beside the margin loss"
    if weight < TOO_SMALL:
        return fails(f"{message}, {5e-4 / weight:,.0f} times less than 5e-4", **numbers)
    if any(abs(weight / one - 1) < 0.2 for one in PUBLISHED):
        return passes(message, **numbers)
    return warns(f"{message}, expected 5e-4 or 0.01", **numbers)


@check
def permuted_reconstruction(candidate: Candidate) -> Judgement:
    """Change reconstruction and target alike; find the pixel of images that each pixel follows."""
    candidate.caller.require_images()
    try:
        judgement = _judge_by_loss(candidate)
    except SkippedError:
        return _judge_by_images(candidate)
    if judgement.status == "PASS":
        with suppress(SkippedError):
            return _judge_by_images(candidate)
    return judgement


def _judge_by_loss(candidate: Candidate) -> Judgement:
    """Judge whether the loss compares each pixel with the image pixel at the same position.

    If so, the mixed second derivative of the loss equals both pure ones, up to its sign.
    """
    loss = candidate.loss
    output, images = loss.output, loss.images
    names = outputs.find_reconstruction(output, images, candidate.caller.image_shape)
    if len(names) != 1:
        raise SkippedError(f"{len(names)} outputs have the size of an image")
    drawn, step = outputs.pick(output, names[0]), STEP * noise(seed=10)(images).sign()

    def at(of_drawn: int, of_image: int) -> float:
        changed = drawn + of_drawn * step.reshape(drawn.shape)
        return loss.of(replaced(output, {id(drawn): changed}), images + of_image * step)

    rest = at(0, 0)
    curves = [at(*ends) - 2 * rest + at(-ends[0], -ends[1]) for ends in ((1, 0), (0, 1))]
    if min(curves) <= ROUNDING * abs(rest):
        raise SkippedError("the loss does not compare images with this output by squares")
    along = (at(1, 0) + at(0, 1) - rest - at(1, 1)) / (curves[0] * curves[1]) ** 0.5
    message = f"the loss compares {along:.0%} of the pixels with those at the same position"
    return (passes if along > 0.9 else fails)(message, own=along)


def _judge_by_images(candidate: Candidate) -> Judgement:
    """Judge by correlations which image pixel each pixel of a trained decoder reconstructs."""
    given = candidate.caller.own_images
    if given is None or len(given) < IMAGES // 2:
        raise SkippedError(f"no loss shows it, and fewer than {IMAGES // 2} images are given")
    images = candidate.images(IMAGES)
    drawn = candidate.decode(candidate.poses(images), candidate.scores(images).argmax(1))
    units = [normalize(x - x.mean(0), dim=0) for x in (drawn.flatten(1), images.flatten(1))]
    follows = units[0].T @ units[1]  # correlations (pixels of the decoder, pixels of images)
    best = follows.amax(1)
    learned = best > LEARNED
    if float(learned.double().mean()) < 0.05:
        raise SkippedError("reconstructions do not follow the images: the decoder is not trained")
    own = float((follows.diagonal() / best)[learned].mean())
    message = f"pixels follow the image's at their position {own:.0%} as much as any other"
    return (passes if own > 0.3 else fails)(message, own=own)


@check
def targets_out_of_range(candidate: Candidate) -> Judgement:
    """Compare training images with reconstructions of very large poses."""
    candidate.caller.require_images()
    targets = candidate.pictures("train_data", 64).cpu().double()
    low, high = float(targets.min()), float(targets.max())
    poses = candidate.poses(candidate.images(7))
    classes = torch.arange(len(poses), device=poses.device) % candidate.classes
    drawn = candidate.decode(1e4 * poses, classes)
    message = f"targets are {low:.2f} to {high:.2f}"
    if float(drawn.min()) < -SLACK or float(drawn.max()) > 1 + SLACK:
        return warns(f"{message}; reconstructions are not limited to [0, 1]")
    if high > 1.5 and low >= 0 and float(targets.frac().abs().max()) == 0:
        raise SkippedError(
            f"training images are bytes, {low:.0f} to {high:.0f}: give them as the loss gets them"
        )
    out = float(((targets < -SLACK) | (targets > 1 + SLACK)).double().mean())
    message += ", reconstructions lie in [0, 1]"
    numbers = {"lowest": low, "highest": high, "out_of_reach": out}
    if out:
        return fails(f"{message}: {out:.0%} of the pixels cannot be reached", **numbers)
    return passes(message, **numbers)


@check
def random_test_images(candidate: Candidate) -> Judgement:
    """Read the first test images twice, from two random states."""
    with seeded(0):
        first = candidate.pictures("test_data", 8)
    with seeded(1):
        second = candidate.pictures("test_data", 8, again=True)
    changed = int((first != second).flatten(1).any(1).sum())
    message = f"{changed} of {len(first)} test images differ when they are read again"
    return fails(message, changed=changed) if changed else passes(message, changed=changed)


@check
def decoder_without_class(candidate: Candidate) -> Judgement:
    """Decode one pose as two classes, and beside other poses; find which pose a pass keeps.

    A decoder may get only the pose of the class by design, as in DeepCaps; one that gets all poses
    reconstructs no class.
    """
    try:
        decode = candidate.decode
    except SkippedError:
        if (judgement := _unmasked(candidate)) is None:
            raise
        return judgement
    astray = getattr(decode, "astray", 0)  # unknown for the user's own decoder
    if astray and candidate.caller.way == "images":
        count = len(candidate.caller.recorded.images)
        return fails(
            f"{astray} of {count} reconstructions are of another class than the longest capsule",
            astray=astray,
        )
    poses = candidate.poses(candidate.images(4))
    one = normalize(poses.amax(1, keepdim=True), dim=-1).expand_as(poses).contiguous()
    classes = torch.zeros(len(one), dtype=torch.long, device=one.device)
    first = decode(one, classes)

    def moved(poses, classes) -> float:
        return float((decode(poses, classes) - first).abs().max())

    opposite, off = moved(-one, classes), moved(one, classes + 1)
    if opposite < FAINT:
        raise SkippedError(
            f"the opposite pose changes the reconstruction by {opposite:.2g} at most: weights are "
            "tiny or have collapsed"
        )
    message = f"reconstructions of one pose as two classes differ by {off:.2g}"
    if off > SAME:
        return passes(message, change=off)
    others = torch.cat((one[:, :1], -one[:, 1:]), 1)
    beside = moved(others, classes)
    if beside > SAME:
        return fails(
            f"{message}, and by {beside:.2g} with the poses of other classes: the decoder gets all "
            "of them", change=off, beside=beside,
        )  # fmt: skip
    return warns(f"{message}: the decoder gets only the pose of the class", change=off)


def _unmasked(candidate: Candidate) -> Judgement | None:
    """Reverse poses in a pass, and judge which of them are decoded; None if this is unknown."""
    caller, capsules, images = candidate.caller, candidate.capsules, candidate.images(7)
    if candidate.given_decode is not None or not (caller.of_classes and capsules.routed):
        return None
    totals, roles = [one.total for one in capsules.rounds], capsules.rounds[-1].total_roles

    def passed(signs: Tensor) -> tuple[Tensor, ...]:
        calls = []

        def change(total):  # only in the last iteration
            calls.append(total)
            last = len(calls) == len(totals)
            return total * embed(signs, "BJ", roles, total.shape) if last else total

        output, readings = caller.changed(totals, change, images, capsules.taps("poses"))
        names = outputs.find_reconstruction(output, images, caller.image_shape)
        form = candidate.given_scores
        scores = outputs.values_of_scores(output, len(images), candidate.classes, form)
        if (len(names), len(scores)) != (1, 1):
            raise SkippedError("scores or reconstructions are not known")
        return outputs.pick(output, names[0]), scores[0].argmax(1), readings["poses"][-1]

    moved = []
    try:
        drawn, winners, poses = passed(torch.ones_like(candidate.scores(images)))
        for side in (1, -1):  # reverse the pose of the class, then all others
            signs = side * (1 - 2 * one_hot(winners, candidate.classes).to(poses))
            changed, same, others = passed(signs)
            if not (same.equal(winners) and torch.allclose(others, signs[:, :, None] * poses)):
                return None
            moved.append((float((changed - drawn).abs().max()), float((others - poses).norm())))
    except SkippedError:
        return None
    (own, size), (beside, size_beside) = moved
    if beside <= SAME:
        return None
    # a soft mask may be intended, if the predicted class has more weight than its length explains
    return (fails if beside / size_beside > ALIKE * own / size else warns)(
        f"opposite poses of all but the predicted class change the reconstruction by {beside:.2g}, "
        f"that of the predicted class by {own:.2g}: the decoder gets all of them",
        beside=beside, own=own,
    )  # fmt: skip


@check
def untrained_weights(candidate: Candidate) -> Judgement:
    """Take gradients of the outputs and of the loss, and find the weights that get none."""
    caller = candidate.caller
    images = caller.images(4)
    weights = {k: one for k, one in candidate.network.named_parameters() if one.requires_grad}

    def reached(values: list[Tensor]) -> set[str]:
        some = [one for one in values if one.is_floating_point() and one.requires_grad]
        if not some or not weights:
            return set()
        totals, of = [one.sum() for one in some], list(weights.values())
        found = torch.autograd.grad(totals, of, retain_graph=True, allow_unused=True)
        return {name for name, one in zip(weights, found, strict=True) if one is not None}

    with torch.enable_grad():
        try:
            output = caller.output(images)
            every = reached(tensors(output))
        except RuntimeError as error:
            return fails(f"no backward pass: {in_words(error)}", reached=0)
        if not every:
            raise SkippedError("no output asks for a gradient")
        numbers = {"reached": len(every), "of": len(weights)}
        names = outputs.find_reconstruction(output, images, caller.image_shape)
        drawn = [outputs.pick(output, name) for name in names]
        seen = reached(drawn)
        others = reached([one for one in tensors(output) if all(one is not own for own in drawn)])
        if seen and others and not seen & others:
            return warns(
                "the reconstruction trains no weight of the capsules: poses are detached before "
                "the decoder", **numbers,
            )  # fmt: skip
        with suppress(SkippedError):
            value = candidate.loss.value(output, images)
            lost = seen - others - reached(tensors(value))
            if lost and isinstance(value, Tensor) and value.requires_grad:
                some = ", ".join(sorted(lost)[:3]) + (" and others" if len(lost) > 3 else "")
                return warns(f"the loss does not train the decoder: no gradient reaches {some}",
                             **numbers)  # fmt: skip
            attached = candidate.loss.has_gradients(output)
            if candidate.poses(images).requires_grad and not attached:
                return warns("in evaluation mode the output holds no lengths or poses with a "
                             "gradient: if so in training, no class is trained",
                             **numbers)  # fmt: skip
            if isinstance(value, Tensor) and value.requires_grad and candidate.loss.detached():
                return fails("the loss follows the lengths, but takes no gradient of them: it "
                             "trains no classes", **numbers)  # fmt: skip
    return passes(f"gradients reach {len(every)} of {len(weights)} weights", **numbers)
