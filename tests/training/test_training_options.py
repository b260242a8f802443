"""What a recipe may ask of training besides: each option does what its formula says."""

import functools
from dataclasses import replace

import pytest
import torch
from helpers.bright_thirds import EVERYTHING, RECIPE, fit_until, same, two_thirds, weights
from helpers.crop_windows import windows
from helpers.fixtures import build_tiny

from capsviz import checkpoint
from capsviz.nn import models
from capsviz.nn.models.capsnet import CapsNet
from capsviz.training import train
from capsviz.training.evaluate import evaluate
from capsviz.training.history import best_epoch, finished, read_history
from capsviz.training.train import build_model, fit, start_from
from capsviz.transforms.augment import to_float

STILL = replace(RECIPE, shift_px=0, schedule="constant")


def one_step(recipe, train, output):
    """Train one batch of all images; the objective's gradients at the initial weights, by name."""
    model = build_model(recipe, train)
    images = to_float(train.images)
    model.objective(model(images), images, train.labels).loss.backward()
    fit(replace(recipe, epochs=1, batch_size=len(train)), train, train, output)
    return {name: p.grad for name, p in model.named_parameters()}, dict(model.named_parameters())


@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["none", "every option"])
@pytest.mark.parametrize("stop", [1, 2])
def test_a_resumed_run_is_bit_equal_to_an_uninterrupted_one(parts, tmp_path, stop, options):
    recipe = replace(RECIPE, epochs=3, **options)
    parts = parts[0], parts[1].crop(recipe.crop_px)
    whole, _ = fit(recipe, *parts, tmp_path / "whole")

    fit_until(stop, recipe, *parts, tmp_path / "cut")
    assert len(read_history(tmp_path / "cut")) == stop
    resumed, _ = fit(recipe, *parts, tmp_path / "cut", resume=True)
    state = weights(tmp_path / "whole")
    assert same(state, weights(tmp_path / "cut"))
    assert same(whole.state_dict(), resumed.state_dict())
    if not options:
        return
    assert same(whole.state_dict(), {k[4:]: v for k, v in state.items() if k.startswith("ema.")})
    assert not same(whole.state_dict(), {k[6:]: v for k, v in state.items() if "model." in k[:6]})


def test_every_option_changes_what_is_trained(parts, tmp_path):
    def trained(name, **option):
        recipe = replace(RECIPE, epochs=2, **option)
        model, _ = fit(recipe, parts[0], parts[1].crop(recipe.crop_px), tmp_path / name)
        return model.state_dict()

    plain = trained("plain")
    assert same(plain, trained("again"))
    without = [k for k, v in EVERYTHING.items() if same(plain, trained(k, **{k: v}))]
    assert without == []


@pytest.mark.parametrize("longest", [0.01, 1e6])
def test_gradients_are_clipped_by_the_norm_of_all_together(parts, tmp_path, longest):
    recipe = replace(STILL, clip_norm=longest)
    gradients, _ = one_step(recipe, parts[0], tmp_path)
    norm = sum(float(g.double().square().sum()) for g in gradients.values()) ** 0.5
    assert 0.01 < norm < 1e6
    state = weights(tmp_path)
    for number, gradient in enumerate(gradients.values()):
        first_moment = 0.1 * gradient * min(1.0, longest / norm)
        torch.testing.assert_close(
            state[f"adam.{number}.exp_avg"], first_moment, rtol=2e-3, atol=1e-9
        )


def test_the_averaged_weights_are_evaluated_and_kept_and_trained_on_is_the_other(parts, tmp_path):
    recipe = replace(RECIPE, epochs=2, ema=0.45)
    expected = {k: v.double() for k, v in build_model(recipe, parts[0]).state_dict().items()}
    model, shown, steps = build_model(recipe, parts[0]), [], []

    def on_step(*_):
        t = len(steps) + 1  # over both epochs
        steps.append(min(0.45, (1 + t) / (10 + t)))
        for name, value in model.state_dict().items():
            expected[name] = steps[-1] * expected[name] + (1 - steps[-1]) * value.double()

    def on_epoch(epoch, network):
        shown.append({k: v.clone() for k, v in network.state_dict().items()})
        assert evaluate(network, parts[1]).margin_loss == epoch.validation_margin_loss

    asked = {"model": model, "on_step": on_step, "on_epoch": on_epoch}
    found, history = fit(recipe, *parts, tmp_path, **asked)
    assert len(steps) == 8 and steps[5] < steps[6] == 0.45
    for name, value in found.state_dict().items():
        torch.testing.assert_close(value.double(), expected[name], rtol=1e-5, atol=1e-7)
    assert same(found.state_dict(), shown[-1])
    (best,) = tmp_path.glob("best-*.safetensors")
    assert same(checkpoint.read_tensors(best)[0], shown[best_epoch(history) - 1])


def spied(monkeypatch):
    """What each call of CapsNet's objective is given, besides the output."""
    objective, calls = CapsNet.objective, []

    @functools.wraps(objective)  # `fit` reads from its signature which terms it knows
    def spy(self, output, *values, **terms):
        calls.append((*values, *terms.values()))
        return objective(self, output, *values, **terms)

    monkeypatch.setattr(CapsNet, "objective", spy)
    return calls


def test_the_reconstruction_factor_falls_geometrically_step_by_step(parts, tmp_path, monkeypatch):
    calls = spied(monkeypatch)
    fit(replace(RECIPE, epochs=2, reconstruction_anneal=0.01), *parts, tmp_path)
    factors = [values[2] for values in calls]
    assert factors == pytest.approx([0.01 ** (step / 8) for step in range(8)])


def test_the_network_is_built_for_the_crop_and_sees_windows_of_the_images(
    parts, tmp_path, monkeypatch
):
    seen = spied(monkeypatch)
    recipe = replace(RECIPE, epochs=1, crop_px=17, shift_px=0)
    model, _ = fit(recipe, parts[0], parts[1].crop(17), tmp_path)
    assert model.config["image_shape"] == (1, 17, 17)
    made = torch.cat([images for images, *_ in seen])
    known = [w for image in to_float(parts[0].images) for w in windows(image, 0, 17).values()]
    known = torch.stack(known)
    assert len(made) == 30
    for image in made:
        assert (known == image).flatten(1).all(1).sum() == 1
    with pytest.raises(ValueError, match="crop_px must be from 1 to 21 for random, got 22"):
        fit(replace(recipe, crop_px=22), *parts, tmp_path / "b")


def test_images_of_several_things_are_trained_on_with_each_thing_alone(
    generator, tmp_path, monkeypatch
):
    several, seen = two_thirds(generator), spied(monkeypatch)
    inputs, forward = [], CapsNet.forward
    monkeypatch.setattr(
        CapsNet, "forward", lambda self, images: inputs.append(images) or forward(self, images)
    )
    recipe = replace(RECIPE, epochs=1, crop_px=19, shift_px=1, flip=True)
    fit(recipe, several, several.crop(19), tmp_path)
    for images, (alone, labels, *_) in zip(inputs[:3], seen, strict=True):
        assert alone.shape == (8, 2, 1, 19, 19) and labels.shape == (8, 2)
        torch.testing.assert_close(images, alone.sum(1))


def test_batches_that_must_stay_whole_are_refused_where_they_do_not_fit(
    parts, tmp_path, monkeypatch
):
    recipe = replace(RECIPE, options={**RECIPE.options, "decoder_norm": True})
    model = build_model(recipe, parts[0])
    assert model.whole_batches
    monkeypatch.setattr("capsviz.memory.available", lambda device: model.training_bytes(8) - 1)
    with pytest.raises(MemoryError, match=r"training step of 8 images .*smaller --batch-size"):
        fit(recipe, *parts, tmp_path, model=model)


@pytest.mark.parametrize("name", ["resnet", "capsnet"])
def test_batch_norm_of_one_image_is_refused_in_every_network(parts, tmp_path, name):
    decoder_norm = {**RECIPE.options, "decoder_norm": True}
    options = {"resnet": {"channels": (2,), "blocks": 1}, "capsnet": decoder_norm}
    recipe = replace(RECIPE, model=name, options=options[name], batch_size=len(parts[0]) - 1)
    with pytest.raises(ValueError, match="batch norm needs at least 2 images at a time"):
        fit(recipe, *parts, tmp_path)


@pytest.mark.parametrize("options", [{"routing": "em"}, {"margin_present": 0.6}])
def test_the_margin_loss_of_training_is_that_of_validation(parts, tmp_path, options):
    still = {"learning_rate": 1e-12, "epochs": 2, "options": {**RECIPE.options, **options}}
    _, history = fit(replace(STILL, **still), parts[0], parts[0], tmp_path)
    for epoch in history:
        assert epoch.train_margin_loss == pytest.approx(epoch.validation_margin_loss, rel=1e-3)


@pytest.fixture
def plateau(monkeypatch):
    """Validation accuracies and losses that are best in epoch 3, whatever is trained."""
    accuracies = [0.5, 0.7, 0.7, 0.6, 0.7, 0.7, 0.7, 0.7]
    losses = [0.3, 0.3, 0.2, 0.1, 0.2, 0.2, 0.4, 0.1]
    calls = []

    def contrived(model, part):
        k = len(calls) % 8
        calls.append(k)
        return evaluate(model, part)._replace(accuracy=accuracies[k], margin_loss=losses[k])

    monkeypatch.setattr(train, "evaluate", contrived)


def test_a_run_stops_after_epochs_without_a_better_one(parts, tmp_path, plateau):
    lines = []
    recipe = replace(RECIPE, epochs=8, early_stop=3, keep="best")
    model, history = fit(recipe, *parts, tmp_path, report=lines.append)
    assert len(history) == 6 and best_epoch(history) == 3  # 4, 5 and 6 are no better
    assert lines == ["stopped early, after epoch 6 of 8: none was better than epoch 3"]
    assert same(model.state_dict(), checkpoint.read_tensors(tmp_path / "best-3.safetensors")[0])
    again, more = fit(recipe, *parts, tmp_path, resume=True, report=lines.append)
    assert more == history and same(again.state_dict(), model.state_dict())
    longer = replace(recipe, early_stop=5)
    _, history = fit(longer, *parts, tmp_path, resume=True)
    assert len(history) == 8 and finished(longer, history)


@pytest.mark.parametrize("keep", ["best", "last"])
def test_a_run_that_would_have_stopped_earlier_is_not_resumed_so(parts, tmp_path, plateau, keep):
    recipe = replace(RECIPE, epochs=8, early_stop=3, keep=keep, schedule="constant")
    fit(recipe, *parts, tmp_path)  # 6 epochs
    for change in ({"early_stop": 2}, {"epochs": 5}):
        with pytest.raises(ValueError, match=f"another recipe .*differs in {next(iter(change))}"):
            fit(replace(recipe, **change), *parts, tmp_path, resume=True)
    assert len(fit(replace(recipe, early_stop=4), *parts, tmp_path, resume=True)[1]) == 7


CARD = {"dataset": {"name": "random"}}


def store(model, path):
    """A checkpoint in half precision, as runs leave it, and what it holds in float32."""
    checkpoint.save(path, model, CARD)
    return {k: v.half().float() for k, v in model.state_dict().items()}


def drawn(classes, seed=1):
    torch.manual_seed(seed)
    return models.build("capsnet", (1, 21, 21), classes, **RECIPE.options)


def test_tensors_of_other_shapes_keep_what_was_drawn_and_are_named(tmp_path):
    stored = store(drawn(5), tmp_path / "a.safetensors")
    model, lines = drawn(3, seed=2), []
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


def test_a_run_starts_from_the_weights_and_needs_them_no_more_when_it_resumes(parts, tmp_path):
    stored = store(drawn(3, seed=7), tmp_path / "a.safetensors")
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
