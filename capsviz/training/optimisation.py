"""Optimisation: Adam's groups of weights, what changes with progress, and averaged weights."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from capsviz.training.recipe import Recipe

FLOOR = 1e-6  # of learning rates, as in the authors' code


def build_optimiser(model: nn.Module, recipe: Recipe) -> torch.optim.Adam:
    """Adam; the decoder has a group of its own where its rate or weight decay differ.

    Weight decay is Adam's own (weight_decay * w is added to the gradient of w before its moments),
    as in HoangPham3003/Capsule-Network-in-Pytorch, not AdamW's. Each group's full rate, before
    schedule and warm-up, is its "initial_lr".
    """
    own, decoder = (
        (recipe.learning_rate, recipe.weight_decay),
        dict(model.named_children()).get("decoder"),
    )
    rate, decay = recipe.decoder_learning_rate, recipe.decoder_weight_decay
    other = (own[0] if rate is None else rate, own[1] if decay is None else decay)
    groups = [(list(model.parameters()), *own)]
    if decoder is not None and other != own:
        apart = set(decoder.parameters())
        groups = [([p for p in model.parameters() if p not in apart], *own)]
        groups += [(list(decoder.parameters()), *other)]
    return torch.optim.Adam(
        [
            {"params": params, "lr": rate, "initial_lr": rate, "weight_decay": decay}
            for params, rate, decay in groups
        ],
        fused=True,
    )


def parameters(optimiser: torch.optim.Optimizer) -> list[nn.Parameter]:
    """All parameters, in the order of the optimiser's own numbers for them."""
    return [p for group in optimiser.param_groups for p in group["params"]]


def set_learning_rates(
    optimiser: torch.optim.Optimizer, recipe: Recipe, progress: float, steps: int
) -> None:
    """Give each group its own rate after `progress` epochs of `steps` steps."""
    for group in optimiser.param_groups:
        group["lr"] = learning_rate(recipe, progress, steps, full=group["initial_lr"])


def learning_rate(
    recipe: Recipe, progress: float, steps: int, *, full: float | None = None
) -> float:
    """The rate after `progress` epochs (a fraction counts), of what is `full` before any schedule.

    `full` is the recipe's learning rate, where it is None. During the warm-up, the schedule's rate
    is multiplied by the share of the warm-up that is over. No rate falls below 1e-6.

    Parameters
    ----------
    steps  of an epoch: an exponential decay counts them, for the authors' is 0.96^(step / 2000).
    """
    full = recipe.learning_rate if full is None else full
    if recipe.schedule == "linear":
        factor = 1 - progress / recipe.epochs
    elif recipe.schedule == "cosine":
        factor = (1 + math.cos(math.pi * progress / recipe.epochs)) / 2
    elif recipe.schedule == "constant":
        factor = 1.0
    elif recipe.lr_decay_steps is None:
        factor = recipe.lr_decay**progress
    else:
        factor = recipe.lr_decay ** (progress * steps / recipe.lr_decay_steps)
    if progress < recipe.warmup_epochs:
        factor *= progress / recipe.warmup_epochs
    return max(full * factor, min(FLOOR, full))


def reconstruction_factor(recipe: Recipe, progress: float) -> float:
    """Times the reconstruction's weight after `progress` epochs: geometric from 1."""
    return recipe.reconstruction_anneal ** (progress / recipe.epochs)


class Average:
    """Exponential moving average of a network's weights: a <- decay * a + (1 - decay) * w.

    It starts at the network's weights as they are, and forgets them soon: after step t, the decay
    is at most (1 + t) / (10 + t), as in TensorFlow's ExponentialMovingAverage with `num_updates`.
    Running statistics of batch norm are averaged likewise; whole numbers, as their count of
    batches, are copied.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.tensors = {name: value.clone() for name, value in model.state_dict().items()}
        self.decay = decay

    def update(self, model: nn.Module, step: int) -> None:
        """Take the network's weights in, after a step; steps count from 1 over all epochs."""
        averaged, current = [], []
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                averaged.append(self.tensors[name])
                current.append(value)
            else:
                self.tensors[name].copy_(value)
        decay = min(self.decay, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(decay)(averaged, current, None)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on from an average that was stored."""
        for name, value in self.tensors.items():
            value.copy_(tensors[name])

    @contextlib.contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """The network has the averaged weights inside, and its own again after."""
        own = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(self.tensors)
        try:
            yield
        finally:
            model.load_state_dict(own)


def weights_that_count(model: nn.Module, average: Average | None):
    """Within, the network has its averaged weights, if they are kept: those to be evaluated."""
    return contextlib.nullcontext() if average is None else average.applied(model)
