"""What the command `parse_tree` looks at: two images, many, or the epochs of a run."""

from __future__ import annotations

import re
from pathlib import Path

from capsviz import checkpoint
from capsviz.cli import options
from capsviz.inputs.samples import beside, next_class, other_images

OTHERS = 500  # images that means are of, at most


def check(n, folder, seeds, dead_norm, starved_share) -> None:
    """ValueError for options that do not go together, or values out of range."""
    options.refuse_with_evaluate(n, "digit", "index", "image", "other")
    if folder is None:
        options.refuse_without_evaluate(n, "seeds")
        if ignored := options.typed("dead_norm", "starved_share"):
            raise ValueError(f"{', '.join(ignored)}: of the epochs of a run, add --run FOLDER")
    elif ignored := options.typed(
        "digit", "index", "image", "other", "seeds", "checkpoint", "network", "weights"
    ):
        raise ValueError(f"--run looks at the networks of a run: drop {', '.join(ignored)}")
    if seeds < 0:
        raise ValueError(f"--seeds must be at least 0 fresh networks, got {seeds}")
    if dead_norm <= 0 or not 0 < starved_share < 1:
        raise ValueError(
            "expected --dead-norm above 0 and --starved-share between 0 and 1, "
            f"got {dead_norm:g} and {starved_share:g}"
        )


def two(inputs, picture, other: int | None) -> tuple[str, dict]:
    """Stem, and what `compute` takes, of a picture and an image of the data set."""
    other = next_class(inputs, picture) if other is None else other
    arguments = {
        "images": beside(inputs, picture, other, 0, "another class (--other)"),
        "labels": (picture.label, other),
        "classes": inputs.dataset.classes,
    }
    return f"parse-tree-{picture.name}-{other}-0", arguments


def many(inputs, n: int) -> tuple[str, dict]:
    """Stem, and what `evaluate` takes, of n images."""
    name = inputs.dataset.name
    images, labels = inputs.images(n)
    arguments = {"images": images, "labels": labels, "others": other_images(inputs, OTHERS)}
    about = {"classes": inputs.dataset.classes, "dataset": name}
    return f"parse-tree-{name}-{n}-images", arguments | about


def epochs(run, folder: Path, n: int | None) -> tuple[str, dict]:
    """Stem, and what `follow` takes, of a run's epochs; its last network is then that of `run`."""
    files = weights(folder)
    run.choose(str(files[max(files)]))
    images, labels = run.images(n)
    name = folder.resolve().name
    networks = opened(files, images, run.inputs.device, run.progress("epochs"))
    arguments = {"networks": networks, "images": images, "labels": labels}
    return f"parse-tree-epochs-{name}", arguments | {"run": name, "dataset": run.dataset}


def weights(folder: Path) -> dict[int, Path]:
    """Weights by epoch, of a run's folder.

    Raises
    ------
    ValueError  for a folder without any.
    """
    if not folder.is_dir():
        raise ValueError(f"there is no folder '{folder}'")
    files = {}
    for path in (folder / "epochs").glob("*.safetensors"):
        if match := re.search(r"-(\d+)$", path.stem):
            files[int(match[1])] = path
    if not files:
        raise ValueError(
            f"'{folder}' holds no weights by epoch (epochs/NAME-EPOCH.safetensors): train with "
            "`capsviz train ... --save-every K`"
        )
    return dict(sorted(files.items()))


def opened(files: dict[int, Path], images, device, progress=iter):
    """(epoch, network) in order; epoch 0 is the network as the recipe's seed initialises it."""
    for epoch in progress([0, *files]):
        path = files[epoch or min(files)]
        model = checkpoint.load(path, device=device)
        if epoch == 0:
            model = checkpoint.fresh(model, model.card["recipe"]["seed"], images=images)
        yield epoch, model
