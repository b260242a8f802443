"""Training of decoders from primary capsules, with the network frozen.

Both decoders (see `primary_decoder`) are trained on the same images in the same order. Every image
is used twice, with all of its capsules and with a random subset, often a single one: otherwise a
single capsule would be unlike all training inputs, and its reconstruction meaningless.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.lr_scheduler import CosineAnnealingLR

from capsviz.data import Dataset
from capsviz.experiments.primary_decoder import BATCH, HIDDEN, PrimaryDecoder, decode, inputs, look
from capsviz.nn.functional import reconstruction_loss
from capsviz.nn.random_state import seeded
from capsviz.training.train import require_finite_loss
from capsviz.transforms.augment import shift, to_float

VALIDATION = 1000  # images, at most, to choose the epoch
LEARNING_RATE = 3e-3  # of Adam, to zero by a cosine


@dataclass(frozen=True)
class Epoch:
    """The record of one epoch."""

    epoch: int  # from 1
    seconds: float
    validation_sse: dict[str, float]  # of each decoder, from all capsules


def some(children: int, n: int, generator: torch.Generator) -> Tensor:
    """Draw random subsets (n, I) of zeros and ones: I^(u^2) capsules each, u uniform in [0, 1).

    A third of them are single capsules where I is 1,152.
    """
    counts = (children ** torch.rand(n, 1, generator=generator).square()).floor()
    ranks = torch.rand(n, children, generator=generator).argsort(1).argsort(1)
    return (ranks < counts).float()


def fit(
    model,
    train: Dataset,
    validation: Dataset,
    *,
    epochs: int = 5,
    seed: int = 0,
    hidden: tuple[int, int] = HIDDEN,
    shift_px: int = 2,
    progress: Callable = iter,
    report: Callable[[str], None] = lambda line: None,
) -> tuple[dict[str, PrimaryDecoder], list[Epoch]]:
    """Train both decoders; the network is not changed.

    Parameters
    ----------
    train       training images, shifted at random in each epoch.
    validation  its first images choose the best epoch of each decoder.
    seed        of weights, order, shifts and subsets.
    hidden      of the decoders, see `PrimaryDecoder`.
    progress    wraps the batches of an epoch.
    report      called with a line for each epoch.

    Returns
    -------
    The decoders "routed" and "uniform", and the record of every epoch.

    Raises
    ------
    ValueError       for less than one epoch.
    ArithmeticError  if the loss is not finite.
    """
    if epochs < 1:
        raise ValueError(f"epochs must be at least 1, got {epochs}")
    device = next(model.parameters()).device
    shape = look(model, to_float(train.images[:1])).primary.shape
    decoders = {}
    for name in ("routed", "uniform"):
        with seeded(seed):
            decoder = PrimaryDecoder(shape[1], shape[2], train.image_shape, hidden)
        decoders[name] = decoder.to(device)
    steps = epochs * math.ceil(len(train) / BATCH)
    optimisers = {k: torch.optim.Adam(d.parameters(), LEARNING_RATE) for k, d in decoders.items()}
    schedules = {k: CosineAnnealingLR(o, steps) for k, o in optimisers.items()}
    validation = validation.first(min(VALIDATION, len(validation)))
    best: dict[str, tuple[float, int, dict[str, Tensor]]] = {}
    record: list[Epoch] = []
    for epoch in range(1, epochs + 1):
        start = time.perf_counter()
        generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        order = torch.randperm(len(train), generator=generator)
        for batch in progress(order.split(BATCH)):
            moved = shift(train.images[batch], shift_px, generator=generator)
            images = to_float(moved)
            traced = look(model, images)
            scale = some(shape[1], len(batch), generator)[..., None]
            target = images.repeat(2, 1, 1, 1).to(device)
            for name, capsules in inputs(traced).items():
                twice = torch.cat([capsules, capsules * scale]).to(device)
                loss = reconstruction_loss(target, decoders[name](twice)).mean()
                require_finite_loss(float(loss.detach()), epoch)
                optimisers[name].zero_grad()
                loss.backward()
                optimisers[name].step()
                schedules[name].step()
        errors = validation_sse(model, decoders, validation)
        for name, sse in errors.items():
            if name not in best or sse < best[name][0]:
                best[name] = sse, epoch, copy.deepcopy(decoders[name].state_dict())
        record.append(Epoch(epoch, round(time.perf_counter() - start, 1), errors))
        report(
            f"epoch {epoch}/{epochs}: validation SSE {errors['routed']:.2f}, with uniform "
            f"couplings {errors['uniform']:.2f}, {record[-1].seconds:.0f} s"
        )
    for name, (_, _, weights) in best.items():
        decoders[name].load_state_dict(weights)
        decoders[name].half().float().eval()  # as it will be stored: what is measured is kept
    return decoders, record


def validation_sse(model, decoders: dict[str, PrimaryDecoder], part: Dataset) -> dict[str, float]:
    """Return the mean SSE of each decoder on a split, from all capsules."""
    totals = dict.fromkeys(decoders, 0.0)
    for batch in part.images.split(BATCH):
        images = to_float(batch)
        for name, capsules in inputs(look(model, images)).items():
            decoded = decode(decoders[name], capsules)
            totals[name] += float(reconstruction_loss(images, decoded).sum())
    return {name: total / len(part) for name, total in totals.items()}
