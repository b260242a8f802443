"""Train on shifted MNIST, stop at a matched accuracy, and score on affine variants of it.

The affNIST protocol of Sabour, Frosst & Hinton 2017 (arXiv:1710.09829), section 5.2, for each
network of `NETWORKS`. In training, digits of 28x28 are padded by 6 pixels and shifted by up to 6;
there is no other augmentation. "Matched" weights come from the first check whose held-out accuracy
reaches the target, "full" weights from the last epoch. The held-out images are MNIST's validation
images, each shifted once as in training. The matched held-out accuracy is optimistic, because the
check is selected by it: compare networks on shifted test images. Each result is a JSON file, so an
interrupted series resumes where it stopped.
"""

import base64
import contextlib
import functools
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import nn

from capsviz import data, discovery
from capsviz.checkpoint import SHIPPED, read_tensors, write_tensors
from capsviz.data import affnist_like
from capsviz.files import LOCK, clear, locked, write_text
from capsviz.nn.functional import predict
from capsviz.provenance import hardware, provenance
from capsviz.statistics.intervals import wilson
from capsviz.tracing import scores
from capsviz.training.history import Epoch
from capsviz.training.optimisation import Average, weights_that_count
from capsviz.training.recipe import Inside, Precision, Recipe, resolve_precision
from capsviz.training.train import build_model, fit
from capsviz.transforms.augment import shift, to_float
from capsviz.validation import Positive, validated

SHIFT_PX = affnist_like.PAD_PX
HELD_OUT_SEED = 1  # for the shifts of validation and test images
ORIGINALS = 10_000  # test images of MNIST
VARIANTS = 32  # transformed versions of each original in affnist_like
CHUNK = 2000  # images converted to float at a time
NETWORKS: dict[str, tuple[str, dict]] = {  # name -> (model, options)
    "capsnet": ("capsnet", {"iterations": 3, "reconstruction_weight": 0.01}),
    "capsnet-1": ("capsnet", {"iterations": 1, "reconstruction_weight": 0.01}),
    "cnn": ("cnn", {"kernel": 5}),
    "cnn-9": ("cnn", {"kernel": 9, "padding": "valid"}),
    "average": ("average", {}),
    "resnet": ("resnet", {}),
}
KEYS = (
    "network", "seed", "state", "terms", "parameters", "held_out", "test", "affnist_like",
    "affnist",
)  # fields of a result  # fmt: skip
Images = Annotated[int, Field(ge=1, le=VARIANTS * ORIGINALS)]
STATES = ("matched", "full")
MAY_CHANGE = ("epochs", "limit")  # terms that a resumed run may change


@validated
class Plan:
    """Settings of a series; each result records its `terms`."""

    folder: Path  # for results and runs
    target: Inside = 0.9923  # held-out accuracy at which "matched" weights are saved
    checks: Positive = 4  # checks of that accuracy per epoch
    epochs: Positive = 50  # length of a full training run
    batch_size: Positive = 128  # the authors' value; smaller ones reach the target in fewer epochs
    ema: float | None = None  # decay of averaged weights, which need fewer epochs
    full: bool = True  # continue training after the target is reached
    limit: Images | None = None  # images of affnist_like; None: all
    train_limit: Positive | None = None  # training images, for trials
    precision: Precision = "auto"

    @property
    def n(self) -> int:
        """Number of affnist_like images."""
        return VARIANTS * ORIGINALS if self.limit is None else self.limit


def terms(plan: Plan, device: torch.device | str) -> dict:
    """Return the settings that a result depends on, besides network and seed."""
    shared = {k: v for k, v in vars(plan).items() if k not in ("folder", "full")}
    return shared | {"precision": resolve_precision(plan.precision, torch.device(device))}


class _TargetReached(Exception):  # noqa: N818 - not an error: it ends the training loop
    """The target was reached."""


def recipe(network: str, seed: int, plan: Plan) -> Recipe:
    """Return the recipe of a network; ValueError for an unknown one."""
    discovery.require_known("network", network, NETWORKS)
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
    """Train one network from one seed and score it, unless its results exist.

    `report` receives a line for each check, epoch and result; `on_step` is called as by
    `train.fit`. ValueError if the folder holds results, or an unfinished run, with other terms; the
    number of epochs of a full run may grow. BlockingIOError if another process is training this
    network in this folder.
    """
    recipe(network, seed, plan)  # raises for an unknown network
    with locked(plan.folder / "runs" / f"{network}-{seed}"):
        _run(network, seed, plan, root, device, report, on_step)


def _run(network, seed, plan, root, device, report, on_step) -> None:
    settings, output = recipe(network, seed, plan), plan.folder / "runs" / f"{network}-{seed}"
    conditions, weights = terms(plan, device), output / "matched.safetensors"
    matched, full = (result_path(plan.folder, network, seed, state) for state in STATES)
    clear(output, weights.name, "terms.json")
    clear(plan.folder, matched.name, full.name)
    have_matched = _complete(matched, conditions, ("epochs",))
    have_full = not plan.full or _complete(full, conditions, ())
    if have_matched and have_full:
        return
    train = data.load("mnist", "train", root, **settings.data_options)
    validation = held_out("validation", root)
    real(plan.limit, root)  # raises for damaged files before training
    _begin(output, conditions)

    def trained(to_the_end: bool) -> tuple[nn.Module, list[Epoch]]:
        model = build_model(settings, train).to(device)
        average = None if settings.ema is None else Average(model, settings.ema)

        def check(epoch: int, step: int, steps: int, loss, accuracy) -> None:
            """Save the first weights that reach the target."""
            on_step(epoch, step, steps, loss, accuracy)
            at = [max(1, steps * (k + 1) // plan.checks) for k in range(plan.checks)]
            if weights.exists() or step not in at:
                return
            with weights_that_count(model, average):
                held_out_accuracy = float(right(model, validation).mean())
                reached = held_out_accuracy >= plan.target
                if reached:
                    training = {"epoch": epoch, "step": step, "steps": steps}
                    about = json.dumps({"training": training, "terms": conditions})
                    write_tensors(weights, model.state_dict(), {"about": about})
            report(
                f"epoch {epoch}, step {step} of {steps}: held-out accuracy {held_out_accuracy:.2%}"
            )
            if reached and not to_the_end:
                raise _TargetReached

        def report_epoch(epoch: Epoch, _) -> None:
            report(
                f"{network}-{seed}: epoch {epoch.epoch}, loss {epoch.train_loss:.4f}, held-out "
                f"accuracy {epoch.validation_accuracy:.2%}, {epoch.seconds:.0f} s"
            )

        return fit(
            settings, train, validation, output, model=model, average=average, device=device,
            resume=True, report=report, on_step=check, on_epoch=report_epoch,
        )  # fmt: skip

    def store(path: Path, state: str, model: nn.Module, about: dict) -> None:
        found = score(model, plan.limit, root)
        result = {"network": network, "seed": seed, "state": state, "terms": conditions}
        result |= {"training": about, "recipe": asdict(settings), **found}
        result["provenance"] = provenance(None, str(device))
        result["hardware"] = hardware(torch.device(device))
        write_text(path, json.dumps(result) + "\n")
        accuracy = found["affnist_like"]["accuracy"]
        report(f"{network}-{seed}, {state}: {accuracy:.2%} of affnist_like")

    if not have_matched:
        if not weights.exists():
            with contextlib.suppress(_TargetReached):
                trained(to_the_end=False)
        if weights.exists():
            tensors, about = read_tensors(weights)
            about = json.loads(about["about"])
            _require_equal(weights, about["terms"], conditions, MAY_CHANGE)
            model = build_model(settings, train).to(device)
            model.load_state_dict(tensors)
            store(matched, "matched", model, about["training"])
        else:
            report(f"{network}-{seed}: {plan.target:.2%} was not reached in {plan.epochs} epochs")
    if not have_full:
        model, history = trained(to_the_end=True)
        seconds = sum(epoch.seconds for epoch in history)
        store(full, "full", model, {"epoch": len(history), "step": None, "seconds": seconds})


def result_path(folder: Path, network: str, seed: int, state: str) -> Path:
    """Return the path of the result of one network, seed and state."""
    return folder / f"{network}-{seed}-{state}.json"


def read(folder: Path) -> list[dict]:
    """Return the results in a folder, sorted by `NETWORKS`, seed and state."""
    paths = [path for state in STATES for path in folder.glob(f"*-*-{state}.json")]
    results = [_read_one(path) for path in paths]
    names = list(NETWORKS)
    return sorted(results, key=lambda r: (names.index(r["network"]), r["seed"], r["state"]))


def _read_one(path: Path) -> dict:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        for name in KEYS:
            result[name]
        NETWORKS[result["network"]]
        return result
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a result of this series ({type(error).__name__}: {error})"
        ) from error


def _complete(path: Path, conditions: dict, ignored: tuple[str, ...]) -> bool:
    """Return whether a result with these terms exists, from a run that is not shorter."""
    if not path.exists():
        return False
    stored = _read_one(path)["terms"]
    if "epochs" not in ignored and stored["epochs"] < conditions["epochs"]:
        return False
    _require_equal(path, stored, conditions, ignored)
    return True


def _begin(folder: Path, conditions: dict) -> None:
    """Write the terms of a run into its folder; ValueError if it was begun with others."""
    path = folder / "terms.json"
    if {other.name for other in folder.iterdir()} <= {path.name, LOCK}:  # nothing is trained yet
        write_text(path, json.dumps(conditions) + "\n")
    elif path.exists():
        try:
            stored = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} holds no terms of a run: {error}") from error
        _require_equal(folder, stored, conditions, MAY_CHANGE)


def _require_equal(path: Path, stored: dict, conditions: dict, ignored: tuple[str, ...]) -> None:
    """Raise ValueError if a file was made with other terms; those named in `ignored` may differ."""
    for name in conditions:
        if name not in ignored and stored.get(name) != conditions[name]:
            raise ValueError(
                f"{path} was made with {name} {stored.get(name)}, got {conditions[name]}: "
                "choose the same, or another --folder"
            )


@functools.cache
def held_out(split: str, root=None) -> data.Dataset:
    """Return MNIST's validation or test images at 40x40, each shifted once as in training."""
    part = data.load("mnist", split, root, pad_px=affnist_like.PAD_PX)
    generator = torch.Generator().manual_seed(HELD_OUT_SEED)
    return replace(part, images=shift(part.images, SHIFT_PX, generator=generator))


def right(model: nn.Module, dataset: data.Dataset) -> np.ndarray:
    """Return which images are classified correctly: bool (N,)."""
    parts = zip(dataset.images.split(CHUNK), dataset.labels.split(CHUNK), strict=True)
    hits = [predict(scores(model, to_float(images))) == labels for images, labels in parts]
    return torch.cat(hits).numpy()


def score(model: nn.Module, limit: int | None, root=None) -> dict:
    """Return the held-out, test and affine accuracy of a network, as fields of a result."""
    result: dict[str, Any] = {"parameters": sum(p.numel() for p in model.parameters())}
    for name, split in (("held_out", "validation"), ("test", "test")):
        result[name] = _accuracy(right(model, held_out(split, root)))
    hits = right(model, like(limit, root))
    result["affnist_like"] = {**_accuracy(hits), "right": pack(hits), "spec": affnist_like.SPEC}
    published = real(limit, root)
    result["affnist"] = None if published is None else _accuracy(right(model, published))
    return result


@functools.cache
def real(limit: int | None, root=None) -> data.Dataset | None:
    """Return the first affNIST test images, or None if its files are missing."""
    try:
        whole = data.load("affnist", "test", root)
    except FileNotFoundError:
        return None
    return whole.first(None if limit is None else min(limit, len(whole)))


@functools.cache
def like(limit: int | None, root=None) -> data.Dataset:
    """Return the first affnist_like test images: one variant of each original, then the next."""
    n = len(data.load("mnist", "test", root))
    whole = VARIANTS * n if limit is None else limit
    return data.load("affnist_like", "test", root, variants=max(1, -(-whole // n))).first(whole)


def _accuracy(hits: np.ndarray) -> dict:
    k, n = int(hits.sum()), len(hits)
    return {"n": n, "accuracy": k / n, "accuracy_ci95": wilson(k, n)}


def pack(hits: np.ndarray) -> str:
    """Encode bool (N,) as base64, eight images per byte."""
    return base64.b64encode(np.packbits(hits).tobytes()).decode()


def unpack(text: str, n: int) -> np.ndarray:
    """Decode the bool (n,) that `pack` encoded."""
    return np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8))[:n].astype(bool)


def draw_transforms(n: int, root=None) -> dict[str, np.ndarray]:
    """Draw the fields of `affnist_like.Transforms` for the first n test images: (n,) float32 each.

    This needs MNIST, because the range of shifts of an image depends on its foreground.
    """
    plain = data.load("mnist", "test", root, download=False)
    variants = [affnist_like.transforms(plain, v) for v in range(-(-n // len(plain)))]
    columns = zip(affnist_like.Transforms._fields, zip(*variants, strict=True), strict=True)
    return {name: np.concatenate(parts)[:n].astype(np.float32) for name, parts in columns}


def transforms(n: int, root=None) -> dict[str, np.ndarray]:
    """Return the first n transforms: the shipped ones, or drawn ones if n is larger.

    FileNotFoundError if they must be drawn and MNIST is missing.
    """
    with np.load(discovery.folder(SHIPPED) / "affnist" / "transforms.npz") as stored:
        columns = {name: stored[name] for name in affnist_like.Transforms._fields}
    if n > len(columns["shear"]):
        return draw_transforms(n, root)
    return {name: values[:n] for name, values in columns.items()}
