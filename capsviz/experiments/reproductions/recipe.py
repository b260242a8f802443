"""The network and loss of the paper's text against those of its authors' code, on MNIST.

Batches and learning rates are the same in both rows, and not those of the authors. Where intervals
overlap, nothing is explained of the gap between the paper and its reruns.
"""

from capsviz.experiments.reproductions import SABOUR, Cell, routed
from capsviz.training.recipe import Recipe

LABELS = ("Preset",)


def cells() -> list[Cell]:
    """The two presets, trained alike, both with three iterations and reconstruction."""
    name, recipe = routed(3)
    authors = Recipe(options={"preset": "authors", "iterations": 3})
    reruns = "0.25 to 0.4 (independent reruns)"
    return [
        Cell(name, ("paper (the text)",), recipe, reruns),
        Cell("mnist-authors", ("authors (their code)",), authors, f"0.25 ± 0.005 ({SABOUR})"),
    ]
