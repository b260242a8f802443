"""Build the optimiser, learning rate schedules and averaged weights of a training run."""

import contextlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from capsviz.training.recipe import Recipe

FLOOR = 1e-6  # least learning rate, as in the authors' code


def build_optimiser(model: nn.Module, recipe: Recipe) -> torch.optim.Adam:
    """Return Adam; the decoder is a separate group if its learning rate or weight decay differ.

    Weight decay is Adam's L2 penalty (weight_decay * w is added to the gradient of w before the
    moments), not AdamW's. "initial_lr" is a group's rate before schedule and warm-up.
    """
    usual = (recipe.learning_rate, recipe.weight_decay)
    decoder = dict(model.named_children()).get("decoder")
    rate, decay = recipe.decoder_learning_rate, recipe.decoder_weight_decay
    of_decoder = (usual[0] if rate is None else rate, usual[1] if decay is None else decay)
    groups = [(list(model.parameters()), *usual)]
    if decoder is not None and of_decoder != usual:
        decoder_weights = set(decoder.parameters())
        groups = [([p for p in model.parameters() if p not in decoder_weights], *usual)]
        groups += [(list(decoder.parameters()), *of_decoder)]
    options = [
        {"params": params, "lr": rate, "initial_lr": rate, "weight_decay": decay}
        for params, rate, decay in groups
    ]
    return torch.optim.Adam(options, fused=True)


def parameters(optimiser: torch.optim.Optimizer) -> list[nn.Parameter]:
    """Return all parameters in the optimiser's order."""
    return [p for group in optimiser.param_groups for p in group["params"]]


def set_learning_rates(
    optimiser: torch.optim.Optimizer, recipe: Recipe, progress: float, steps: int
) -> None:
    """Set each group's learning rate after `progress` epochs of `steps` steps each."""
    for group in optimiser.param_groups:
        group["lr"] = learning_rate(recipe, progress, steps, full=group["initial_lr"])


def learning_rate(
    recipe: Recipe, progress: float, steps: int, *, full: float | None = None
) -> float:
    """Return the learning rate after `progress` epochs of `steps` steps each; at least 1e-6.

    During warm-up, the schedule's rate is multiplied by the elapsed share of the warm-up. `full` is
    the rate before schedule and warm-up; None: the recipe's.
    """
    full = recipe.learning_rate if full is None else full
    if recipe.schedule == "linear":
        factor = 1 - progress / recipe.epochs
    elif recipe.schedule == "cosine":
        factor = (1 + math.cos(math.pi * progress / recipe.epochs)) / 2
    elif recipe.schedule == "constant":
        factor = 1.0
    else:
        factor = recipe.lr_decay ** (progress * steps / recipe.lr_decay_steps)
    if progress < recipe.warmup_epochs:
        factor *= progress / recipe.warmup_epochs
    return max(full * factor, min(FLOOR, full))


def reconstruction_factor(recipe: Recipe, progress: float) -> float:
    """Return the factor of the reconstruction loss after `progress` epochs: geometric, from 1."""
    return recipe.reconstruction_anneal ** (progress / recipe.epochs)


class Average:
    """Exponential moving average of a network's weights: a <- decay * a + (1 - decay) * w.

    It starts at the current weights. After step t, the decay is at most (1 + t) / (10 + t), as in
    TensorFlow's ExponentialMovingAverage with `num_updates`. Running statistics of batch norm are
    averaged in the same way; integer buffers are copied.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.tensors = {name: value.clone() for name, value in model.state_dict().items()}
        self.decay = decay

    def update(self, model: nn.Module, step: int) -> None:
        """Update the average after a step; steps count from 1 over all epochs."""
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
        """Continue from a stored average."""
        for name, value in self.tensors.items():
            value.copy_(tensors[name])

    @contextlib.contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Give the network the averaged weights within this context."""
        own = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(self.tensors)
        try:
            yield
        finally:
            model.load_state_dict(own)


def weights_that_count(model: nn.Module, average: Average | None):
    """Return a context in which the network has the weights to evaluate: the average, if any."""
    return contextlib.nullcontext() if average is None else average.applied(model)
