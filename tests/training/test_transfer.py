"""Starting from other weights: what fits is taken, what does not is said."""

from dataclasses import replace

import pytest
import torch
from conftest import build_tiny
from helpers.bright_thirds import RECIPE, fit_until, one_third, weights

from capsviz import checkpoint
from capsviz.nn import models
from capsviz.training.train import build_model, fit, start_from

CARD = {"dataset": {"name": "random"}}


def store(model, path):
    """A checkpoint in half precision, as runs leave it, and what it holds in float32."""
    checkpoint.save(path, model, CARD)
    return {k: v.half().float() for k, v in model.state_dict().items()}


def build(classes, seed=1):
    torch.manual_seed(seed)
    return models.build("capsnet", (1, 21, 21), classes, **RECIPE.options)


def test_tensors_of_other_shapes_keep_what_was_drawn_and_are_named(tmp_path):
    stored = store(build(5), tmp_path / "a.safetensors")
    model, lines = build(3, seed=2), []
    before = {k: v.clone() for k, v in model.state_dict().items()}
    taken = start_from(model, tmp_path, lines.append)
    unlike = {k for k, v in before.items() if stored[k].shape != v.shape}
    assert unlike and set(taken) == set(before) - unlike
    assert {"conv1.weight", "conv1.bias"} <= set(taken) and "capsules.weight" in unlike
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name] if name in unlike else stored[name]), name
    assert set(lines[0].split("as no shape or name fits: ")[1].split(", ")) == unlike


def test_a_network_that_shares_nothing_is_refused(tmp_path):
    store(models.build("resnet", (1, 21, 21), 3), tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=r"no weights of .*a.safetensors fit this network"):
        start_from(build_tiny(), tmp_path)


def test_a_run_starts_from_the_weights_and_needs_them_no_more_when_it_resumes(tmp_path, generator):
    parts = one_third(generator)
    stored = store(build(3, seed=7), tmp_path / "a.safetensors")
    recipe = replace(RECIPE, epochs=2, init_from=str(tmp_path / "a.safetensors"))
    recipe = replace(recipe, learning_rate=1e-9, schedule="constant")
    assert not torch.equal(build_model(recipe, parts[0]).conv1.weight, stored["conv1.weight"])

    fit_until(1, recipe, *parts, tmp_path / "run")
    seen = weights(tmp_path / "run")
    for name, value in stored.items():  # 4 steps of 1e-9 each
        torch.testing.assert_close(seen[f"model.{name}"], value, rtol=0, atol=1e-7)
    (tmp_path / "a.safetensors").unlink()
    _, history = fit(recipe, *parts, tmp_path / "run", resume=True)
    assert len(history) == 2
