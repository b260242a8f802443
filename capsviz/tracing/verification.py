"""Is what a network says of itself true? Once for each that is not capsviz's own, or whose routing.

`trace` calls `once` before its first pass. A network may say in `peculiar`, a mapping from the name
of a check to the reason, and a routing in `PECULIAR` of its file, what is meant and no mistake:
"norms" (scores are not the norms of the poses), "sums" (couplings of a child do not sum to 1),
"votes" (poses do not follow the weighted sum of the votes), "couplings" (an intervention is not
taken).
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakSet

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from capsviz import discovery
from capsviz.nn import routing
from capsviz.nn.images import like_of
from capsviz.tracing.batches import unsteady
from capsviz.tracing.placement import misplaced
from capsviz.tracing.requests import takes
from capsviz.tracing.shapes import allowed, misshapen, named_parts, shape_of

PARTS = ("children", "primary", "votes", "logits", "couplings", "poses", "lengths")
IMAGES = 7  # a prime, so that their axis can be told
PARALLEL = 0.999  # cosine
LINEAR = 0.99  # share of variance
WHERE = '`peculiar = {{"{}": ...}}` of the network, or PECULIAR in the file of its routing'

_verified: WeakSet = WeakSet()


def once(model, images: Tensor) -> None:
    """Verify a network the first time it is seen, if it or its routing is not one of capsviz's own.

    Raises
    ------
    ValueError  with one line that names the first mistake found.
    """
    if model in _verified:
        return
    room = type(model).__module__
    if not room.startswith("capsviz.") or room.startswith("capsviz.wrapping"):
        what = "the network's `look`"
    elif names := _routings_of_others(model):
        what = f"the routing '{names[0]}'"
    else:
        return
    for mistake in mistakes(model, images):
        raise ValueError(f"{what} is not to be trusted: {mistake}")
    _verified.add(model)


def _routings_of_others(model) -> list[str]:
    """Names of a network's routings that are plugins."""
    known = discovery.entries("capsviz.nn.routing")
    names = {getattr(layer, "routing_name", None) for layer in model.modules()}
    return sorted(name for name in names if name in known and not known[name].ours)


def _peculiar(model) -> dict[str, str]:
    """What a network, or a plugin's routing of it, says to be meant."""
    said: dict[str, str] = {}
    for name in _routings_of_others(model):
        said |= getattr(routing.get(name), "PECULIAR", {})
    return said | getattr(model, "peculiar", {})


def mistakes(model, images: Tensor) -> Iterator[str]:
    """What is wrong with a network's `look`, worst first; the network must be in evaluation mode.

    Parameters
    ----------
    images  (N, C, H, W) in [0, 1], as will be traced; noise makes them up to seven.
    """
    like = like_of(model)
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(IMAGES, *images.shape[1:], generator=generator)
    images = torch.cat((images[:4].to(noise), noise))[:IMAGES].to(like)
    keep = (*PARTS, "weights") if "weights" in getattr(model, "parts", ()) else PARTS
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
    yield from unsteady(model, images, traced, whole, _routings_of_others(model))
    yield from _values(model, traced, separate, same)
    yield from _interventions(model, images, traced, same)
    yield from misplaced(model, images, traced)
    yield from _decoder(model, images, traced, same)


def _finite(traced: dict) -> Iterator[str]:
    for name, value in traced.items():
        if not value.isfinite().all():
            count = int((~value.isfinite()).sum())
            yield f"{name} are not finite: {count} of {value.numel()} numbers are NaN or infinite"


def _values(model, traced: dict, separate: bool, same: float) -> Iterator[str]:
    """In range, and in agreement with each other."""
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
    """Share of the variance of y, number by number, that no affine map of x explains."""
    x, y = x - x.mean(0), y - y.mean(0)
    slope = (x * y).sum(0) / x.square().sum(0).clamp_min(1e-12)
    return float((y - slope * x).square().sum() / y.square().sum().clamp_min(1e-12))


def _interventions(model, images: Tensor, traced: dict, same: float) -> Iterator[str]:
    """Other couplings must be used."""
    couplings = traced.get("couplings")
    peculiar = _peculiar(model)
    if couplings is None or couplings.shape[3] < 2 or "couplings" in peculiar:
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


def _decoder(model, images: Tensor, traced: dict, same: float) -> Iterator[str]:
    """A decoder must give images."""
    poses = traced.get("poses")
    if poses is None or getattr(model, "decoder", model) is None or not hasattr(model, "decode"):
        return
    classes = traced["lengths"].argmax(1)
    decoded = model.decode(poses[-1].to(images), classes)
    if tuple(decoded.shape) != tuple(images.shape):
        yield f"decode gives {shape_of(decoded)}, expected images {shape_of(images)}"
    elif (
        not decoded.isfinite().all()
        or float(decoded.min()) < -same
        or float(decoded.max()) > 1 + same
    ):
        yield (
            f"decode gives values from {float(decoded.min()):.3g} to {float(decoded.max()):.3g}, "
            "expected [0, 1]"
        )
