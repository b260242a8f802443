"""Trace: everything worth looking at in one forward pass, by name, and interventions on routing.

Any capsule network can be traced, and so analysed, that has
    look(images, *, keep, couplings=None, iterations=None)
                                       -> dict of the tensors named below, those of `keep` at least
    decode(poses (B,J,E), classes (B,)) -> images (B,C,H,W) in [0, 1]
    grid                               (types, rows, columns) of its primary capsules
    receptive_field(row, column)       -> two slices: the image rows and columns a capsule sees
One that cannot decode says so by `decoder = None`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor

from capsviz import memory
from capsviz.discovery import unknown
from capsviz.functional import random_couplings

CHUNK_BYTES = 128 << 20  # of one chunk's trace; the temporaries of routing are a few times that
CHUNK_IMAGES = 256  # at most
PASS_BYTES = 1 << 30  # of a forward pass: feature maps that no trace shows take memory too
REMEMBER_BYTES = 512 << 20  # of all traces that `remember` holds
COMMON = ("primary", "couplings", "poses", "lengths")  # what it keeps for the next who asks


@dataclass(frozen=True)
class Trace:
    """What one forward pass of N images shows, on the CPU. Parts that were not kept are None.

    Capsule i of `primary` is of the type and at the place for which
    i = (type * rows + row) * columns + column. Iterations are numbered from 1; entry 1 (index 0)
    of R holds zero logits and uniform couplings, entry R (index -1) the result.
    """

    images: Tensor  # (N, C, H, W) in [0, 1]
    grid: tuple[int, int, int]  # (types, rows, columns)
    primary: Tensor | None = None  # (N, I, D)
    votes: Tensor | None = None  # (N, I, J, E)
    logits: Tensor | None = None  # (R, N, I, J)
    couplings: Tensor | None = None  # (R, N, I, J)
    poses: Tensor | None = None  # (R, N, J, E)
    lengths: Tensor | None = None  # (N, J), after the last iteration
    reconstruction: Tensor | None = None  # (N, C, H, W) of the longest capsule; None: no decoder


KEEP = tuple(field.name for field in fields(Trace) if field.name not in ("images", "grid"))
PER_ITERATION = ("logits", "couplings", "poses")  # their batch axis is the second


def trace(
    model,
    images: Tensor,
    *,
    keep: Sequence[str] = KEEP,
    couplings: str | Tensor | None = None,
    iterations: int | None = None,
    chunk: int | None = None,
    seed: int = 0,
) -> Trace:
    """Run a network and return what happened inside; the network is left as it was found.

    Parameters
    ----------
    images      (N, C, H, W) float in [0, 1], on any device.
    keep        names of the parts to return; the votes are by far the largest.
    couplings   an intervention: "uniform" (1/J), "random" (uniform on the simplex, another draw for
                each image), or a tensor (N, I, J) or (I, J); used in every iteration. None routes.
                Where a child of this network does not give all of itself to parents (leaky
                routing), the first two are scaled by what it gives in the network's own first
                iteration, J / (J + 1): they change where it goes, not how much.
    iterations  of routing, instead of the network's own.
    chunk       images at a time; None chooses from the size of one image's trace.
    seed        of random couplings; the draws do not depend on `chunk`.

    Raises
    ------
    ValueError   for images that are not (N, C, H, W) in [0, 1], or an unknown part or intervention.
    MemoryError  if what is to be kept would not fit, with its size.
    """
    keep = (keep,) if isinstance(keep, str) else tuple(dict.fromkeys(keep))
    _check(images, keep)
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1 image, got {chunk}")
    made = _made.get()
    if made is None or isinstance(couplings, Tensor) or images.is_inference():
        return _run(model, images, keep, couplings, iterations, chunk, seed)
    # What an entry refers to keeps these addresses from being used again.
    at = (images.data_ptr(), images.shape, images.stride(), images._version)
    key = (id(model), at, couplings, iterations, seed)
    if key not in made or not set(keep) <= set(made[key].kept):
        plain = couplings is None and iterations is None and keep != ("lengths",)
        more = COMMON if plain else ()
        kept = tuple(dict.fromkeys((*keep, *more)))
        found = _run(model, images, kept, couplings, iterations, chunk, seed)
        size = sum(_bytes(value) for value in vars(found).values())
        while made and size + sum(entry.size for entry in made.values()) > REMEMBER_BYTES:
            del made[next(iter(made))]  # the oldest
        made[key] = _Made(model, images, kept, found, size)
    found = made[key].found
    return replace(found, **{name: None for name in KEEP if name not in keep})


def _run(model, images, keep, couplings, iterations, chunk, seed) -> Trace:
    if not hasattr(model, "look"):
        raise ValueError(
            "this network has no capsules to look into: expected a capsule network; "
            "networks without capsules can be evaluated and compared"
        )
    like = next(model.parameters(), torch.zeros(()))
    with inference(model):
        options = {"keep": tuple(keep), "iterations": iterations}
        first = model.look(images[:1].to(like), **options)
        size = sum(_bytes(value) for value in first.values())
        kept = [_bytes(first[name]) for name in keep if name in first]
        memory.require(
            (sum(kept) + max(kept, default=0)) * len(images),  # the largest is joined from pieces
            f"a trace of {len(images)} images",
            "trace fewer images, or name only the parts you need by keep=(...)",
        )
        chunk = chunk or min(max(1, CHUNK_BYTES // size), images_at_a_time(model))
        if couplings is not None:
            own = model.look(images[:1].to(like), keep=("couplings",))["couplings"]
        parts = {name: [] for name in keep}
        generator = torch.Generator().manual_seed(seed)
        for start in range(0, len(images), chunk):
            batch = images[start : start + chunk].to(like)
            if couplings is not None:
                there = slice(start, start + len(batch))
                given = _couplings(couplings, there, len(images), own, generator)
                options["couplings"] = given.to(like)
            seen = model.look(batch, **options)
            for name in keep:
                if name in seen:
                    parts[name].append(seen[name].cpu())
    missing = [name for name in keep if not parts[name] and name != "reconstruction"]
    if missing:
        raise ValueError(f"the network's `look` gave no {', '.join(missing)}")
    joined = {
        name: torch.cat(parts.pop(name), int(name in PER_ITERATION))  # the pieces go at once
        for name in keep
        if parts[name]
    }
    return Trace(images=images.cpu(), grid=tuple(model.grid), **joined)


def reconstructs(model) -> bool:
    """Whether a network has capsules, and decodes them."""
    return hasattr(model, "look") and getattr(model, "decoder", model) is not None


def images_at_a_time(model) -> int:
    """How many images a forward pass should take: fewer where a network says they are large."""
    return min(CHUNK_IMAGES, max(1, PASS_BYTES // getattr(model, "image_bytes", 1)))


def scores(model, images: Tensor, *, chunk: int | None = None) -> Tensor:
    """What a network says of images, with capsules or without: (N, J) in [0, 1], on the CPU.

    Lengths of the class capsules, or probabilities. The class is the largest one.

    Parameters
    ----------
    images  (N, C, H, W) float in [0, 1], on any device.
    chunk   images at a time; None chooses from the size of an image.
    """
    if hasattr(model, "look"):
        return trace(model, images, keep=("lengths",), chunk=chunk).lengths
    _check(images, ())
    like = next(model.parameters(), torch.zeros(()))
    with inference(model):
        parts = images.split(chunk or images_at_a_time(model))
        return torch.cat([model(part.to(like)).lengths.cpu() for part in parts])


def decode(model, poses: Tensor, classes: Tensor) -> Tensor:
    """Reconstructions (N, C, H, W), on the CPU, from poses (N, J, E) of `classes` (N,)."""
    like = next(model.parameters(), torch.zeros(()))
    with inference(model):
        parts = [
            model.decode(some.to(like), which.to(like.device)).cpu()
            for some, which in zip(
                poses.split(CHUNK_IMAGES), classes.split(CHUNK_IMAGES), strict=True
            )
        ]
    return torch.cat(parts)


class _Made(NamedTuple):
    model: object
    images: Tensor
    kept: tuple[str, ...]
    found: Trace
    size: int


_made: ContextVar[dict | None] = ContextVar("made", default=None)


@contextmanager
def remember():
    """Inside this context an equal call of `trace` on the same, unchanged tensor is answered from
    the first one whose `keep` covers it: with the same tensors, which must not be written to.
    Tensors given as couplings are never taken as equal.
    """
    token = _made.set({})
    try:
        yield
    finally:
        _made.reset(token)


@contextmanager
def evaluating(model):
    """Evaluation mode; every module's mode is put back, also after an error."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def inference(model):
    """Evaluation mode without gradients; every module's mode is put back, also after an error."""
    with evaluating(model), torch.inference_mode():
        yield


def given_away(couplings: Tensor) -> Tensor:
    """What each child gives to all parents in the first iteration: (R, N, I, J) -> (I, 1) double.

    1 for couplings 1/J, exactly: they are held against 1/J as their own type has it.
    """
    first = couplings[0, 0].cpu()
    even = torch.full_like(first, 1 / first.shape[1])
    return (first.double() / even.double()).mean(1, keepdim=True)


def even_couplings(own: Tensor) -> Tensor:
    """Couplings (I, J) by which each child spreads evenly what it gives in the first iteration.

    `own` are the network's, (R, N, I, J): 1/J but for leaky routing.
    """
    I, J = own.shape[2:]
    return (torch.full((I, J), 1 / J) * given_away(own)).float()


def _couplings(given, there: slice, n: int, own: Tensor, generator) -> Tensor:
    """Those of some of the n images, from what `trace` takes and one image's own (R, 1, I, J)."""
    I, J = own.shape[2:]
    if isinstance(given, Tensor):
        if tuple(given.shape) not in ((n, I, J), (I, J)):
            raise ValueError(f"expected couplings {(n, I, J)}, got {tuple(given.shape)}")
        return given if given.dim() == 2 else given[there]
    if given == "uniform":
        return even_couplings(own)
    if given == "random":
        draws = [random_couplings((1, I, J), generator=generator) for _ in range(n)[there]]
        return (torch.cat(draws) * given_away(own)).float()
    raise ValueError(unknown("couplings", str(given), ["uniform", "random"]))


def _check(images: Tensor, keep: Sequence[str]) -> None:
    if images.dim() != 4 or len(images) == 0 or not images.is_floating_point():
        raise ValueError(
            f"expected float images (N, C, H, W), got {images.dtype} of {tuple(images.shape)}"
        )
    low, high = float(images.min()), float(images.max())
    if not (low >= 0 and high <= 1):
        raise ValueError(f"expected images in [0, 1], got values from {low:.3g} to {high:.3g}")
    for name in keep:
        if name not in KEEP:
            raise ValueError(unknown("part of a trace", name, list(KEEP)))


def _bytes(value) -> int:
    return value.numel() * value.element_size() if isinstance(value, Tensor) else 0
