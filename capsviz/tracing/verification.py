"""Verify that what a network says of itself is true: shapes, values, positions, interventions.

A network is verified once, by whoever brings it, through `verify`; those that come with capsviz
need none. `trace` verifies any other that was not. A network may say in `peculiar`, a mapping from
the name of a check to a reason, and a routing in `PECULIAR` of its file, what is meant and no
mistake: "norms" (scores are not the norms of the poses), "sums" (couplings of a child do not sum to
1), "votes" (poses do not follow the weighted sum of the votes), "couplings" (an intervention is not
taken).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from capsviz import discovery
from capsviz.nn import routing
from capsviz.nn.images import like_of
from capsviz.tracing.modes import inference
from capsviz.tracing.network import abilities, takes, trust
from capsviz.tracing.record import last_activations

PARTS = ("children", "primary", "votes", "logits", "couplings", "poses", "lengths")
IMAGES = 7  # a prime, so that the axis of images cannot be mistaken for another
SAME = 1e-3  # of numbers near 1
CLOSE = 1e-4  # of the largest: numbers of two passes that are equal but for rounding
STEPS = 4  # of the next number that a type can hold, where they are wider
PARALLEL = 0.999  # cosine
LINEAR = 0.99  # share of variance
WHERE = '`peculiar = {{"{}": ...}}` of the network, or PECULIAR in the file of its routing'


def verify(model: Any, images: Tensor) -> None:
    """Verify a network's `look`, so that it can be traced; the network is left as it was found.

    Parameters
    ----------
    model   any network with `look`.
    images  (N, C, H, W) in [0, 1], as will be traced; one is enough.

    Raises
    ------
    ValueError  with one line that names the first mistake found.
    """
    names = _routings_of_others(model)
    what = f"the routing '{names[0]}'" if names else "the network's `look`"
    with inference(model):
        for mistake in mistakes(model, images):
            raise ValueError(f"{what} is not to be trusted: {mistake}")
    trust(model)


def _routings_of_others(model: Any) -> list[str]:
    """Return the names of a network's routings that are plug-ins."""
    known = discovery.entries("capsviz.nn.routing")
    names = {getattr(layer, "routing_name", None) for layer in model.modules()}
    return sorted(name for name in names if name in known and not known[name].ours)


def _peculiar(model: Any) -> dict[str, str]:
    """Return what a network, or a plug-in routing of it, says to be meant."""
    said: dict[str, str] = {}
    for name in _routings_of_others(model):
        said |= getattr(routing.get(name), "PECULIAR", {})
    return said | dict(abilities(model).peculiar)


def mistakes(model: Any, images: Tensor) -> Iterator[str]:
    """Yield what is wrong with a network's `look`, worst first; it must be in evaluation mode.

    Parameters
    ----------
    images  (N, C, H, W) in [0, 1], as will be traced; noise makes them up to seven.
    """
    like = like_of(model)
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(IMAGES, *images.shape[1:], generator=generator)
    images = torch.cat((images[:4].to(noise), noise))[:IMAGES].to(like)
    keep = (*PARTS, "weights") if "weights" in (abilities(model).parts or ()) else PARTS
    traced = named_parts(model.look(images, keep=keep))
    errors = list(misshapen(model, traced, IMAGES))
    if errors:
        yield from errors
        return
    separate = "activations" in traced  # and not the norms of poses
    same, whole = allowed(traced.values()), traced["lengths"]
    traced = {name: traced[name].double() for name in (*PARTS, "weights") if name in traced}
    errors = list(_finite(traced))
    if errors:
        yield from errors
        return
    yield from _unsteady(model, images, traced, whole)
    yield from _values(model, traced, separate, same)
    yield from _interventions(model, images, traced, same)
    yield from _misplaced(model, images, traced)
    yield from _decoder(model, images, traced, same)


def named_parts(values: dict) -> dict:
    """Return what `look` gave, by the names that are verified."""
    names = {"children": "primary"}
    parts = {names.get(name, name): value for name, value in values.items()}
    if isinstance(parts.get("activations"), Tensor) or "poses" in parts:
        parts.setdefault("lengths", last_activations(parts))
    return parts


def allowed(values: Iterable) -> float:
    """Return how far numbers near 1 may differ and be equal, in the coarsest of these types."""
    floats = [v for v in values if isinstance(v, Tensor) and v.is_floating_point()]
    return max([SAME, *(STEPS * torch.finfo(v.dtype).eps for v in floats)])


def apart(few: Tensor, whole: Tensor, middle: float = 0.0) -> float:
    """Return how far two tensors that should be equal differ; 0 where that is rounding.

    Measured by the largest distance from a `middle`: of scores that are all short, or couplings
    that are nearly uniform, the rest is what counts.
    """
    if few.shape != whole.shape:
        return float("inf")
    width, close = STEPS * torch.finfo(few.dtype).eps, 10 * CLOSE if middle else CLOSE
    off, size = float((few - whole).abs().max()), float((whole - middle).abs().max())
    return 0.0 if off <= max(close, width) * size + width * middle else off


# Shapes


def misshapen(model: Any, traced: dict, images: int) -> Iterator[str]:
    """Yield the parts whose shapes do not fit what the others say of B, I, J and E."""
    if not isinstance(traced.get("lengths"), Tensor) or traced["lengths"].dim() != 2:
        yield f"lengths are {_shape(traced.get('lengths'))}, expected (B, J)"
        return
    B, J = traced["lengths"].shape
    if images != B:
        yield f"lengths are {_shape(traced['lengths'])} for {images} images"
        return
    classes = abilities(model).classes
    if classes not in (None, J):
        yield f"there are {J} scores for {classes} classes: lengths are (B, {J})"
    grid = abilities(model).grid
    I = _children(grid, traced, B, J) or "I"
    for name, expected, transposed in (
        ("poses", ("R", B, J, "E"), ()),
        ("couplings", ("R", B, I, J), ("R", B, J, I)),
        ("logits", ("R", B, I, J), ("R", B, J, I)),
        ("votes", (B, I, J, "E"), (B, J, I, "E")),
        ("primary", (B, I, "D"), ()),
    ):
        if traced.get(name) is not None:
            yield from _other_shape(name, tuple(traced[name].shape), expected, transposed)
    if grid is not None and I != "I" and (len(grid) != 3 or prod(grid) != I):
        yield (
            f"the grid {grid} has {prod(grid)} capsules, but there are {I}: expected "
            "(types, rows, columns) whose product they are, or None"
        )


def _other_shape(name: str, shape: tuple, expected: tuple, transposed: tuple) -> Iterator[str]:
    """Yield how a part differs from the shape expected, in which letters stand for any size."""

    def fits(shape: tuple, *several: tuple) -> bool:
        return any(
            len(shape) == len(one)
            and all(isinstance(e, str) or n == e for n, e in zip(shape, one, strict=True))
            for one in several
        )

    words, without = f"({', '.join(map(str, expected))})", expected[1:]
    once = expected[0] == "R" and fits(shape, without)
    matrices = (expected, without) if expected[0] == "R" else (expected,)
    if fits(shape, expected):
        return
    if expected[-1] == "E" and fits(shape[:-1], *matrices):
        yield f"{name} are matrices, {shape}: expected {words}, flatten each"
    elif once:
        yield f"{name} are {shape}, without an axis of iterations: expected {words}"
    elif fits(shape, transposed):
        yield f"{name} are transposed, {shape}: expected {words}"
    else:
        yield f"{name} are {shape}, expected {words}"


def _children(grid: tuple | None, traced: dict, B: int, J: int) -> int | None:
    """Return the number of children, as most parts have it."""
    primary = traced.get("primary")
    if isinstance(primary, Tensor) and primary.dim() == 3 and primary.shape[0] == B:
        return primary.shape[1]
    votes, couplings = traced.get("votes"), traced.get("couplings")
    sizes = [] if grid is None else [prod(grid)]
    if votes is not None and votes.dim() >= 3:
        sizes += [n for n in votes.shape[1:3] if n != J][:1]
    if couplings is not None and couplings.dim() >= 3:
        sizes += [n for n in couplings.shape[-2:] if n != J][:1]
    return max(sizes, key=sizes.count) if sizes else J if couplings is not None else None


def _shape(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else "missing"


# The same images again, and in other batches


def _unsteady(model: Any, images: Tensor, traced: dict, whole: Tensor) -> Iterator[str]:
    """Yield what changes without cause: a few images must get what they got among seven.

    Parameters
    ----------
    traced  what the network shows of all images.
    whole   its lengths, of their own type.
    """

    def lengths(some: Tensor) -> Tensor:
        return named_parts(model.look(some, keep=("lengths",)))["lengths"]

    if "lengths" not in named_parts(model.look(images, keep=("lengths",))):
        yield 'asked for "lengths" alone, `look` gives neither these, nor activations or poses'
        return
    alone = lengths(images)
    if off := apart(lengths(images), alone):
        yield f"two passes over the same images differ by {off:.2g}: something in it is random"
        return
    if off := apart(alone, whole):
        yield (
            f"`fused` and `route` differ by {off:.2g} for the same images"
            if _routings_of_others(model)
            else f"lengths that are asked for alone differ by {off:.2g} from those beside the rest"
        )
        return
    for count in (3, 1):
        try:
            few = lengths(images[:count])
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
        if off := apart(few, whole[:count]):
            yield _depends("scores", off)
            return
    if off := apart(lengths(images.flip(0)).flip(0), whole):
        yield _depends("scores", off)
    elif (couplings := traced.get("couplings")) is not None:
        few = named_parts(model.look(images[:3], keep=("couplings",)))["couplings"]
        if off := apart(few, couplings[:, :3].to(few), 1 / couplings.shape[3]):
            yield _depends("couplings", off)


def _depends(what: str, off: float) -> str:
    return f"{what} depend on the batch: an image's change by {off:.2g} with the images beside it"


# Values


def _finite(traced: dict) -> Iterator[str]:
    for name, value in traced.items():
        if not value.isfinite().all():
            count = int((~value.isfinite()).sum())
            yield f"{name} are not finite: {count} of {value.numel()} numbers are NaN or infinite"


def _values(model: Any, traced: dict, separate: bool, same: float) -> Iterator[str]:
    """Yield values that are out of range, or do not agree with each other."""
    peculiar = _peculiar(model)
    lengths, poses = traced["lengths"], traced.get("poses")
    low, high = float(lengths.min()), float(lengths.max())
    if low < 0 or high > 1 + same:
        yield (
            f"lengths run from {low:.3g} to {high:.3g}, expected scores in [0, 1]: logits need a "
            "softmax or a sigmoid"
        )
    elif poses is not None and not separate and "norms" not in peculiar:
        off = float((poses[-1].norm(dim=-1) - lengths).abs().max())
        if off > same:
            yield (
                f"lengths are not the norms of the poses, they differ by up to {off:.2g}: where "
                f"other scores are meant, say why in {WHERE.format('norms')}"
            )
    couplings = traced.get("couplings")
    if couplings is not None and "sums" not in peculiar:
        sums, J = couplings.sum(3), couplings.shape[3]
        leaky = bool(((sums[0] - J / (J + 1)).abs() < same).all() and (sums < 1 + same).all())
        if float((sums - 1).abs().max()) > same and not leaky:
            yield (
                f"couplings of a child sum to {float(sums.min()):.3g} to {float(sums.max()):.3g} "
                "over parents, expected 1 (a softmax over children?): where that is meant, say why "
                f"in {WHERE.format('sums')}"
            )
    if {"votes", "couplings", "poses"} <= set(traced) and "votes" not in peculiar:
        yield from _sums(traced)


def _sums(traced: dict) -> Iterator[str]:
    """Σ weights · votes must point as the poses do, or give them by a norm and one affine map."""
    weights = traced.get("weights", traced["couplings"])[-1]
    total = torch.einsum("bij,bije->bje", weights, traced["votes"])
    poses = traced["poses"][-1]
    if total.shape != poses.shape:
        yield f"votes have {total.shape[-1]} numbers, but poses {poses.shape[-1]}"
        return
    alike = cosine_similarity(total, poses, dim=-1)
    felt = poses.norm(dim=-1) > 1e-6
    if not felt.any() or float(alike[felt].min()) > PARALLEL:
        return
    standard = (total - total.mean(-1, keepdim=True)) / total.std(-1, keepdim=True).clamp_min(1e-12)
    if all(
        _unexplained(x.flatten(0, 1), poses.flatten(0, 1)) > 1 - LINEAR for x in (total, standard)
    ):
        yield (
            "the votes do not give the poses: the sum of couplings times votes points elsewhere "
            f"(cosine {float(alike[felt].min()):.4f} at worst): where the network does more, say "
            "what in " + WHERE.format("votes")
        )


def _unexplained(x: Tensor, y: Tensor) -> float:
    """Return the share of the variance of y, number by number, that no affine map of x explains."""
    x, y = x - x.mean(0), y - y.mean(0)
    slope = (x * y).sum(0) / x.square().sum(0).clamp_min(1e-12)
    return float((y - slope * x).square().sum() / y.square().sum().clamp_min(1e-12))


# Interventions, positions, decoder


def _interventions(model: Any, images: Tensor, traced: dict, same: float) -> Iterator[str]:
    """Yield that other couplings are not used."""
    couplings = traced.get("couplings")
    if couplings is None or couplings.shape[3] < 2 or "couplings" in _peculiar(model):
        return
    if not takes(model.look, "couplings"):
        return  # it says itself that it takes none
    I, J = couplings.shape[2:]
    chosen = torch.full((I, J), 0.1 / J)
    chosen[torch.arange(I), torch.arange(I) % J] += 0.9
    chosen *= float(couplings.sum(3).mean())
    try:
        keep = ("couplings", "poses", "lengths")
        moved = named_parts(model.look(images, keep=keep, couplings=chosen.to(images)))
    except ValueError:
        return  # it says itself that it takes none
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        yield f"couplings (I, J) cannot be put in ({type(error).__name__}: {reason})"
        return
    after = moved.get("couplings")
    ignored = (
        after is not None and (after[-1].double() - chosen.to(after).double()).abs().max() > same
    )
    parts = [name for name in ("poses", "lengths") if name in moved and name in traced]
    still = all(torch.equal(moved[name].double(), traced[name]) for name in parts)
    if ignored or (parts and still):
        yield "couplings that are put in are ignored: the network routes as before"


def _misplaced(model: Any, images: Tensor, traced: dict) -> Iterator[str]:
    """Yield that a corner of the grid depends on pixels outside its receptive field."""
    able, primary = abilities(model), traced.get("primary")
    if able.grid is None or primary is None or not able.has_receptive_fields:
        return
    types, rows, columns = able.grid
    corners = sorted({(r, c) for r in (0, rows - 1) for c in (0, columns - 1)})
    base = images[:1]
    generator = torch.Generator().manual_seed(1)
    noise = torch.rand(base.shape, generator=generator).to(base)
    pictures = [base]
    for corner in corners:
        own = model.receptive_field(*corner)
        changed = noise.clone()
        changed[(..., *own)] = base[(..., *own)]
        pictures.append(changed)
    if all(torch.equal(picture, base) for picture in pictures):
        return
    parts = named_parts(model.look(torch.cat(pictures), keep=("children", "primary")))
    moved_primary = parts["primary"].double()
    moved = (moved_primary[1:] - moved_primary[:1]).abs().amax(2)
    limit = SAME * moved.amax().clamp_min(1e-12)

    def still(layout: Tensor) -> bool:
        return all(float(layout[k, :, r, c].max()) <= limit for k, (r, c) in enumerate(corners))

    if still(moved.unflatten(1, (types, rows, columns))):
        return
    row, column = corners[0]
    by_position = moved.unflatten(1, (rows, columns, types)).permute(0, 3, 1, 2)
    if types > 1 and still(by_position):
        yield (
            "the grid is in another order: capsules come position by position, expected type by "
            "type, i = (type * rows + row) * columns + column"
        )
        return
    where = ", ".join(f"{s.start} to {s.stop - 1}" for s in model.receptive_field(row, column))
    yield (
        "the grid is in another order, or its receptive fields are wrong: capsules at position "
        f"({row}, {column}) change with pixels outside rows and columns {where}; expected "
        "i = (type * rows + row) * columns + column"
    )


def _decoder(model: Any, images: Tensor, traced: dict, same: float) -> Iterator[str]:
    """Yield that a decoder gives no images."""
    poses = traced.get("poses")
    if poses is None or not abilities(model).decodes:
        return
    decoded = model.decode(poses[-1].to(images), traced["lengths"].argmax(1))
    if tuple(decoded.shape) != tuple(images.shape):
        yield f"decode gives {_shape(decoded)}, expected images {_shape(images)}"
    elif (
        not decoded.isfinite().all()
        or float(decoded.min()) < -same
        or float(decoded.max()) > 1 + same
    ):
        yield (
            f"decode gives values from {float(decoded.min()):.3g} to {float(decoded.max()):.3g}, "
            "expected [0, 1]"
        )
