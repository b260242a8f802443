"""Remember traces: equal ones are answered from the first."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from capsviz.nn.computation import manner
from capsviz.tracing.record import OPTIONAL, PARTS, Trace

REMEMBER_BYTES = 512 << 20  # of all traces that `remember` holds
COMMON = ("poses", "activations")  # small, and kept for the next who asks


class _Entry(NamedTuple):
    model: object  # an entry refers to it, so that its address is not used again
    kept: tuple[str, ...]
    traced: Trace
    size: int


_entries: ContextVar[dict | None] = ContextVar("entries", default=None)
_shown: ContextVar[dict | None] = ContextVar("shown", default=None)


@contextmanager
def remember():
    """Inside this context an equal call of `trace` on equal images is answered from the first one
    whose `keep` covers it: with the same tensors, which must not be written to.
    Tensors given as couplings are never taken as equal, nor is a network whose weights were
    written to since; what is changed in it otherwise (hooks, attributes) is not noticed.
    """
    tokens = _entries.set({}), _shown.set({})
    try:
        yield
    finally:
        _entries.reset(tokens[0])
        _shown.reset(tokens[1])


def of_one(model, key: tuple, look: Callable[[], dict]) -> dict:
    """Return what a network shows of one image, from which the sizes for many follow."""
    shown = _shown.get()
    if shown is None:
        return look()
    if (id(model), *key) not in shown:
        shown[id(model), *key] = (model, look())  # with it, so that its address is not used again
    return shown[id(model), *key][1]


def recalled(
    model,
    images: Tensor,
    parts: tuple[str, ...],
    options: dict,
    run: Callable[..., Trace],
    required: tuple[str, ...],
) -> Trace:
    """The parts of a trace: of a remembered one that has them all, else of `run(parts)`.

    Where a part that is required is missing, it is `run` that refuses.
    """
    entries = _entries.get()
    if entries is None or any(isinstance(value, Tensor) for value in options.values()):
        return run(parts)
    tensors = [*model.parameters(), *model.buffers()]
    if any(tensor.is_inference() for tensor in tensors):  # whose changes are not counted
        return run(parts)
    states = tuple((tensor.data_ptr(), tensor._version, _content(tensor)) for tensor in tensors)
    device = tensors[0].device if tensors else images.device
    key = (id(model), digest(images), states, manner(device), *options.values())
    if key not in entries or not covers(entries[key].kept, parts):
        plain = options["couplings"] is None and options["iterations"] is None
        more = COMMON if plain and options["layer"] == -1 and parts != ("last",) else ()
        earlier = entries[key].kept if key in entries else ()
        kept = tuple(dict.fromkeys((*parts, *more, *earlier)))
        traced = replace(run(kept), images=images[:0].cpu())
        size = sum(_bytes(value) for value in vars(traced).values())
        entries.pop(key, None)
        while entries and size + sum(entry.size for entry in entries.values()) > REMEMBER_BYTES:
            del entries[max(entries, key=lambda one: entries[one].size)]
        entries[key] = _Entry(model, kept, traced, size)
    traced = entries[key].traced
    needed = {*required} - {"last", *OPTIONAL}
    if any(getattr(traced, part) is None for part in needed):
        return run(parts)  # which says what is missing
    left_out = {name: None for name in PARTS if name not in parts}
    alone = "last" in required or ("last" in parts and traced.activations is None)
    last = traced.lengths if alone else None
    return replace(traced, **left_out | {"last": last, "images": images.detach().cpu()})


def digest(images: Tensor) -> tuple:
    """Return what identifies images (N, C, H, W): shape, type of numbers, and a hash."""
    numbers = images.detach().cpu().contiguous().view(torch.uint8).numpy().data
    return images.shape, images.dtype, hashlib.blake2b(numbers, digest_size=16).digest()


def _content(tensor: Tensor) -> int:
    """Return a hash of a tensor: fused optimisers, and what writes to `data`, count no version."""
    return int(torch.hash_tensor(tensor.detach()).view(torch.int64)) if tensor.numel() else 0


def covers(kept: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Return whether a trace that kept some parts can answer for others."""
    return set(parts) - {"last"} <= set(kept) and (
        "last" not in parts or bool({"last", "activations"} & set(kept))
    )


def _bytes(value) -> int:
    return value.numel() * value.element_size() if isinstance(value, Tensor) else 0
