"""Train networks by priority in limited time on a GPU: `python -m benchmarks.gpu_queue work`.

    work --folder F [--seconds N] [--only PATTERN]      train the jobs that are not begun in F
    pack --folder F --output OUT [--weights PATTERN]    archive weights, cards and curves

Several `work` processes can share one folder: each takes the next job that is not begun. A job is
skipped if it would not end in time, judged by the finished jobs of its group. A failed job writes
its error to NAME/failed.txt.
"""

from __future__ import annotations

import argparse
import json
import re
import tarfile
import time
import traceback
from itertools import product
from pathlib import Path

from capsviz import checkpoint
from capsviz.nn import routing
from capsviz.nn.functional import predict
from capsviz.tracing import scores
from capsviz.training import run as pipeline
from capsviz.training.recipe import Recipe
from capsviz.transforms.augment import to_float

ARCHIVE_BYTES, MOST = 15_500_000, 4  # size of an archive before compression; number of archives

SLIM = "mnist-slim-{}-10-epochs"
NARROW = {"batch_size": 128, "learning_rate": 2e-3, "schedule": "linear", "warmup_epochs": 0.25}
OWN_OPTIONS = {"em": {"floor": 1.0}, "variational": {"vote_std": 0.01}}  # as in `routings`
POSITIONS = 24**2  # feature map positions of the narrow stem on images of `assemblies`


def jobs() -> dict[str, tuple[str | None, dict]]:
    """Return the arguments of `training.run.prepare` by name, in order of priority."""
    found: dict[str, tuple[str | None, dict]] = {}
    for seed in range(3):
        found[f"strong-{seed}"] = "mnist-attention", {
            "epochs": 150, "batch_size": 128, "warmup_epochs": 1.0,
            "shift_px": 2, "rotation_deg": 15.0, "scale": 0.1, "shear_deg": 10.0, "seed": seed,
        }  # fmt: skip
    for seed, name in product(range(3, 6), (*routing.available(), "pooled")):
        found[f"{SLIM.format(name)}-{seed}"] = SLIM.format(name), {"seed": seed}
    for seed in range(3, 6):  # networks without capsules, with equally many parameters
        equal = {
            "pooled-equal": {"options": {"types": 65}},
            "resnet-equal": {"model": "resnet", "options": {"channels": [18, 36, 75]}},
        }
        for name, more in equal.items():
            found[f"{SLIM.format(name)}-{seed}"] = SLIM.format("pooled"), {**more, "seed": seed}
    for distance, transform, seed in product(("far", "near"), ("own", "type"), range(3)):
        found |= on_assemblies(distance, seed, transform)
    return found


def on_assemblies(distance: str, seed: int, transform: str) -> dict[str, tuple[None, dict]]:
    """Return jobs for all routings on the narrow stem, and two networks with as many weights."""
    terms = {
        **NARROW, "dataset": "assemblies", "dataset_options": {"distance": distance},
        "epochs": 12, "shift_px": 0, "precision": "bf16", "seed": seed,
    }  # fmt: skip
    found = {}
    for name in routing.available():
        options = {"channels": 32, "types": 4, "transform": transform, "routing": name}
        options |= {"reconstruction_weight": 0.0} | OWN_OPTIONS.get(name, {})
        if transform == "type":  # votes of all positions add up
            options["vote_std"] = options.get("vote_std", 0.1) / POSITIONS**0.5
        label = f"assemblies-{distance}-{transform}-{name}-{seed}"
        found[label] = None, terms | {"options": options}
    large = transform == "own"
    others = {"average": {"channels": AVERAGE[large]}, "resnet": {"channels": RESNET[large]}}
    for model, options in others.items():
        found[f"assemblies-{distance}-{transform}-{model}-{seed}"] = None, terms | {
            "model": model, "options": options
        }  # fmt: skip
    return found


AVERAGE = {True: [128, 300], False: [37, 29]}
RESNET = {True: [54, 108, 216], False: [9, 18, 37]}


def work(folder: Path, seconds: float, guess: float, only: str, device: str, trial: dict) -> None:
    """Train jobs in turn while there is time; `guess` is the time in s of a group's first job."""
    ends = time.time() + seconds
    for name, (source, flags) in jobs().items():
        place, group = folder / name, name.rsplit("-", 1)[0]
        if not re.match(only, name) or time.time() + expected(folder, group, guess) > ends:
            continue
        try:
            place.mkdir(parents=True)
        except FileExistsError:
            continue
        begin = time.time()
        try:
            _, recipe = pipeline.prepare(source, flags | trial)
            splits = {s: pipeline.load(recipe, s) for s in ("train", "validation", "test")}
            _, card = pipeline.run(name, recipe, splits, place, device=device)
            if recipe.dataset == "assemblies":
                card["results"]["outside"] = outside(place, recipe, device)
            took = time.time() - begin
            (place / "seconds.txt").write_text(f"{took}")
            print(f"{name}: {card['results']['test']['accuracy']:.4f}, {took:.1f} s", flush=True)
        except Exception:  # the next job may succeed
            (place / "failed.txt").write_text(traceback.format_exc())
            print(f"{name}: {traceback.format_exc().splitlines()[-1]}", flush=True)


def outside(place: Path, recipe: Recipe, device: str) -> dict[str, float]:
    """Return the accuracy on other rotations and other pairs of parts; write it to outside.json."""
    (path,) = place.glob(f"{place.name}.safetensors")
    model, found = checkpoint.load(path, device=device), {}
    for split in ("test-outside", "test-combinations"):
        part = pipeline.load(recipe, split).single()
        right = predict(scores(model, to_float(part.images))) == part.labels
        found[split] = float(right.float().mean())
    (place / "outside.json").write_text(json.dumps(found))
    return found


def expected(folder: Path, group: str, guess: float) -> float:
    """Return the longest time of the group's finished jobs, or the guess if there is none."""
    times = [float(path.read_text()) for path in folder.glob(f"{group}-*/seconds.txt")]
    return max(times, default=guess)


def pack(folder: Path, output: Path, only: str, weights: str) -> None:
    """Write the results of finished jobs into at most `MOST` archives.

    `only` and `weights` are patterns of the jobs, and of those whose weights are included.
    """
    files = [
        path
        for place in sorted(folder.iterdir())
        if re.match(only, place.name)
        for path in sorted(place.iterdir())
        if path.name in ("epochs.csv", "failed.txt", "seconds.txt", "outside.json")
        or path.name == f"{place.name}.json"
        or (path.name == f"{place.name}.safetensors" and re.match(weights, place.name))
    ]
    archives: list[list[Path]] = [[]]
    for path in files:
        if sum(one.stat().st_size for one in [*archives[-1], path]) > ARCHIVE_BYTES:
            archives.append([])
        archives[-1].append(path)
    output.mkdir(parents=True, exist_ok=True)
    for number, some in enumerate(archives[:MOST]):
        with tarfile.open(output / f"runs-{number}.tar.gz", "w:gz", compresslevel=1) as archive:
            for path in some:
                archive.add(path, path.relative_to(folder))
    for path in (one for some in archives[MOST:] for one in some):
        print(f"left out: {path.relative_to(folder)}")


def main() -> None:
    """Run one of the commands work, pack and list."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("command", choices=("work", "pack", "list"))
    options.add_argument("--folder", type=Path, default=Path("runs/gpu-queue"))
    options.add_argument("--output", type=Path, default=Path("runs/gpu-packed"))
    options.add_argument("--weights", default="", help="regular expression: weights to pack")
    options.add_argument("--seconds", type=float, default=1e9)
    options.add_argument("--guess", type=float, default=15, help="seconds of a group's first job")
    options.add_argument("--only", default="", help="regular expression of names")
    options.add_argument("--device", default="cuda")
    options.add_argument("--limit", type=int, help="training images, for a trial")
    options.add_argument("--epochs", type=int, help="for a trial")
    options.add_argument("--batch-size", type=int, help="for a trial")
    given = options.parse_args()
    if given.command == "list":
        print("\n".join(jobs()))
    elif given.command == "pack":
        pack(given.folder, given.output, given.only, given.weights)
    else:
        trial = {"limit": given.limit, "epochs": given.epochs, "batch_size": given.batch_size}
        trial = {name: value for name, value in trial.items() if value is not None}
        work(given.folder, given.seconds, given.guess, given.only, given.device, trial)


if __name__ == "__main__":
    main()
