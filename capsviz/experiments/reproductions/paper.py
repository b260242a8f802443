"""Routing and reconstruction on MNIST, and the baseline CNN: table 1 of Sabour et al. 2017."""

from capsviz.experiments.reproductions import SABOUR, Cell, routed
from capsviz.training.recipe import Recipe

LABELS = ("Network", "Routing", "Reconstruction")
PUBLISHED = {
    (1, False): "0.34 ± 0.032",
    (1, True): "0.29 ± 0.011",
    (3, False): "0.35 ± 0.036",
    (3, True): "0.25 ± 0.005",
}


def cells() -> list[Cell]:
    """The CNN, then routing 1 and 3, each without and with reconstruction."""
    cnn = Recipe(model="cnn", options={"kernel": 5})
    cells = [Cell("mnist-cnn", ("CNN", "–", "–"), cnn, f"0.39 ({SABOUR})", margin=False)]
    for (iterations, decoder), error in PUBLISHED.items():
        labels = ("CapsNet", str(iterations), "yes" if decoder else "no")
        name, recipe = routed(iterations, decoder=decoder)
        cells.append(Cell(name, labels, recipe, f"{error} ({SABOUR})"))
    return cells
