"""Train on MNIST placed at random on 40x40, stop at a matched accuracy, score on affine maps of it.

The affNIST protocol of Sabour, Frosst & Hinton 2017 (arXiv:1710.09829), section 5.2, for every
network of `NETWORKS`: 28x28 digits padded by 6 pixels and shifted by up to 6 in training, and
nothing else. "Matched": the weights at the first check of the held-out accuracy that reaches the
target. "Full": those of the last epoch. Held out are MNIST's validation images, each shifted once
as in training; as the first of many checks above a line, the matched held-out accuracy flatters,
and how well networks match is to be read from the shifted test images. Every result is a JSON of
its own, so an interrupted series goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from capsviz import data
from capsviz.checkpoint.tensors import read_tensors, write_tensors
from capsviz.data import affnist_like
from capsviz.discovery import unknown
from capsviz.experiments.affnist.results import (
    NETWORKS,
    agree,
    begin,
    complete,
    read,
    result_path,
)
from capsviz.experiments.affnist.scores import (
    ORIGINALS,
    SHIFT_PX,
    VARIANTS,
    held_out,
    real,
    right,
    score,
)
from capsviz.files import clear, locked, write_text
from capsviz.provenance import hardware, provenance
from capsviz.training.optimisation import Average, weights_that_count
from capsviz.training.recipe import Precision, Recipe, resolve_precision
from capsviz.training.record import Epoch
from capsviz.training.train import build_model, fit

__all__ = ["NETWORKS", "STATES", "Plan", "read", "recipe", "result_path", "run", "terms"]

STATES = ("matched", "full")
APART = ("epochs", "limit")  # terms in which a run may go on otherwise than it began


@dataclass(frozen=True)
class Plan:
    """What a series shares; each result holds its `terms`."""

    folder: Path  # of the results, and below it of the runs
    target: float = 0.9923  # held-out accuracy at which "matched" weights are taken
    checks: int = 4  # of it, in each epoch
    epochs: int = 50  # of a full training
    batch_size: int = 128  # the authors'; smaller ones take fewer epochs to the target
    ema: float | None = None  # decay of averaged weights; they take fewer epochs to the target
    full: bool = True  # train on after the target is reached
    limit: int | None = None  # images of affnist_like, of 320,000; None: all
    train_limit: int | None = None  # training images, for trials
    precision: Precision = "auto"

    def __post_init__(self):
        if not 0 < self.target < 1:
            raise ValueError(f"the accuracy to match must be in (0, 1), got {self.target:g}")
        for name in ("checks", "epochs", "batch_size", "limit", "train_limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.limit is not None and self.limit > VARIANTS * ORIGINALS:
            raise ValueError(f"limit: there are {VARIANTS * ORIGINALS} images, got {self.limit}")

    @property
    def n(self) -> int:
        """Images of affnist_like."""
        return VARIANTS * ORIGINALS if self.limit is None else self.limit


def terms(plan: Plan, device: torch.device | str) -> dict:
    """What a result depends on, beside network and seed."""
    shared = {k: v for k, v in vars(plan).items() if k not in ("folder", "full")}
    return shared | {"precision": resolve_precision(plan.precision, torch.device(device))}


class _Reached(Exception):  # noqa: N818 - no error: a way out of the training loop
    """The target was reached."""


def recipe(network: str, seed: int, plan: Plan) -> Recipe:
    """How a contender is trained; ValueError for an unknown one."""
    if network not in NETWORKS:
        raise ValueError(unknown("network", network, list(NETWORKS)))
    model, options = NETWORKS[network]
    return Recipe(
        pad_px=affnist_like.PAD_PX, shift_px=SHIFT_PX, model=model, options=options, seed=seed,
        epochs=plan.epochs, batch_size=plan.batch_size, ema=plan.ema, precision=plan.precision,
        keep="last", limit=plan.train_limit,
    )  # fmt: skip


def run(
    network: str,
    seed: int,
    plan: Plan,
    *,
    root=None,
    device: torch.device | str = "cpu",
    report: Callable[[str], None] = lambda line: None,
    on_step: Callable = lambda *values: None,
) -> None:
    """Train one contender from one seed and score it; what is there already is not made again.

    Parameters
    ----------
    root     folder of the data; None as in `data.load`.
    report   is given a line for each check, epoch and result.
    on_step  as `train.fit` calls it.

    Raises
    ------
    ValueError       if the folder holds results, or a run begun, on other terms; a full training
                     may be lengthened.
    BlockingIOError  if another process is training this contender there.
    """
    settings, output = recipe(network, seed, plan), plan.folder / "runs" / f"{network}-{seed}"
    with locked(output):
        _run(network, seed, plan, settings, output, root, device, report, on_step)


def _run(network, seed, plan, settings, output, root, device, report, on_step) -> None:
    """`run`, in a folder that no other process writes to."""
    conditions, weights = terms(plan, device), output / "matched.safetensors"
    matched, full = (result_path(plan.folder, network, seed, state) for state in STATES)
    clear(output, weights.name, "terms.json")
    clear(plan.folder, matched.name, full.name)
    have_matched = complete(matched, conditions, ("epochs",))
    have_full = not plan.full or complete(full, conditions, ())
    if have_matched and have_full:
        return
    train = data.load("mnist", "train", root, **settings.data_options)
    validation = held_out("validation", root)
    real(plan.limit, root)  # whatever is wrong with its files is said now
    begin(output, conditions, APART)

    def trained(to_the_end: bool) -> tuple[nn.Module, list[Epoch]]:
        model = build_model(settings, train).to(device)
        average = None if settings.ema is None else Average(model, settings.ema)
        check = _Check(model, average, validation, conditions, weights, to_the_end, report, on_step)
        return fit(
            settings, train, validation, output, model=model, average=average, device=device,
            resume=True, report=report, on_step=check,
            on_epoch=lambda epoch, _: report(f"{network}-{seed}: {_line(epoch)}"),
        )  # fmt: skip

    def store(path: Path, state: str, model: nn.Module, about: dict) -> None:
        scores = score(model, plan.limit, root)
        result = {"network": network, "seed": seed, "state": state, "terms": conditions}
        result |= {"training": about, "recipe": asdict(settings), **scores}
        result["provenance"] = provenance(None, str(device))
        result["hardware"] = hardware(torch.device(device))
        write_text(path, json.dumps(result) + "\n")
        accuracy = scores["affnist_like"]["accuracy"]
        report(f"{network}-{seed}, {state}: {accuracy:.2%} of affnist_like")

    if not have_matched:
        if not weights.exists():
            with contextlib.suppress(_Reached):
                trained(to_the_end=False)
        if weights.exists():
            tensors, about = read_tensors(weights)
            about = json.loads(about["about"])
            agree(weights, about["terms"], conditions, APART)
            model = build_model(settings, train).to(device)
            model.load_state_dict(tensors)
            store(matched, "matched", model, about["training"])
        else:
            report(f"{network}-{seed}: {plan.target:.2%} was not reached in {plan.epochs} epochs")
    if not have_full:
        model, history = trained(to_the_end=True)
        seconds = sum(epoch.seconds for epoch in history)
        store(full, "full", model, {"epoch": len(history), "step": None, "seconds": seconds})


class _Check:
    """Given to `fit` as `on_step`: the first weights that reach the target are kept."""

    def __init__(self, model, average, validation, terms, weights, to_the_end, report, on_step):
        self.model, self.average, self.validation = model, average, validation
        self.terms, self.weights = terms, weights
        self.to_the_end, self.report, self.on_step = to_the_end, report, on_step

    def __call__(self, epoch: int, step: int, steps: int, loss, accuracy) -> None:
        self.on_step(epoch, step, steps, loss, accuracy)
        checks = self.terms["checks"]
        at = [max(1, steps * (k + 1) // checks) for k in range(checks)]
        if self.weights.exists() or step not in at:
            return
        with weights_that_count(self.model, self.average):
            held_out_accuracy = float(right(self.model, self.validation).mean())
            reached = held_out_accuracy >= self.terms["target"]
            if reached:
                training = {"epoch": epoch, "step": step, "steps": steps}
                about = json.dumps({"training": training, "terms": self.terms})
                write_tensors(self.weights, self.model.state_dict(), {"about": about})
        self.report(
            f"epoch {epoch}, step {step} of {steps}: held-out accuracy {held_out_accuracy:.2%}"
        )
        if reached and not self.to_the_end:
            raise _Reached


def _line(epoch: Epoch) -> str:
    return (
        f"epoch {epoch.epoch}, loss {epoch.train_loss:.4f}, "
        f"held-out accuracy {epoch.validation_accuracy:.2%}, {epoch.seconds:.0f} s"
    )
