"""What the command `parse_tree` looks at: two images, many, or the epochs of a run."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from capsviz import checkpoint
from capsviz.analyses import parse_tree
from capsviz.analyses.transplant import next_class
from capsviz.cli import options
from capsviz.cli.other_images import other_images
from capsviz.transforms.augment import to_float

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


def of_two(inputs, picture, other: int | None, seed: int):
    """Stem and result of a picture and an image of the data set."""
    other = next_class(inputs, picture) if other is None else other
    second, _ = inputs.dataset.nth_of_class(other, 0)
    images = torch.cat([picture.image.cpu(), to_float(second)])
    labels, classes = (picture.label, other), inputs.dataset.classes
    result = parse_tree.compute(inputs.model, images, labels, classes=classes, seed=seed)
    return f"parse-tree-{picture.name}-{other}-0", result


def of_many(inputs, n: int, seeds: int, seed: int, progress):
    """Stem and result of n images."""
    name = inputs.dataset.name
    images, labels = inputs.images(n)
    others = other_images(inputs, OTHERS)
    result = parse_tree.evaluate(
        inputs.model, images, labels, others, classes=inputs.dataset.classes, dataset=name,
        seeds=seeds, seed=seed, progress=progress,
    )  # fmt: skip
    return f"parse-tree-{name}-{n}-images", result


def of_run(run, folder: Path, n: int | None, dead_norm: float, starved_share: float, seed: int):
    """Stem and result of the epochs of a run, whose last network is then that of `run`."""
    files = weights(folder)
    run.choose(str(files[max(files)]))
    images, labels = run.images(n)
    name = folder.resolve().name
    networks = opened(files, run.inputs.device, run.progress("epochs"))
    result = parse_tree.follow(
        networks, images, labels, run=name, dataset=run.dataset, dead_norm=dead_norm,
        starved_share=starved_share, seed=seed,
    )  # fmt: skip
    return f"parse-tree-epochs-{name}", result


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


def opened(files: dict[int, Path], device, progress=iter):
    """(epoch, network) in order; epoch 0 is the network as the recipe's seed initialises it."""
    for epoch in progress([0, *files]):
        path = files[epoch or min(files)]
        model = checkpoint.load(path, device=device)
        if epoch == 0:
            model = checkpoint.fresh(model, model.card["recipe"]["seed"])
        yield epoch, model
