"""Training: it learns, it resumes to the same weights, it survives kills, it refuses mixed runs."""

from __future__ import annotations

import csv
import os
import random
import signal
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest
import torch
from helpers import command_line
from helpers.bright_thirds import EVERYTHING, RECIPE, same, weights
from helpers.distributed_ranks import Ranks, capsviz
from helpers.fixtures import build_tiny
from helpers.training_runs import stop_after_saving

from capsviz import checkpoint
from capsviz.files import LOCK
from capsviz.nn.models.capsnet import CapsNet
from capsviz.training.history import STATE, best_epoch, read_history
from capsviz.training.train import build_model, fit


def test_training_learns_what_can_be_learned(parts, tmp_path):
    recipe = replace(RECIPE, epochs=15, learning_rate=3e-3, shift_px=1)
    _, history = fit(recipe, *parts, tmp_path)
    assert history[-1].validation_accuracy > 0.9
    assert history[-1].train_loss < history[0].train_loss


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(parts, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        fit(replace(RECIPE, epochs=1, seed=seed), *parts, tmp_path / name)
    a, b, c = (weights(tmp_path / name) for name in "abc")
    assert same(a, b) and not same(a, c)


def test_the_global_random_state_is_neither_read_nor_changed(parts, tmp_path):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    fit(replace(RECIPE, epochs=1), *parts, tmp_path / "a")
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    fit(replace(RECIPE, epochs=1), *parts, tmp_path / "b")
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))


def test_the_csv_has_a_line_for_every_epoch(parts, tmp_path):
    _, history = fit(RECIPE, *parts, tmp_path)
    with open(tmp_path / "epochs.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [int(line["epoch"]) for line in lines] == [1, 2, 3, 4]
    assert float(lines[2]["train_loss"]) == history[2].train_loss
    whole = 4 * RECIPE.epochs  # steps
    assert history[-1].learning_rate == pytest.approx(RECIPE.learning_rate / whole)  # of the last


@pytest.mark.parametrize("weight", [0.0, 0.01])
def test_the_record_holds_the_parts_of_the_training_loss(parts, tmp_path, weight):
    options = {**RECIPE.options, "reconstruction_weight": weight}
    _, (epoch, *_) = fit(replace(RECIPE, epochs=1, options=options), *parts, tmp_path)
    assert (epoch.train_reconstruction_loss is None) == (weight == 0)
    reconstruction = epoch.train_reconstruction_loss or 0.0
    assert 0 < epoch.train_margin_loss < 1
    whole = epoch.train_margin_loss + weight * reconstruction
    assert epoch.train_loss == pytest.approx(whole, rel=1e-5)


def test_a_run_can_be_lengthened_unless_its_schedule_ends_with_it(parts, tmp_path):
    short = replace(RECIPE, schedule="exponential", epochs=1)
    fit(short, *parts, tmp_path / "a")
    longer = replace(short, epochs=3)
    lengthened, _ = fit(longer, *parts, tmp_path / "a", resume=True)
    whole, _ = fit(longer, *parts, tmp_path / "b")
    for a, b in zip(lengthened.parameters(), whole.parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(ValueError, match=r"another recipe .*epochs"):  # nor shortened
        fit(short, *parts, tmp_path / "a", resume=True)
    fit(replace(short, schedule="linear"), *parts, tmp_path / "c")
    with pytest.raises(ValueError, match=r"another recipe .*epochs"):
        fit(replace(longer, schedule="linear"), *parts, tmp_path / "c", resume=True)


@pytest.mark.parametrize(("objective", "refused"), [("spread", True), ("cross_entropy", False)])
def test_a_run_is_not_lengthened_whose_loss_grows_stricter_up_to_its_end(
    parts, tmp_path, objective, refused
):
    options = {**RECIPE.options, "objective": objective}
    short = replace(RECIPE, schedule="constant", epochs=1, options=options)
    fit(short, *parts, tmp_path)
    with pytest.raises(ValueError, match="another recipe") if refused else nullcontext():
        fit(replace(short, epochs=2), *parts, tmp_path, resume=True)


def test_a_run_does_not_change_its_precision_without_a_word(parts, tmp_path, monkeypatch):
    monkeypatch.setattr("capsviz.training.history.resolve_precision", lambda asked, device: "bf16")
    automatic = replace(RECIPE, precision="auto", schedule="constant", epochs=1)
    fit(automatic, *parts, tmp_path)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"a run in bf16, .* on in fp32: .*--precision bf16"):
        fit(replace(automatic, precision="fp32", epochs=2), *parts, tmp_path, resume=True)
    longer = replace(automatic, precision="bf16", epochs=2)
    assert len(fit(longer, *parts, tmp_path, resume=True)[1]) == 2


def test_a_run_is_not_overwritten_and_not_mixed_with_another(parts, tmp_path):
    fit(replace(RECIPE, epochs=1), *parts, tmp_path)
    with pytest.raises(ValueError, match="--resume"):
        fit(replace(RECIPE, epochs=1), *parts, tmp_path)
    with pytest.raises(ValueError, match=r"another recipe .*learning_rate"):
        fit(replace(RECIPE, epochs=1, learning_rate=0.1), *parts, tmp_path, resume=True)


def test_the_best_epoch_is_chosen_on_validation_and_its_weights_are_returned(parts, tmp_path):
    model, history = fit(replace(RECIPE, keep="best"), *parts, tmp_path)
    (best,) = tmp_path.glob("best-*.safetensors")
    assert best.name == f"best-{best_epoch(history)}.safetensors"
    assert same(model.state_dict(), checkpoint.read_tensors(best)[0])
    assert history[best_epoch(history) - 1].validation_accuracy == max(
        epoch.validation_accuracy for epoch in history
    )


@pytest.mark.parametrize(
    ("value", "name", "said"),
    [
        (float("nan"), "primary.convolution.bias", "the weights primary.convolution.bias"),
        (1e38, "conv1.weight", "the output of (conv1|primary.convolution|primary)"),
    ],
)
def test_the_first_tensor_that_is_not_finite_is_named_in_the_step(
    parts, tmp_path, value, name, said
):
    model, steps = build_model(RECIPE, parts[0]), []

    def spoil(epoch, step, *_):
        steps.append(step)
        if step == 2:
            dict(model.named_parameters())[name].data.fill_(value)

    with pytest.raises(ArithmeticError, match=f"in step 3 of epoch 1; not finite: {said}"):
        fit(RECIPE, *parts, tmp_path, model=model, on_step=spoil)
    assert steps == [1, 2]


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_epoch(
    parts, tmp_path, monkeypatch
):
    fit(replace(RECIPE, epochs=1), *parts, tmp_path / "a")
    network = type(build_tiny())
    objective = network.objective

    def broken(self, output, images, labels):
        found = objective(self, output, images, labels)
        return found._replace(loss=found.loss * float("nan"))

    monkeypatch.setattr(network, "objective", broken)
    said = "nan in step 1 of epoch 1; not finite: the loss alone.* a lower --learning-rate"
    with pytest.raises(ArithmeticError, match=said):
        fit(replace(RECIPE, epochs=1), *parts, tmp_path / "b")
    assert read_history(tmp_path / "b") == []


def test_a_batch_that_does_not_fit_is_computed_in_parts(parts, tmp_path, monkeypatch):
    whole, _ = fit(RECIPE, *parts, tmp_path / "whole")
    lines = []
    monkeypatch.setattr("capsviz.memory.available", lambda device: whole.training_bytes(3))
    objective, seen = CapsNet.objective, []

    def spy(self, output, images, labels):
        seen.append(len(images))
        return objective(self, output, images, labels)

    monkeypatch.setattr(CapsNet, "objective", spy)
    split, _ = fit(RECIPE, *parts, tmp_path / "split", report=lines.append)
    assert len(lines) == 1 and "a batch of 8 needs" in lines[0]
    assert lines[0].endswith("it is computed 2 images at a time")
    assert max(seen) == 2 and sum(seen) == RECIPE.epochs * len(parts[0])
    for a, b in zip(whole.parameters(), split.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_a_network_that_fits_not_even_one_image_is_refused(parts, tmp_path, monkeypatch):
    monkeypatch.setattr("capsviz.memory.available", lambda device="cpu": 20_000)
    with pytest.raises(MemoryError, match=r"a training step of 1 image needs .* are free: choose"):
        fit(RECIPE, *parts, tmp_path)
    assert not (tmp_path / STATE).exists()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("options", [{}, EVERYTHING])
def test_no_step_waits_for_the_gpu(parts, tmp_path, options):
    def on_step(epoch, step, steps, loss, accuracy):
        torch.cuda.set_sync_debug_mode("default" if step == steps else "error")

    try:
        recipe = replace(RECIPE, epochs=2, **options)
        validation = parts[1].crop(recipe.crop_px)
        fit(recipe, parts[0], validation, tmp_path, device="cuda", on_step=on_step)
    finally:
        torch.cuda.set_sync_debug_mode("default")


TRAIN = [
    *("train", "--dataset", "digits", "--types", "2", "--channels", "8", "--limit", "320"),
    *("--epochs", "8", "--precision", "fp32", "--schedule", "linear", "--resume"),
]


def train(folder):
    """A process that trains or goes on, and can be killed."""
    return Ranks(partial(capsviz, *TRAIN, "--output", folder), folder.parent, size=1)


def finish(run):
    assert run.wait() == [0], run.printed("err")


@pytest.mark.slow
def test_a_run_that_is_killed_at_random_moments_ends_with_the_same_weights(tmp_path):
    kills = int(os.environ.get("CAPSVIZ_KILLS", 1))
    finish(train(tmp_path / "whole"))
    seconds = read_history(tmp_path / "whole")[-1].seconds
    moments = random.Random(0)
    for epoch in range(1, kills + 1):  # after this one has ended
        run = train(tmp_path / "killed")
        while len(done := read_history(tmp_path / "killed")) < min(epoch, 5):
            assert run.processes[0].is_alive(), run.printed("err")
            time.sleep(0.005)
        time.sleep(moments.uniform(0, 1) * seconds)
        run.processes[0].kill()
        assert run.wait() == [-signal.SIGKILL], "it ended before it was killed"
    finish(train(tmp_path / "killed"))
    assert read_history(tmp_path / "killed")[: len(done)] == done, "nothing was trained twice"
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    hidden = {path.name for path in (tmp_path / "killed").glob(".*")}
    assert hidden <= {LOCK}, "half-written files are cleared away"
    digests = [checkpoint.sha256(tmp_path / k / "digits.safetensors") for k in ("whole", "killed")]
    assert digests[0] == digests[1]


def test_an_interrupt_says_how_to_resume(tmp_path, monkeypatch):
    stop_after_saving(monkeypatch)
    monkeypatch.setattr(sys, "argv", ["capsviz", "train", "--dataset", "digits"])
    run = command_line.run(*TRAIN, "--output", tmp_path / "run")
    assert run.exit_code == 1 and "Traceback" not in run.stderr
    assert run.stderr.endswith("Resume with: capsviz train --dataset digits --resume\n")
