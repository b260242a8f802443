"""One to five iterations of routing on MNIST."""

from capsviz.experiments.reproductions import Cell, routed

LABELS = ("Routing iterations",)
PUBLISHED = {1: "0.36", 3: "0.36", 4: "0.41"}  # of the best validation epoch, in its README


def cells() -> list[Cell]:
    """The paper's network with 1, 2, 3, 4 and 5 iterations."""
    cells = []
    for iterations in range(1, 6):
        name, recipe = routed(iterations)
        error = PUBLISHED.get(iterations)
        published = (
            "–" if error is None else f"{error}, best validation (naturomics/CapsNet-Tensorflow)"
        )
        cells.append(Cell(name, (str(iterations),), recipe, published))
    return cells
