"""Verify that a network's `look` is correct: shapes, values, positions, interventions.

`capsviz.wrap` and `--network` verify the networks that they return. `trace` verifies any other
network that is not part of capsviz, once. An intended deviation is declared with its reason, by a
network in the mapping `peculiar` or by a routing's file in `PECULIAR`, under one of these names:
    "norms"      scores are not the norms of the poses
    "sums"       couplings of a child do not sum to 1
    "logits"     logits stay the same while couplings change
    "votes"      poses do not follow the weighted sum of the votes
    "couplings"  couplings cannot be replaced
"""

from collections.abc import Iterable, Iterator
from math import inf, nan, prod
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, layer_norm

from capsviz.discovery import unknown
from capsviz.nn import models
from capsviz.nn.images import like_of
from capsviz.tracing.network import abilities, inference, plugin_routings, takes
from capsviz.tracing.record import last_activations

CHECKS = ("norms", "sums", "logits", "votes", "couplings")  # that `peculiar` may name
PARTS = ("children", "primary", "votes", "logits", "couplings", "poses", "lengths")
AXES = {"primary": "BID", "votes": "BIJE", "couplings": "RBIJ", "logits": "RBIJ", "poses": "RBJE"}
IMAGES = 7  # a prime, so that the axis of images cannot be mistaken for another
SAME = 1e-3  # absolute tolerance of numbers near 1
CLOSE = 1e-4  # tolerance between two passes, relative to the largest number
STEPS = 4  # tolerance in multiples of a type's eps, if that is larger
PARALLEL = 0.999  # cosine
IF_INTENDED = (
    'if that is intended, give the reason in `peculiar = {{"{}": ...}}` of the network, or in '
    "PECULIAR in the file of its routing"
)

_trusted: WeakSet = WeakSet()


def verify(model: Any, images: Tensor) -> None:
    """Verify a network before it is traced; the network is left unchanged.

    Parameters
    ----------
    model   any network with `look`, or one that gives only scores.
    images  (N, C, H, W) in [0, 1], like those that will be traced; N may be 0.

    Raises
    ------
    ValueError  with one line that names the first mistake found.
    """
    plugins = plugin_routings(model)
    what = f"the routing '{plugins[0]}'" if plugins else f"the network '{abilities(model).name}'"
    with inference(model):
        for mistake in mistakes(model, images):
            raise ValueError(f"{what} is not to be trusted: {mistake}")
    _trusted.add(model)


def verify_once(model: Any, images: Tensor) -> None:
    """Verify a network, unless it is verified already or all its parts belong to capsviz."""
    if model not in _trusted:
        if models.of_capsviz(model):
            _trusted.add(model)
        else:
            verify(model, images)


def mistakes(model: Any, images: Tensor) -> Iterator[str]:
    """Yield the mistakes of a network in evaluation mode, worst first.

    Up to four of the images (N, C, H, W) are used, and noise to make them seven.
    """
    images = _seven_images(model, images)
    whole = shown(model, images)
    if errors := list(_misshapen(model, whole)) or list(_not_finite(whole)):
        yield from errors
        return
    yield from _unsteady(model, images, whole)
    low, high = (float(end) for end in whole["lengths"].aminmax())
    if low < 0 or high > 1 + allowed(whole.values()):
        yield (
            f"lengths run from {low:.3g} to {high:.3g}, expected scores in [0, 1]: logits need a "
            "softmax or a sigmoid; for lengths above 1, `capsviz check` finds the cause"
        )
    declared = abilities(model).peculiar
    for name in set(declared) - set(CHECKS):
        yield f"`peculiar` or PECULIAR names an {unknown('check', name, list(CHECKS))}"
    for name, difference in _differences(whole).items():
        if name not in declared:
            yield f"{difference}: {IF_INTENDED.format(name)}"
    if (order := _order(whole)) is not None:
        yield (
            "scores are the norms of the poses in another order (class 0 is pose "
            f"{order[0]}): give scores= in the order of the poses"
        )
    if "couplings" not in declared:
        yield from _not_replaced(model, images, whole)
    yield from _misplaced(model, images, whole)
    yield from _decoder(model, images, whole)


def _seven_images(model: Any, images: Tensor) -> Tensor:
    draw = abilities(model).draw
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(IMAGES, *images.shape[1:], generator=generator)
    noise = noise if draw is None else draw(IMAGES, 0)
    return torch.cat((images[:4].to(noise), noise))[:IMAGES].to(like_of(model))


def shown(
    model: Any, images: Tensor, keep: tuple[str, ...] | None = None, **more: Tensor
) -> dict[str, Any]:
    """Return the output of `look`, restricted to verified parts; only lengths without `look`."""
    able = abilities(model)
    if not able.has_capsules:
        return {"lengths": model(images).lengths}
    keep = keep or ((*PARTS, "weights") if "weights" in (able.parts or ()) else PARTS)
    parts = model.look(images, keep=keep, **more)
    parts = {"primary" if name == "children" else name: part for name, part in parts.items()}
    if isinstance(parts.get("activations"), Tensor) or "poses" in parts:
        parts.setdefault("lengths", last_activations(parts))
    if isinstance(parts.get("logits"), Tensor):  # -inf masks a parent
        parts["logits"] = parts["logits"].nan_to_num(nan, inf, 0.0)
    known = {*PARTS, "weights", "activations"}
    return {name: part for name, part in parts.items() if name in known and part is not None}


def lengths_of(model: Any, images: Tensor) -> Tensor:
    """Return the lengths (B, J) that `look` gives if only these are requested."""
    return shown(model, images, ("lengths",))["lengths"]


def allowed(values: Iterable) -> float:
    """Return the tolerance of numbers near 1, for the coarsest type of these tensors."""
    floats = [v for v in values if isinstance(v, Tensor) and v.is_floating_point()]
    return max([SAME, *(STEPS * torch.finfo(v.dtype).eps for v in floats)])


def apart(few: Tensor, whole: Tensor, middle: float = 0.0, effect: float | None = None) -> float:
    """Return the largest difference of two tensors that should be equal; 0 if it is rounding.

    The tolerance is relative to the largest distance from `middle`, so that it stays small for
    couplings that are nearly uniform. If images change the numbers by at most `effect`, the
    tolerance is at most a thousandth of that, plus rounding.
    """
    if few.shape != whole.shape:
        return float("inf")
    width, close = STEPS * torch.finfo(few.dtype).eps, 10 * CLOSE if middle else CLOSE
    off, size = float((few - whole).abs().max()), float((whole - middle).abs().max())
    most = max(close, width) * size + width * middle
    if effect is not None:
        most = min(most, 10 * CLOSE * effect + 16 * width * size)
    return 0.0 if off <= most else off


# Shapes and numbers


def _misshapen(model: Any, traced: dict) -> Iterator[str]:
    """Yield the parts whose shapes do not fit those of the others in B, I, J and E."""
    lengths = traced.get("lengths")
    if not isinstance(lengths, Tensor) or lengths.dim() != 2 or len(lengths) != IMAGES:
        yield f"lengths are {_shape(lengths)}, expected (B, J) for {IMAGES} images"
        return
    able, (B, J) = abilities(model), lengths.shape
    if able.classes not in (None, J):
        yield f"there are {J} scores for {able.classes} classes: lengths are (B, {J})"
    sizes = {"B": B, "J": J}
    for name, axes in AXES.items():
        if traced.get(name) is None:
            continue
        shape = tuple(traced[name].shape)
        if len(shape) == len(axes):  # the first part with the axes I and R sets their sizes
            known = dict(zip(axes, shape, strict=True))
            sizes = {axis: known[axis] for axis in "IR" if axis in known} | sizes
        fits = (sizes.get(axis, n) == n for axis, n in zip(axes, shape, strict=False))
        if len(shape) != len(axes) or not all(fits):
            expected = ", ".join(str(sizes.get(axis, axis)) for axis in axes)
            yield f"{name} are {shape}, expected ({expected})"
    grid, count = able.grid, sizes.get("I")
    if grid is not None and count is not None and (len(grid) != 3 or prod(grid) != count):
        yield (
            f"the grid {grid} has {prod(grid)} capsules, but there are {count}: expected "
            "(types, rows, columns) whose product they are, or None"
        )


def _shape(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else "missing"


def _not_finite(traced: dict) -> Iterator[str]:
    for name, value in traced.items():
        if count := int((~value.isfinite()).sum()):
            yield f"{name} are not finite: {count} of {value.numel()} numbers are NaN or infinite"


# The same images again, and in other batches


def _unsteady(model: Any, images: Tensor, traced: dict) -> Iterator[str]:
    """Yield dependence on chance or the batch: a few images must get the same results alone."""
    whole = traced["lengths"]
    if "lengths" not in shown(model, images, ("lengths",)):
        yield '`look` with keep=("lengths",) gives neither lengths nor activations or poses'
        return
    alone = lengths_of(model, images)
    if off := apart(lengths_of(model, images), alone):
        yield (
            f"two passes over the same images differ by {off:.2g}: something in it is random "
            "(dropout that is always on?), or stays from one pass to the next"
        )
        return
    if off := apart(alone, whole):
        yield (
            f"`fused` and `route` differ by {off:.2g} for the same images"
            if plugin_routings(model)
            else f"lengths differ by {off:.2g} if `look` is called with or without the other parts"
        )
        return
    effect = float((whole - whole.mean(0)).abs().max())
    batches = (images[:3], whole[:3]), (images[:1], whole[:1]), (images.flip(0), whole.flip(0))
    for some, own in batches:
        count = len(some)
        try:
            few = lengths_of(model, some)
        except Exception as error:  # whatever a network does with one image
            reason = " ".join(str(error).split())[:120]
            yield f"a batch of {count} fails ({type(error).__name__}: {reason})"
            return
        if tuple(few.shape) != (count, whole.shape[1]):
            yield (
                f"a batch of {count} gives lengths {_shape(few)}, expected "
                f"{(count, whole.shape[1])}: a squeeze() without an axis loses the batch"
            )
            return
        if off := apart(few, own, effect=effect):
            yield _depends("scores", off)
            return
    if (couplings := traced.get("couplings")) is not None:
        few = shown(model, images[:3], ("couplings",))["couplings"]
        if off := apart(few, couplings[:, :3], 1 / couplings.shape[3]):
            yield _depends("couplings", off)


def _depends(what: str, off: float) -> str:
    return (
        f"{what} depend on the batch: an image's change by {off:.2g} with the images beside it "
        "(logits shared or averaged over the batch, batch norm in training mode, dynamic "
        "quantisation?): capsviz check names the mistake"
    )


# Values


def differences(model: Any, images: Tensor) -> dict[str, str]:
    """Return how a network deviates from the CapsNet of 2017: name, as in `peculiar` -> words."""
    traced = shown(model, _seven_images(model, images))
    wrong = [*_misshapen(model, traced), *_not_finite(traced)]
    return {} if wrong else _differences(traced)


def _order(traced: dict) -> list[int] | None:
    """Return the pose index of each class if lengths are pose norms in another order, else None."""
    if "poses" not in traced or "activations" in traced:
        return None
    same = allowed(traced.values())
    lengths, poses = (traced[name].cpu().double() for name in ("lengths", "poses"))
    norms = poses[-1].norm(dim=-1)
    if lengths.shape != norms.shape:
        return None
    off = (lengths[:, :, None] - norms[:, None]).abs().amax(0)  # (J, J)
    fits, order = off <= same, off.argmin(1)
    found = bool(fits.gather(1, order[:, None]).all()) and len(order.unique()) == len(order)
    return order.tolist() if found and not fits.diagonal().all() else None


def _differences(traced: dict) -> dict[str, str]:
    same, found = allowed(traced.values()), {}
    traced = {name: value.cpu().double() for name, value in traced.items()}
    poses, couplings = traced.get("poses"), traced.get("couplings")
    if poses is not None and "activations" not in traced:
        off = float((poses[-1].norm(dim=-1) - traced["lengths"]).abs().max())
        if off > same:
            found["norms"] = (
                f"lengths are not the norms of the poses, they differ by up to {off:.2g}"
            )
    if couplings is not None:
        sums, J = couplings.sum(3), couplings.shape[3]
        leaky = bool(((sums[0] - J / (J + 1)).abs() < same).all() and (sums < 1 + same).all())
        if float((sums - 1).abs().max()) > same and not leaky:
            over = float((couplings.sum(2) - 1).abs().max()) <= same
            found["sums"] = (
                f"couplings of a child sum to {float(sums.min()):.3g} to {float(sums.max()):.3g} "
                f"over parents, expected 1{' (they sum to 1 over children)' * over}"
            )
        logits = traced.get("logits", couplings)
        if (logits == logits[:1]).all() and not (couplings == couplings[:1]).all():
            found["logits"] = (
                "logits of all iterations are the same, but couplings are not: they are written "
                "over (logits += ...) after they were recorded"
            )
    if {"votes", "couplings", "poses"} <= set(traced) and (difference := _sums(traced)):
        found["votes"] = difference
    return found


def _sums(traced: dict) -> str | None:
    """Return how Σ weights · votes contradicts the poses; None if they are parallel.

    Layer norm, batch norm or a bias between them is allowed.
    """
    weights = traced.get("weights", traced["couplings"])[-1]
    total = torch.einsum("bij,bije->bje", weights, traced["votes"])
    poses = traced["poses"][-1]
    if total.shape != poses.shape:
        return f"votes have {total.shape[-1]} numbers, but poses {poses.shape[-1]}"
    felt = (poses.norm(dim=-1) > 1e-6) & (total.norm(dim=-1) > 1e-12)
    worst = float(cosine_similarity(total, poses, dim=-1)[felt].min()) if felt.any() else 1.0
    if worst > PARALLEL:
        return None
    for one in (total, layer_norm(total, total.shape[-1:])):  # equal up to scale and bias
        values, others = (part - part.mean(0) for part in (one, poses))
        if (cosine_similarity(values, others, dim=0).abs() > PARALLEL).all():
            return None
    return (
        "the votes do not give the poses: the sum of couplings times votes points elsewhere "
        f"(cosine {worst:.4f} at worst)"
    )


# Interventions, positions, decoder


def _not_replaced(model: Any, images: Tensor, traced: dict) -> Iterator[str]:
    """Yield a mistake if replacement couplings have no effect, or change the votes."""
    couplings = traced.get("couplings")
    if couplings is None or couplings.shape[3] < 2 or not takes(model.look, "couplings"):
        return
    I, J = couplings.shape[2:]
    chosen = torch.full((I, J), 0.1 / J)
    chosen[torch.arange(I), torch.arange(I) % J] += 0.9
    chosen = (chosen * float(couplings.sum(3).mean())).to(images)
    try:
        wanted = ("votes", "couplings", "poses", "lengths")
        moved = shown(model, images, wanted, couplings=chosen.clone())
    except ValueError:
        return  # the network itself refuses other couplings
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        yield f"replacing couplings by (I, J) fails ({type(error).__name__}: {reason})"
        return
    votes = traced.get("votes")
    if votes is not None and "votes" in moved and (off := apart(moved["votes"], votes)):
        yield (
            f"the votes change by {off:.2g} with replacement couplings: they are already weighted "
            "by couplings, or changed in place before they are returned"
        )
    after = moved.get("couplings")
    ignored = after is not None and float((after[-1] - chosen).abs().max()) > allowed([after])
    parts = [name for name in ("poses", "lengths") if name in moved and name in traced]
    still = all(torch.equal(moved[name], traced[name]) for name in parts)
    if ignored or (parts and still):
        yield "replacement couplings are ignored: the network routes as before"


def _misplaced(model: Any, images: Tensor, traced: dict) -> Iterator[str]:
    """Yield a mistake if a corner of the grid depends on pixels outside its receptive field."""
    able = abilities(model)
    if able.grid is None or traced.get("primary") is None or not able.has_receptive_fields:
        return
    _, rows, columns = able.grid
    corners = sorted({(r, c) for r in (0, rows - 1) for c in (0, columns - 1)})
    base = images[:1]
    noise = torch.rand(base.shape, generator=torch.Generator().manual_seed(1)).to(base)
    pictures = [base]
    for corner in corners:
        field = model.receptive_field(*corner)
        changed = noise.clone()
        changed[(..., *field)] = base[(..., *field)]
        pictures.append(changed)
    primary = shown(model, torch.cat(pictures), ("children", "primary"))["primary"].cpu().double()
    moved = (primary[1:] - primary[:1]).abs().amax(2).unflatten(1, able.grid)
    worst = max((float(moved[k, :, r, c].max()), r, c) for k, (r, c) in enumerate(corners))
    if worst[0] > SAME * float(moved.amax()):
        down, across = (f"{s.start} to {s.stop - 1}" for s in model.receptive_field(*worst[1:]))
        yield (
            "the grid is in another order, or its receptive fields are wrong: capsules at position "
            f"{worst[1:]} change with pixels outside rows {down} and columns {across}; expected "
            "i = (type * rows + row) * columns + column"
        )


def _decoder(model: Any, images: Tensor, traced: dict) -> Iterator[str]:
    """Yield a mistake if a decoder gives no images in [0, 1], or not the same ones again."""
    poses = traced.get("poses")
    if poses is None or not abilities(model).decodes:
        return
    poses, classes = poses[-1].to(images), traced["lengths"].argmax(1)
    decoded = model.decode(poses, classes)
    same = allowed(traced.values())
    if tuple(decoded.shape) != tuple(images.shape):
        yield f"decode gives {_shape(decoded)}, expected images {_shape(images)}"
    elif not bool(((decoded >= -same) & (decoded <= 1 + same)).all()):
        yield (
            f"decode gives values from {float(decoded.min()):.3g} to {float(decoded.max()):.3g}, "
            "expected [0, 1]"
        )
    elif off := apart(model.decode(poses[:3], classes[:3]), decoded[:3]):
        yield (
            f"decode gives other images, by {off:.2g}, for three of the same poses: something in "
            "the decoder is random, or depends on the batch"
        )
