"""Run a network over images, a chunk at a time, and keep what happened inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from capsviz import memory
from capsviz.nn.images import check_images, like_of
from capsviz.nn.quantity import Quantity
from capsviz.tracing import record
from capsviz.tracing.finite import require_finite_parts
from capsviz.tracing.interventions import OF_OWN, control_couplings, of_some
from capsviz.tracing.modes import inference
from capsviz.tracing.network import abilities, check_look, extent, is_trusted
from capsviz.tracing.record import KEEP, PER_ITERATION, Trace
from capsviz.tracing.remembered import of_one, recalled
from capsviz.validation import whole_number

CHUNK_BYTES = 128 << 20  # of one chunk's trace; the temporaries of routing are a few times that
CHUNK_IMAGES = 256  # at most
PASS_BYTES = 1 << 30  # of a forward pass: feature maps that no trace shows take memory too


def trace(
    model,
    images: Tensor,
    *,
    layer: int = -1,
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
    layer       number of the routed layer to describe, as an index; -1: that of the classes.
    keep        names of the parts to return; the votes are by far the largest. `primary` stands for
                `children`, `lengths` for the activations after the last iteration. By default all
                that the network has.
    couplings   an intervention, in every iteration: "uniform", "random", "shuffled" or "matched",
                as `capsviz.tracing.interventions` says, or a tensor (N, I, J) or (I, J). None
                routes. With the first two a child gives what it gives in the first iteration (in
                the last, where that alone is one number for all), with the last two what it gives
                in each of the image's own: there entry r of the trace is of a run in which every
                iteration has the couplings that take the place of iteration r's.
    iterations  of routing, instead of the network's own.
    chunk       images at a time; None chooses from the size of one image's trace.
    seed        of random couplings; the draws do not depend on `chunk`.

    Raises
    ------
    ValueError      for images that are not (N, C, H, W) in [0, 1], an unknown part or intervention,
                    or what the network's `look` does not take or give.
    NotFiniteError  a ValueError, for activations, poses, couplings, children or reconstructions
                    that are NaN or infinite: the largest of them would be the first class.
    MemoryError     if what is to be kept would not fit, with its size.
    """
    keep = (keep,) if isinstance(keep, str) else tuple(keep)
    parts = record.fields_of(keep)
    required = () if keep == KEEP else parts
    if keep == KEEP:
        parts = (*parts, "last")  # for networks that show no activations inside
    check_images(images)
    if not (couplings is None or isinstance(couplings, str | Tensor)):
        raise TypeError(f"expected couplings as a Tensor or a name, got {type(couplings).__name__}")
    chunk = None if chunk is None else whole_number("chunk", chunk)
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1 image, got {chunk}")
    if layer != -1 and layer == len(abilities(model).grids) - 1:
        layer = -1  # by another index: a network that shows one layer takes none
    if iterations is not None:
        iterations = whole_number("routing iterations", iterations)
    options = {"layer": layer, "couplings": couplings, "iterations": iterations}
    options["seed"] = whole_number("seed", seed)

    def run(more):
        return _Pass(model, more, **options).over(images, chunk, required=required)

    return recalled(model, images, parts, options, run, required)


class _Pass:
    """One layer of a network, looked at under one intervention."""

    def __init__(self, model, parts, *, layer, couplings, iterations, seed):
        if isinstance(model, str):
            raise TypeError(f"expected a network, got '{model}': capsviz.load('{model}') loads one")
        self.able = abilities(model)
        if not self.able.has_capsules:
            raise ValueError(
                f"a {type(model).__name__} does not say what is inside, by a `look`: where it has "
                "capsules, capsviz.wrap(network, image_shape, classes) finds them; networks "
                "without capsules can be evaluated and compared"
            )
        self.model, self.parts = model, parts
        self.layer, self.couplings = layer, couplings
        self.options = {"iterations": iterations} | ({"layer": layer} if layer != -1 else {})
        check_look(model, layer, couplings)
        self.generator = torch.Generator().manual_seed(seed)
        self.like = like_of(model)

    def over(self, images: Tensor, chunk: int | None, *, required: Sequence[str]) -> Trace:
        """Trace images (N, C, H, W); ValueError if the network lacks a part that is required."""
        if not is_trusted(self.model):
            from capsviz.tracing.verification import verify

            verify(self.model, images)
        with inference(self.model):
            values = self.of_one(images)
            first = record.parts_from(values, self.parts)
            kept = [_bytes(value) for value in first.values()]
            memory.require(
                (sum(kept) + max(kept, default=0)) * len(images),  # the largest is joined of pieces
                f"a trace of {len(images)} images",
                "trace fewer images, or name only the parts you need by keep=(...)",
            )
            size = sum(_bytes(value) for value in values.values())
            most = min(max(1, CHUNK_BYTES // max(1, size)), images_at_a_time(self.model))
            chunk = chunk or _even(len(images), most)
            pieces: dict[str, list[Tensor]] = {name: [] for name in self.parts}
            if self.couplings is None and len(images) == 1:
                batches = [first]
            else:
                batches = self.batches(images, chunk)
            for batch in batches:
                for name, value in batch.items():
                    pieces[name].append(value.cpu())
        missing = [n for n in required if not pieces[n] and n not in record.OPTIONAL]
        if missing:
            names = {field: alias for alias, field in record.ALIASES.items()}
            listed = ", ".join(names.get(name, name) for name in missing)
            raise ValueError(f"the network's `look` gave no {listed}")
        joined = {
            name: torch.cat(pieces.pop(name), int(name in PER_ITERATION))  # the pieces go at once
            for name in self.parts
            if pieces[name]
        }
        if not required and "activations" in joined:
            joined.pop("last", None)
        require_finite_parts(joined, self.model)
        return Trace(
            images=images.detach().cpu(),
            grid=self.able.grids[self.layer],
            pose_shape=self.pose_shape(values),
            links=values.get("links", self.able.links),
            extent=self.extent(),
            quantity=cast("Quantity | None", values.get("quantity")),
            **joined,
        )

    def of_one(self, images: Tensor) -> dict[str, Tensor]:
        """Return what the network shows of the first image, or of an earlier one of this shape."""
        key = (images.shape[1:], self.parts, *self.options.items())

        def look():
            return self.look(images[:1], record.names_for(self.parts))

        return look() if len(images) == 1 else of_one(self.model, key, look)

    def batches(self, images: Tensor, chunk: int):
        """The parts of the trace, a chunk of images after the other."""
        names = record.names_for(self.parts)
        own = None if self.couplings is None else self.own(images[:1])  # (R, 1, ...) of one image
        for start in range(0, len(images), chunk):
            rows = slice(start, start + chunk)
            batch = images[rows]
            if self.couplings is None or own is None:
                values = self.look(batch, names)
            elif isinstance(self.couplings, Tensor):
                some = of_some(self.couplings, rows, len(images), own.shape[2:])
                values = self.look(batch, names, some)
            else:
                each = self.own(batch) if self.couplings in OF_OWN else _repeated(own, len(batch))
                values = self.look_at_each(
                    batch, names, control_couplings(self.couplings, each, self.generator)
                )
            yield record.parts_from(values, self.parts)

    def look(self, images: Tensor, names, couplings: Tensor | None = None) -> dict[str, Tensor]:
        """Return what the network shows of a batch."""
        options = dict(self.options)
        if couplings is not None:
            options["couplings"] = couplings.to(self.like)
        return self.model.look(images.to(self.like), keep=names, **options)

    def look_at_each(self, images: Tensor, names, couplings: Tensor) -> dict[str, Tensor]:
        """Return what it shows with couplings (R, B, I, J): entry r with those of r."""
        values = self.look(images, names, couplings[-1])
        per_iteration = [name for name in PER_ITERATION if name in record.names_for(self.parts)]
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

    def pose_shape(self, values: dict[str, Tensor]) -> tuple[int, ...] | None:
        """Return the shape of a pose, if it is known."""
        flat = tuple(values["poses"].shape[-1:]) if "poses" in values else None
        return flat if self.able.pose_shape is None else self.able.pose_shape

    def extent(self) -> tuple[float, float, float, float] | None:
        """Return where the children lie on the image; None if the network does not say it."""
        try:
            left, right, bottom, top = extent(self.model, self.layer)
        except ValueError:
            return None
        return left, right, bottom, top


def images_at_a_time(model) -> int:
    """Return how many images a forward pass should take: fewer if a network says they are large."""
    return min(CHUNK_IMAGES, max(1, PASS_BYTES // abilities(model).image_bytes))


def _even(images: int, most: int) -> int:
    """Return how many at a time, so that no piece is much smaller than another."""
    return max(1, -(-images // max(1, -(-images // most))))


def _repeated(own: Tensor, count: int) -> Tensor:
    """One image's couplings (R, 1, ...) for several images."""
    return own.expand(own.shape[0], count, *own.shape[2:])


def _bytes(value) -> int:
    return value.numel() * value.element_size() if isinstance(value, Tensor) else 0
