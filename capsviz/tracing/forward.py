"""Run a network on images, a chunk at a time, and record its internals."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

import torch
from torch import Tensor

from capsviz import memory
from capsviz.nn.images import like_of
from capsviz.nn.quantity import Quantity
from capsviz.tracing import record
from capsviz.tracing.interventions import OF_OWN, control_couplings, of_some
from capsviz.tracing.network import abilities, check_look, extent, inference, inputs_of
from capsviz.tracing.record import KEEP, OPTIONAL, PER_ITERATION, Trace
from capsviz.tracing.verification import verify_once
from capsviz.validation import whole_number

CHUNK_BYTES = 48 << 20  # of one chunk's trace; the temporaries of routing are a few times that
CHUNK_IMAGES = 32  # at most, half with votes: larger chunks take more memory and are not faster
DRAWN_IMAGES = 64  # per draw of control couplings; another number would change the draws
PASS_BYTES = 256 << 20  # of a forward pass, with feature maps that are not traced


def trace(
    model,
    images: Tensor,
    *,
    layer: int = -1,
    keep: Sequence[str] = KEEP,
    couplings: str | Tensor | None = None,
    iterations: int | None = None,
    seed: int = 0,
) -> Trace:
    """Run a network on images and return its internals; the network is left unchanged.

    Parameters
    ----------
    images      (N, C, H, W) float in [0, 1], on any device; for a network that was wrapped with
                an `example`, inputs of its form.
    layer       index of the routed layer; -1: the class capsules.
    keep        names of the parts to return; the votes are by far the largest. `primary` stands for
                `children`, `lengths` for the activations after the last iteration. By default all
                parts that the network has.
    couplings   couplings for every iteration: an intervention of `capsviz.tracing.interventions`
                ("uniform", "random", "shuffled" or "matched"), or a tensor (N, I, J) or (I, J).
                None: the network routes. With "shuffled" and "matched", entry r of the trace comes
                from a run in which all iterations use the couplings that replace those of r.
    iterations  number of routing iterations of that layer. By default its own.
    seed        seed of random couplings.

    Raises
    ------
    ValueError      if images are not (N, C, H, W) in [0, 1], if a part or intervention is unknown,
                    or if the network's `look` does not support it.
    NotFiniteError  a ValueError, if activations, poses, couplings, children or reconstructions are
                    NaN or infinite. Otherwise, NaN would be predicted as the first class.
    MemoryError     if the trace would not fit into memory; the message has its size.
    """
    keep = (keep,) if isinstance(keep, str) else tuple(keep)
    parts = record.fields_of(keep)
    required = () if keep == KEEP else parts
    if keep == KEEP:
        parts = (*parts, "last")  # for networks that give no activations of each iteration
    images = inputs_of(model, images)
    if not (couplings is None or isinstance(couplings, str | Tensor)):
        raise TypeError(f"expected couplings as a Tensor or a name, got {type(couplings).__name__}")
    if layer != -1 and layer == len(abilities(model).grids) - 1:
        layer = -1  # a network with one layer may have no argument `layer`
    if iterations is not None:
        iterations = whole_number("routing iterations", iterations)
    options = {"layer": layer, "couplings": couplings, "iterations": iterations}
    options["seed"] = whole_number("seed", seed)
    return _Pass(model, parts, **options).over(images, required=required)


class _Pass:
    """Traces of one layer of a network, under one intervention."""

    def __init__(self, model, parts, *, layer, couplings, iterations, seed):
        if isinstance(model, str):
            raise TypeError(f"expected a network, got '{model}': capsviz.load('{model}') loads one")
        self.able = abilities(model)
        if not self.able.has_capsules:
            if abilities(getattr(model, "module", None)).has_capsules:  # of DataParallel and others
                raise ValueError(f"a {type(model).__name__} holds the network: give its `.module`")
            raise ValueError(
                f"a {type(model).__name__} has no method `look` that shows its capsules: if it has "
                "capsules, capsviz.wrap(network, image_shape, classes) finds them; without "
                "capsules, it can only be evaluated and compared"
            )
        self.model, self.parts = model, parts
        self.layer, self.couplings = layer, couplings
        self.options = {"iterations": iterations} if iterations is not None else {}
        self.options |= {"layer": layer} if layer != -1 else {}
        check_look(model, layer, couplings, iterations)
        self.generator = torch.Generator().manual_seed(seed)
        self.like = like_of(model)

    def over(self, images: Tensor, *, required: Sequence[str]) -> Trace:
        """Trace images (N, C, H, W); ValueError if the network lacks a required part."""
        verify_once(self.model, images)
        with inference(self.model):
            values = self.look(images[:1], record.names_for(self.parts))
            first = record.parts_from(values, self.parts)
            memory.require(
                sum(map(_bytes, first.values())) * len(images),
                f"a trace of {len(images)} images",
                "trace fewer images, or name only the parts you need by keep=(...)",
            )
            size = sum(_bytes(value) for value in values.values())
            fused = self.couplings is None and not {"votes", *PER_ITERATION} & set(self.parts)
            most = min(max(1, CHUNK_BYTES // max(1, size)), images_at_a_time(self.model, not fused))
            count = max(1, -(-len(images) // most))
            whole: dict[str, Tensor] = {}
            filled: Counter[str] = Counter()  # images
            if self.couplings is None and len(images) == 1:
                batches = [first]
            else:
                batches = self.batches(images, -(-len(images) // count))  # about equal ones
            for batch in batches:
                for name, value in batch.items():
                    axis = int(name in PER_ITERATION)
                    if name not in whole:
                        shape = [*value.shape[:axis], len(images), *value.shape[axis + 1 :]]
                        with torch.inference_mode(False):
                            whole[name] = torch.empty(shape, dtype=value.dtype)
                    count = value.shape[axis]
                    whole[name].narrow(axis, filled[name], count).copy_(value)
                    filled[name] += count
        joined = {name: one for name, one in whole.items() if filled[name] == len(images)}
        missing = [n for n in required if n not in joined and n not in OPTIONAL]
        if missing:
            names = {field: alias for alias, field in record.ALIASES.items()}
            listed = ", ".join(names.get(name, name) for name in missing)
            raise ValueError(f"the network's `look` gave no {listed}")
        if not required and "activations" in joined:
            joined.pop("last", None)
        record.require_finite_parts(joined, self.able.name)
        flat = tuple(values["poses"].shape[-1:]) if "poses" in values else None
        place = None
        with suppress(ValueError):  # the positions of the children are unknown
            left, right, bottom, top = extent(self.model, self.layer)
            place = left, right, bottom, top
        return Trace(
            images=images.detach().to("cpu", copy=True),  # later in-place changes have no effect
            grid=self.able.grids[self.layer],
            pose_shape=self.able.pose_shape or flat,
            links=values.get("links", self.able.links),
            extent=place,
            quantity=cast("Quantity | None", values.get("quantity")),
            classes=self.able.class_names if self.layer == -1 else None,
            **joined,
        )

    def batches(self, images: Tensor, chunk: int):
        """Yield the parts of the trace, one chunk of images at a time."""
        names = record.names_for(self.parts)
        own = None if self.couplings is None else self.own(images[:1])  # (R, 1, ...) of one image
        for start in range(0, len(images), chunk):
            rows = slice(start, start + chunk)
            batch = images[rows]
            if own is None:
                values = self.look(batch, names)
            elif isinstance(self.couplings, Tensor):
                some = of_some(self.couplings, rows, len(images), own.shape[2:])
                values = self.look(batch, names, some)
            else:
                shape = (own.shape[0], len(batch), *own.shape[2:])
                each = self.own(batch) if self.couplings in OF_OWN else own.expand(shape)
                put = control_couplings(self.couplings, each, self.generator)
                values = self.look_at_each(batch, names, put)
            yield record.parts_from(values, self.parts)

    def look(self, images: Tensor, names, couplings: Tensor | None = None) -> dict[str, Tensor]:
        """Return the output of the network's `look` for a batch."""
        options = dict(self.options)
        if couplings is not None:
            options["couplings"] = couplings.to(self.like)
        return self.model.look(images.to(self.like), keep=names, **options)

    def look_at_each(self, images: Tensor, names, couplings: Tensor) -> dict[str, Tensor]:
        """Return the output of `look` with couplings (R, B, I, J), each entry r with entry r."""
        values = self.look(images, names, couplings[-1])
        per_iteration = [name for name in PER_ITERATION if name in names]
        if len(couplings) == 1 or not per_iteration:
            return values
        rounds = [self.look(images, per_iteration, one) for one in couplings[:-1]] + [values]
        for name in set(per_iteration) & set(values):
            values[name] = torch.stack([one[name][r] for r, one in enumerate(rounds)])
        return values

    def own(self, images: Tensor) -> Tensor:
        """Return the network's own couplings (R, B, I, J)."""
        values = self.look(images, ("couplings",))
        if "couplings" not in values:
            raise ValueError("the network's `look` gave no couplings, so none can be replaced")
        return values["couplings"].cpu()


def images_at_a_time(model, votes: bool = False) -> int:
    """Return the number of images for a forward pass: half with votes, and fewer if large."""
    most = CHUNK_IMAGES // (1 + votes)
    return min(most, max(1, PASS_BYTES // abilities(model).image_bytes))


def fit_at_a_time(of_one: Tensor, copies: int = 1) -> int:
    """Return for how many images to hold votes or couplings at a time, given those of one."""
    return max(1, CHUNK_BYTES // (copies * _bytes(of_one)))


def _bytes(value) -> int:
    return value.numel() * value.element_size() if isinstance(value, Tensor) else 0
