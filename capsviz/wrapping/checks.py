"""The places of capsules, and whether scores agree whichever images stand beside an image."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor

from capsviz.tracing.verification import apart
from capsviz.wrapping import grid as places
from capsviz.wrapping.bare import Bare
from capsviz.wrapping.network import Wrapped
from capsviz.wrapping.report import Fact
from capsviz.wrapping.state import draws

SAME = 1e-4  # scores may lie above 1 by so much


def put_grid(wrapped: Wrapped, grid, images: Tensor) -> None:
    """Find the grid, or take the given one and find what its places see."""
    part = next((name for name in ("primary", "votes") if name in wrapped.parts), None)
    if grid is None or part is None:
        why = "none, as given" if grid is None else "none: neither children nor votes are seen"
        wrapped.facts.append(Fact("grid", why))
        return

    def capsules(some):
        return wrapped.capsules(some, part)

    shape, batch = wrapped.recipe.image_shape, len(images)
    rows, columns = places.ranges_of_sight(capsules, shape, batch, images)
    result = places.arranged(rows, columns, shape)
    if grid == "probe":
        if result.grid is not None:
            why = places.hollow(capsules, result, shape, batch, images)
            result = result if why is None else places.Places(None, None, [], [], why)
        evidence = f"{result.evidence}; by impulses of {part}"
    else:
        result = _as_told(tuple(grid), result, rows, columns)
        evidence = f"{result.grid}, as given; its places' fields by impulses"
    wrapped.grid, wrapped.order = result.grid, result.order
    if result.grid is not None:
        wrapped.fields = (result.rows, result.columns)
    wrapped.facts.append(Fact("grid", evidence))


def _as_told(grid, result: places.Places, rows, columns) -> places.Places:
    """Places of a grid that is told; ValueError where impulses say that it is none."""
    if grid == result.grid:  # in whichever order they lie
        return result
    if prod(grid) != len(rows):
        raise ValueError(
            f"grid {grid} does not fit {len(rows)} children: expected (types, rows, columns) "
            "whose product is their number"
        )
    why = places.torn(rows, columns, grid)
    if why is not None:
        raise ValueError(
            f"grid {grid} is none of these capsules: {why}; by impulses was found: "
            f"{result.evidence}; give grid='probe', or None for no places"
        )
    return places.Places(grid, None, *places.fields_of(rows, columns, grid), "")


def put_children(wrapped: Wrapped, images: Tensor) -> None:
    """Whether children can be put in: those of images must give what the images do."""
    if wrapped.recipe.child_entry is None:
        return
    shown = wrapped.look(images, keep=("primary", "lengths"))
    try:
        again = wrapped.from_children(shown["primary"]).activations
        off = apart(again, shown["lengths"])
        why = f"scores then differ by {off:.2g}" if off else None
    except Exception as error:  # whatever somebody's code does with other tensors
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"
    if why is not None:
        wrapped.recipe.child_entry = None
        finding = f"can be read, not replaced: more of an image reaches the classes ({why})"
        wrapped.facts.append(Fact("children", finding))


def checked(wrapped: Bare, images: Tensor) -> Bare:
    """The scores of one image, of a few, and of the plain network must agree."""
    recipe = wrapped.recipe

    def shown(batch):
        if hasattr(wrapped, "look"):
            parts = wrapped.look(batch, keep=("lengths", "couplings"))
            return parts["lengths"], parts.get("couplings")
        return wrapped(batch).lengths, None

    whole, couplings = shown(images)
    expected = (len(images), recipe.classes)
    if tuple(whole.shape) != expected or not whole.isfinite().all():
        raise ValueError(f"scores are {tuple(whole.shape)}, expected finite ones of {expected}")
    if float(whole.min()) < 0 or float(whole.max()) > 1 + SAME:
        raise ValueError(
            f"scores run from {float(whole.min()):.3g} to {float(whole.max()):.3g}, expected "
            "[0, 1]: give scores=lambda out: ..., or one of its names"
            + ("; of lengths above 1 `capsviz check` says why" if float(whole.min()) >= 0 else "")
        )
    if again := apart(shown(images)[0], whole):
        raise ValueError(
            f"two passes over the same images differ by {again:.2g}, in evaluation mode too: "
            f"{_changing(lambda: shown(images)[0], images.device)}"
        )
    few, routed = shown(images[:3])
    what, off = "scores", apart(few, whole[:3])
    if not off and couplings is not None:
        what, off = "couplings", apart(routed, couplings[:, :3], 1 / recipe.classes)
    if off:
        raise ValueError(
            f"{what} of an image change by {off:.2g} with the other images of its batch: what a "
            "trace shows of one image would be of its neighbours too (logits shared or averaged "
            "over the batch, or batch norm in training mode)"
        )
    try:
        alone = shown(images[:1])[0]
        fits = alone.shape == whole[:1].shape and not apart(alone, whole[:1])
    except Exception:  # whatever somebody's code does with one image
        fits = False
    if not fits:
        recipe.smallest = 2
        wrapped.facts.append(Fact("batch", "cannot take one image: it is given two of them"))
    if recipe.cuda:
        wrapped.facts.append(Fact("device", "its code asks for a GPU: it is run on the CPU"))
    return wrapped


def _changing(scores: Callable[[], Tensor], device: torch.device) -> str:
    """Why two passes differ, in words: by what is drawn, or what the first one leaves."""
    passes = []
    for _ in range(2):
        with draws(0, device):
            passes.append(scores())
    if apart(*passes):
        return (
            "something is kept from one to the next (logits in a buffer or an attribute?), where "
            "routing begins anew for each image"
        )
    return "something random in it (dropout that is always on?) upsets whatever is measured"
