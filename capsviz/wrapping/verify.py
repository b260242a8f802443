"""Verify a wrapped network against itself: the same images twice, in other batches, by children."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from capsviz.tracing.verification import allowed, apart
from capsviz.wrapping.environment import draws, one_line
from capsviz.wrapping.layers import Recorded
from capsviz.wrapping.network import Bare, Fact, Verified, Wrapped

SAME = 1e-4  # scores may lie above 1 by so much
TINY = 1e-30


def verify(shown: Bare, recorded: Recorded) -> Verified:
    """Return what a comparison with itself says of a network.

    Raises
    ------
    ValueError  for scores out of [0, 1], that two passes disagree on, or that depend on the other
                images of a batch.
    """
    images = recorded.images
    smallest = _smallest(shown, images)
    facts = []
    if smallest > 1:
        facts.append(Fact("batch", "cannot take one image: it is given two of them"))
    if shown.recipe.cuda:
        facts.append(Fact("device", "its code asks for a GPU: it is run on the CPU"))
    if not isinstance(shown, Wrapped):
        return Verified(tuple(facts), smallest)
    why = _refuses_children(shown, images)
    if why is not None:
        finding = f"can be read, not replaced: more of an image reaches the classes ({why})"
        facts.append(Fact("children", finding))
    biased = recorded.layer is not None and recorded.layer.rounds[-1].biased
    peculiar = _peculiar(shown, images, biased=biased)
    facts += [Fact("note", reason) for reason in peculiar.values()]
    return Verified(tuple(facts), smallest, why is None, peculiar)


def _smallest(shown: Bare, images: Tensor) -> int:
    """Return how many images a network needs at least; ValueError for scores that are none."""

    def read(batch: Tensor) -> tuple[Tensor, Tensor | None]:
        if isinstance(shown, Wrapped):
            parts = shown.look(batch, keep=("lengths", "couplings"))
            return parts["lengths"], parts.get("couplings")
        return shown(batch).lengths, None

    classes = shown.recipe.classes
    whole, couplings = read(images)
    expected = (len(images), classes)
    if tuple(whole.shape) != expected or not whole.isfinite().all():
        raise ValueError(f"scores are {tuple(whole.shape)}, expected finite ones of {expected}")
    low, high = float(whole.min()), float(whole.max())
    if low < 0 or high > 1 + SAME:
        raise ValueError(
            f"scores run from {low:.3g} to {high:.3g}, expected [0, 1]: give scores=lambda out: "
            "..., or one of its names"
            + ("; of lengths above 1 `capsviz check` says why" if low >= 0 else "")
        )
    if again := apart(read(images)[0], whole):
        raise ValueError(
            f"two passes over the same images differ by {again:.2g}, in evaluation mode too: "
            f"{_changing(lambda: read(images)[0], images.device)}"
        )
    few, routed = read(images[:3])
    what, off = "scores", apart(few, whole[:3])
    if not off and couplings is not None and routed is not None:
        what, off = "couplings", apart(routed, couplings[:, :3], 1 / classes)
    if off:
        raise ValueError(
            f"{what} of an image change by {off:.2g} with the other images of its batch: what a "
            "trace shows of one image would be of its neighbours too (logits shared or averaged "
            "over the batch, or batch norm in training mode)"
        )
    try:
        alone = read(images[:1])[0]
    except Exception:  # whatever the user's code does with one image
        return 2
    return 1 if alone.shape == whole[:1].shape and not apart(alone, whole[:1]) else 2


def _changing(scores: Callable[[], Tensor], device: torch.device) -> str:
    """Say why two passes differ: by random draws, or by what the first one leaves."""
    with draws(0, device):
        first = scores()
    with draws(0, device):
        second = scores()
    if apart(first, second):
        return (
            "something stays from one to the next (logits in a buffer or an attribute?), where "
            "routing begins anew for each image"
        )
    return "something random in it (dropout that is always on?) changes every measurement"


def _refuses_children(shown: Wrapped, images: Tensor) -> str | None:
    """Return why children cannot be replaced: those of images must give the images' scores."""
    if shown.inferred.child_entry is None:
        return None
    traced = shown.look(images, keep=("primary", "lengths"))
    try:
        again = shown.from_children(traced["primary"]).activations
        off = apart(again, traced["lengths"])
        return f"scores then differ by {off:.2g}" if off else None
    except Exception as error:  # whatever the user's code does with other tensors
        return f"{type(error).__name__}: {one_line(error)[:80]}"


def _peculiar(shown: Wrapped, images: Tensor, *, biased: bool) -> dict[str, str]:
    """Return differences from the CapsNet of 2017, with the reason, so that they raise no alarm."""
    traced = shown.look(images, keep=("poses", "votes", "couplings", "weights"))
    close = allowed(traced.values())
    peculiar = {"sums": "a bias is added after the softmax"} if biased else {}
    if "poses" in traced:
        norms = traced["poses"][-1].norm(dim=-1)
        if float((norms - traced["lengths"]).abs().max()) > close:
            peculiar["norms"] = (
                "scores are not the norms of the poses; iterations before the last have only "
                "these norms"
            )
    if "couplings" in traced and not biased:
        sums, over = traced["couplings"].sum(3), traced["couplings"].sum(2)
        if float((sums - 1).abs().max()) > close:
            peculiar["sums"] = f"couplings of a child sum to {sums.min():.3g} to {sums.max():.3g}"
            if float((over - 1).abs().max()) <= close:
                peculiar["sums"] = "couplings sum to 1 over children, not over parents"
    if {"poses", "votes", "couplings"} <= set(traced):
        weights = traced.get("weights", traced["couplings"])[-1]
        total = torch.einsum("bij,bije->bje", weights.double(), traced["votes"].double())
        poses = traced["poses"][-1]
        if total.shape != poses.shape:
            numbers = f"poses have {poses.shape[-1]} numbers, votes {total.shape[-1]}"
            peculiar["votes"] = numbers
        elif float((1 - _cosines(total, poses)).max()) > close:
            peculiar["votes"] = "poses are not parallel to the weighted sum of the votes"
    return peculiar


def _cosines(a: Tensor, b: Tensor) -> Tensor:
    """Return cosines of vectors (..., E); 1 where one is zero, as it has no direction."""
    a, b = (x.double() / x.double().abs().amax(-1, keepdim=True).clamp_min(TINY) for x in (a, b))
    cosines = cosine_similarity(a, b, dim=-1)
    return torch.where((a == 0).all(-1) | (b == 0).all(-1), 1.0, cosines)
