"""Train on MNIST placed at random on 40x40, stop at a matched accuracy, score on affine maps of it.

The affNIST protocol of Sabour, Frosst & Hinton 2017 (arXiv:1710.09829), section 5.1, for every
network of `NETWORKS`: 28x28 digits padded by 6 pixels and shifted by up to 6 in training, and
nothing else. "Matched": the weights at the first check of the held-out accuracy that reaches the
target. "Full": those of the last epoch. Held out are MNIST's validation images, each shifted once
as in training. Every result is a JSON of its own, so an interrupted series goes on where it
stopped.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from capsviz import checkpoint, data
from capsviz.augment import shift, to_float
from capsviz.data import affnist_like
from capsviz.discovery import unknown
from capsviz.files import write_text
from capsviz.functional import predict
from capsviz.intervals import wilson
from capsviz.pipeline import hardware
from capsviz.provenance import provenance
from capsviz.recipe import Recipe
from capsviz.tracing import images_at_a_time, inference
from capsviz.train import Epoch, build_model, fit

NETWORKS = {  # name of a contender -> its file in capsviz/models and that file's options
    "capsnet": ("capsnet", {"iterations": 3, "reconstruction_weight": 0.01}),
    "capsnet-1": ("capsnet", {"iterations": 1, "reconstruction_weight": 0.01}),
    "cnn": ("cnn", {"kernel": 5}),
    "cnn-9": ("cnn", {"kernel": 9, "padding": "valid"}),
    "average": ("average", {}),
    "resnet": ("resnet", {}),
}
SHIFT_PX = affnist_like.PAD_PX
HELD_OUT_SEED = 1  # of the shifts of validation and test images
STATES = ("matched", "full")
ORIGINALS = 10_000  # MNIST's test images, each of which affnist_like varies in turn
VARIANTS = 32  # of each


@dataclass(frozen=True)
class Plan:
    """What a series shares; whatever of it a result depends on is in the result."""

    folder: Path  # of the results, and below it of the runs
    target: float = 0.9923  # held-out accuracy at which "matched" weights are taken
    checks: int = 4  # of it, in each epoch
    epochs: int = 50  # of a full training
    full: bool = True  # train on after the target is reached
    limit: int | None = None  # images of affnist_like, of 320,000; None: all
    train_limit: int | None = None  # training images, for trials
    precision: str = "auto"

    def __post_init__(self):
        if not 0 < self.target < 1:
            raise ValueError(f"the accuracy to match must be in (0, 1), got {self.target:g}")
        for name in ("checks", "epochs", "limit", "train_limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.limit is not None and self.limit > VARIANTS * ORIGINALS:
            raise ValueError(f"limit: there are {VARIANTS * ORIGINALS} images, got {self.limit}")


class _Reached(Exception):  # noqa: N818 - no error: a way out of the training loop
    """The target was reached."""


def recipe(network: str, seed: int, plan: Plan) -> Recipe:
    """How a contender is trained; ValueError for an unknown one."""
    if network not in NETWORKS:
        raise ValueError(unknown("network", network, list(NETWORKS)))
    model, options = NETWORKS[network]
    return Recipe(
        pad_px=affnist_like.PAD_PX, shift_px=SHIFT_PX, model=model, options=options, seed=seed,
        epochs=plan.epochs, precision=plan.precision, keep="last", limit=plan.train_limit,
    )  # fmt: skip


def held_out(split: str, root=None) -> data.Dataset:
    """Validation or test images of MNIST on 40x40, each shifted once as in training."""
    part = data.load("mnist", split, root, pad_px=affnist_like.PAD_PX)
    generator = torch.Generator().manual_seed(HELD_OUT_SEED)
    return replace(part, images=shift(part.images, SHIFT_PX, generator=generator))


def right(model: nn.Module, dataset: data.Dataset) -> np.ndarray:
    """Which images are read as their class: bool (N,)."""
    device, size = next(model.parameters()).device, images_at_a_time(model)
    found = []
    with inference(model):
        for images, labels in zip(
            dataset.images.split(size), dataset.labels.split(size), strict=True
        ):
            lengths = model(to_float(images.to(device))).lengths
            found.append(predict(lengths).cpu() == labels)
    return torch.cat(found).numpy()


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
    """
    wanted = recipe(network, seed, plan)
    output = plan.folder / "runs" / f"{network}-{seed}"
    output.mkdir(parents=True, exist_ok=True)
    weights = output / "matched.safetensors"
    train = data.load("mnist", "train", root, **wanted.data_options)

    def trained(full: bool) -> tuple[nn.Module, list[Epoch]]:
        model = build_model(wanted, train).to(device)
        check = _Check(model, held_out("validation", root), plan, weights, full, report, on_step)
        return fit(
            wanted, train, check.validation, output, model=model, device=device, resume=True,
            report=report, on_step=check,
            on_epoch=lambda epoch, _: report(f"{network}-{seed}: {_line(epoch)}"),
        )  # fmt: skip

    def store(state: str, model: nn.Module, about: dict) -> None:
        found = {"network": network, "seed": seed, "state": state, "target": plan.target}
        found |= {"training": about, "recipe": asdict(wanted), **score(model, plan, root)}
        found["provenance"] = provenance(None, str(device))
        found["hardware"] = hardware(torch.device(device))
        write_text(result_path(plan.folder, network, seed, state), json.dumps(found) + "\n")
        report(
            f"{network}-{seed}, {state}: {found['affnist_like']['accuracy']:.2%} of affnist_like"
        )

    if not result_path(plan.folder, network, seed, "matched").exists():
        if not weights.exists():
            with contextlib.suppress(_Reached):
                trained(full=False)
        if weights.exists():
            tensors, about = checkpoint.read_tensors(weights)
            model = build_model(wanted, train).to(device)
            model.load_state_dict(tensors)
            store("matched", model, json.loads(about["about"]))
        else:
            report(f"{network}-{seed}: {plan.target:.2%} was not reached in {plan.epochs} epochs")
    if plan.full and not result_path(plan.folder, network, seed, "full").exists():
        model, history = trained(full=True)
        seconds = sum(epoch.seconds for epoch in history)
        store("full", model, {"epoch": len(history), "step": None, "seconds": seconds})


class _Check:
    """Given to `fit` as `on_step`: the first weights that reach the target are kept."""

    def __init__(self, model, validation, plan, weights, full, report, on_step):
        self.model, self.validation, self.plan, self.weights = model, validation, plan, weights
        self.full, self.report, self.on_step = full, report, on_step

    def __call__(self, epoch: int, step: int, steps: int, loss, accuracy) -> None:
        self.on_step(epoch, step, steps, loss, accuracy)
        at = [max(1, steps * (k + 1) // self.plan.checks) for k in range(self.plan.checks)]
        if self.weights.exists() or step not in at:
            return
        found = float(right(self.model, self.validation).mean())
        self.report(f"epoch {epoch}, step {step} of {steps}: held-out accuracy {found:.2%}")
        if found >= self.plan.target:
            about = json.dumps({"epoch": epoch, "step": step, "steps": steps})
            checkpoint.write_tensors(self.weights, self.model.state_dict(), {"about": about})
            if not self.full:
                raise _Reached


def score(model: nn.Module, plan: Plan, root=None) -> dict:
    """What a result says of trained weights: held-out, test and affine accuracy."""
    found = {"parameters": sum(p.numel() for p in model.parameters())}
    for name, split in (("held_out", "validation"), ("test", "test")):
        found[name] = _accuracy(right(model, held_out(split, root)))
    made = like(plan.limit, root)
    hits = right(model, made)
    found["affnist_like"] = {**_accuracy(hits), "right": pack(hits), "spec": affnist_like.SPEC}
    try:
        real = data.load("affnist", "test", root).first(plan.limit)
    except FileNotFoundError:
        found["affnist"] = None
    else:
        hits = right(model, real)
        found["affnist"] = {**_accuracy(hits), "right": pack(hits)}
    return found


@functools.cache
def like(limit: int | None, root=None) -> data.Dataset:
    """The first images of affnist_like's test split: one of each original, then another."""
    n = len(data.load("mnist", "test", root))
    whole = VARIANTS * n if limit is None else limit
    return data.load("affnist_like", "test", root, variants=max(1, -(-whole // n))).first(whole)


def _accuracy(hits: np.ndarray) -> dict:
    k, n = int(hits.sum()), len(hits)
    return {"n": n, "accuracy": k / n, "accuracy_ci95": wilson(k, n)}


def _line(epoch: Epoch) -> str:
    return (
        f"epoch {epoch.epoch}, loss {epoch.train_loss:.4f}, "
        f"held-out accuracy {epoch.validation_accuracy:.2%}, {epoch.seconds:.0f} s"
    )


def result_path(folder: Path, network: str, seed: int, state: str) -> Path:
    """Where the result of one contender lies."""
    return folder / f"{network}-{seed}-{state}.json"


def pack(hits: np.ndarray) -> str:
    """bool (N,) as base64, eight images to a byte."""
    return base64.b64encode(np.packbits(hits)).decode()


def unpack(text: str, n: int) -> np.ndarray:
    """What `pack` packed: bool (n,)."""
    return np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8))[:n].astype(bool)


def read(folder: Path) -> list[dict]:
    """The results in a folder, in the order of `NETWORKS`, then seed, then state."""
    found = []
    for path in sorted(folder.glob("*-*-*.json")):
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            order = (list(NETWORKS).index(result["network"]), result["seed"], result["state"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a result of this series: {error}") from error
        found.append((order, result))
    return [result for _, result in sorted(found, key=lambda pair: pair[0])]
