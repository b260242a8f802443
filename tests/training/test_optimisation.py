"""Optimisation: schedules, groups and averages against the formulas, by hand."""

from itertools import pairwise

import pytest
import torch
from helpers.fixtures import build_tiny
from torch import nn

from capsviz.training.optimisation import (
    FLOOR,
    Average,
    build_optimiser,
    learning_rate,
    parameters,
    set_learning_rates,
)
from capsviz.training.recipe import Recipe

STEPS = 430  # of an epoch


@pytest.mark.parametrize("batch", [16, 128, 1000])
def test_the_authors_decay_is_096_every_2000_steps_whatever_the_batch(batch):
    steps = -(-55_000 // batch)
    for step in (0, 1000, 2000, 7000):
        rate = learning_rate(Recipe(), step / steps, steps)
        assert rate == pytest.approx(1e-3 * 0.96 ** (step / 2000), rel=1e-12)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_schedules_start_full_end_at_the_floor_and_never_rise(schedule):
    recipe = Recipe(epochs=10, schedule=schedule)
    rates = [learning_rate(recipe, t / 10, STEPS) for t in range(101)]
    assert rates[0] == 1e-3 and rates[-1] == FLOOR
    assert all(a >= b for a, b in pairwise(rates))


@pytest.mark.parametrize("schedule", ["exponential", "linear", "cosine", "constant"])
def test_the_warm_up_rises_linearly_to_the_schedule_and_then_leaves_it_alone(schedule):
    plain = Recipe(epochs=10, schedule=schedule)
    warm = Recipe(epochs=10, schedule=schedule, warmup_epochs=2.5)
    assert learning_rate(warm, 0, STEPS) == FLOOR
    for t in (0.5, 1.0, 2.0):
        expected = learning_rate(plain, t, STEPS) * t / 2.5
        assert learning_rate(warm, t, STEPS) == pytest.approx(expected, rel=1e-12)
    for t in (2.5, 3.0, 10.0):
        assert learning_rate(warm, t, STEPS) == learning_rate(plain, t, STEPS)


def test_all_weights_are_one_group_in_their_own_order_where_the_decoder_does_not_differ():
    model = build_tiny()
    for recipe in (Recipe(), Recipe(decoder_learning_rate=1e-3, decoder_weight_decay=0.0)):
        optimiser = build_optimiser(model, recipe)
        assert len(optimiser.param_groups) == 1
        assert all(a is b for a, b in zip(parameters(optimiser), model.parameters(), strict=True))


def test_the_schedule_is_a_factor_on_each_groups_own_rate():
    recipe = Recipe(
        epochs=10, schedule="linear", decoder_learning_rate=8e-3, warmup_epochs=1, weight_decay=0.1
    )
    optimiser = build_optimiser(build_tiny(), recipe)
    for progress, factor in ((0.5, 0.95 * 0.5), (3.0, 0.7), (9.0, 0.1)):
        set_learning_rates(optimiser, recipe, progress, STEPS)
        rates = [group["lr"] for group in optimiser.param_groups]
        assert rates == pytest.approx([1e-3 * factor, 8e-3 * factor], rel=1e-12)


def test_steps_are_adams_with_the_decay_in_the_gradient(generator):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = nn.Linear(3, 2), nn.Linear(2, 1)

    model = Pair()
    recipe = Recipe(
        learning_rate=0.01, weight_decay=0.1, decoder_learning_rate=0.05, decoder_weight_decay=0.3
    )
    optimiser = build_optimiser(model, recipe)
    terms = {name: (0.01, 0.1) if "encoder" in name else (0.05, 0.3) for name in dict(
        model.named_parameters())}  # fmt: skip
    expected = {name: p.detach().double().clone() for name, p in model.named_parameters()}
    first = {name: torch.zeros_like(p) for name, p in expected.items()}
    second = {name: torch.zeros_like(p) for name, p in expected.items()}
    for step in range(1, 5):
        for name, p in model.named_parameters():
            p.grad = torch.randn(p.shape, generator=generator)
            rate, decay = terms[name]
            g = p.grad.double() + decay * expected[name]
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.999 * second[name] + 0.001 * g * g
            m, v = first[name] / (1 - 0.9**step), second[name] / (1 - 0.999**step)
            expected[name] = expected[name] - rate * m / (v.sqrt() + 1e-8)
        optimiser.step()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.double(), expected[name], rtol=1e-4, atol=1e-6)


def test_the_average_follows_the_recursion_statistics_of_batch_norm_included(generator):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).train()
    average = Average(model, 0.8)
    expected = {k: v.double().clone() for k, v in model.state_dict().items()}
    for step, decay in ((1, 2 / 11), (2, 3 / 12), (100, 0.8)):  # 101 / 110 is more than 0.8
        model(torch.randn(5, 3, generator=generator))
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn(p.shape, generator=generator))
        average.update(model, step)
        for name, value in model.state_dict().items():
            expected[name] = decay * expected[name] + (1 - decay) * value.double()
    assert int(average.tensors.pop("1.num_batches_tracked")) == 3
    assert float(average.tensors["1.running_mean"].abs().sum()) > 0
    for name, value in average.tensors.items():
        torch.testing.assert_close(value.double(), expected[name], rtol=1e-5, atol=1e-6)
