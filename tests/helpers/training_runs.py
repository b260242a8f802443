"""Training runs of one recipe that cost nothing: random weights, and cards."""

import json

import torch

from capsviz import checkpoint
from capsviz.nn import models
from capsviz.training import history
from capsviz.training.recipe import Recipe

RECIPE = Recipe(  # of a run that takes a second
    dataset="digits",
    options={"channels": 8, "types": 2, "hidden": [8, 9]},
    epochs=2,
    limit=256,
    learning_rate=5e-3,
    precision="fp32",
)
SMALL = {"types": 2, "channels": 8, "hidden": [8], "reconstruction_weight": 0.01}


def train(folder, seed, **recipe):
    """A finished run of one recipe: a network with random weights and its card."""
    torch.manual_seed(seed)
    recipe = {"dataset": "digits", "epochs": 3, "options": SMALL, "seed": seed, **recipe}
    model = models.build("capsnet", (1, 28, 28), 10, **recipe["options"])
    with torch.no_grad():
        model.capsules.weight.mul_(8)
    about = {
        "name": "small",
        "dataset": {"name": "digits", "image_shape": [1, 28, 28], "options": {}},
        "recipe": recipe,
        "training": {
            "epochs": recipe["epochs"],
            "precision": "fp32",
            "seconds": 60,
            "hardware": "a CPU",
        },
        "results": {"test": {"n": 360, "accuracy": 0.1, "accuracy_ci95": [0.07, 0.14]}},
    }
    return checkpoint.save(folder / "small.safetensors", model, about)


def write_runs(folder, name, accuracies, digests=None, *, n=10_000, **about):
    """Write accuracies by seed as trained/seeds has those of the runs of a recipe."""
    folder.mkdir(parents=True, exist_ok=True)
    each = zip(accuracies.items(), digests or map(str, accuracies), strict=True)
    one = {"n": n, "seconds": 60, "hardware": "cpu"}
    runs = [
        {**one, "seed": k, "accuracy": a, "accuracy_ci95": [a - 0.01, a + 0.01],
         "weights_sha256": digest}
        for (k, a), digest in each
    ]  # fmt: skip
    about = {"recipe": name, "dataset": "mnist", "parameters": 99, "runs": runs, **about}
    (folder / "runs.json").write_text(json.dumps(about))
    return folder


def recipe(folder, name, accuracies):
    """Write the runs of a recipe, by seed, into a folder of its name; return it."""
    return write_runs(folder / name, name, accuracies, terms={"dataset_options": {}})


def stop_after_saving(monkeypatch):
    """Interrupt training once its state is written; return what writes it."""
    save = history.save

    def stopped(*state):
        save(*state)
        raise KeyboardInterrupt

    monkeypatch.setattr(history, "save", stopped)
    return save
