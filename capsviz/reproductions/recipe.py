"""The paper's text against its authors' code, on MNIST.

Does the recipe explain the gap between the paper and its reruns? One training of a few epochs each
cannot tell: see the intervals.
"""

from capsviz.recipe import Recipe
from capsviz.reproductions import SABOUR, Cell, routed

LABELS = ("Preset",)


def cells() -> list[Cell]:
    """The two presets, both with three iterations and reconstruction."""
    name, recipe = routed(3)
    authors = Recipe(options={"preset": "authors", "iterations": 3})
    reruns = "0.25 to 0.4 (independent reruns)"
    return [
        Cell(name, ("paper (the text)",), recipe, reruns),
        Cell("mnist-authors", ("authors (their code)",), authors, f"0.25 ± 0.005 ({SABOUR})"),
    ]
