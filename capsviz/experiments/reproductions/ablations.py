"""A CapsNet on MNIST with one part after another left out.

Votes are weighed by three rounds of routing or evenly; made by matrices of each child's own, or by
one for each class that all children share; and trained with or without reconstruction. So
Gu & Tresp (2020, arXiv:1911.07968) and Gu, Tresp & Hu (2021, arXiv:2103.15459) take CapsNets apart,
to ask where their robustness to affine maps comes from: trained on MNIST in their setting, one
matrix for all and no routing raise the accuracy on affNIST from 79 to 93.21 %. The network is that
of `digits`, the paper's stem with fewer channels and types. `capsviz affine` asks the same of
variants of MNIST's own test images.
"""

from dataclasses import replace
from itertools import product

from capsviz.experiments.reproductions import Cell, shipped_recipe

LABELS = ("Routing", "Matrices", "Reconstruction")
EPOCHS = 10
MATRICES = {"own": "of each child", "shared": "one for all"}


def cells() -> list[Cell]:
    """Two routings, two kinds of matrices, with and without reconstruction."""
    whole = replace(shipped_recipe("digits"), dataset="mnist", epochs=EPOCHS)
    rows = []
    for routing, transform, decoder in product(("dynamic", "uniform"), MATRICES, (True, False)):
        options = {**whole.options, "routing": routing, "transform": transform}
        name = f"mnist-narrow-{routing}-{transform}"
        if not decoder:
            name, options["reconstruction_weight"] = f"{name}-no-reconstruction", 0.0
        labels = (routing, MATRICES[transform], "yes" if decoder else "no")
        rows.append(Cell(name, labels, replace(whole, options=options)))
    return rows
