"""All routings on a ResNet-20, and the ResNet-20 without capsules, on CIFAR-10.

The recipe is that of `cifar10-resnet`: 512 children of 8 numbers from the last map of 8x8 places,
parents of 16, one transform for each type of children. Children, objective and iterations are each
routing's own, all else is shared.
"""

from dataclasses import replace

from capsviz.experiments.reproductions import Cell, shipped_recipe
from capsviz.nn import routing

LABELS = ("Routing",)
SHIPPED = "cifar10-resnet"  # routed dynamically
EPOCHS = shipped_recipe(SHIPPED).epochs
NONE = "none: average pooling, linear"
PUBLISHED = {"dynamic": "10.6, ensemble of 7, 24x24 windows (Sabour et al. 2017)"}


def cells() -> list[Cell]:
    """A row for each routing that is there, and one without."""
    rows, shared = [], shipped_recipe(SHIPPED)
    for name in routing.available():
        run, recipe = SHIPPED, shared
        if name != "dynamic":
            run = f"{SHIPPED}-{name}"
            recipe = replace(shared, options={**shared.options, "routing": name})
        margin = getattr(routing.get(name), "OBJECTIVE", "margin") == "margin"
        rows.append(Cell(run, (name,), recipe, PUBLISHED.get(name, "–"), margin))
    recipe = replace(shared, model="pooled", options={"stem": shared.options["stem"]})
    return [*rows, Cell(f"{SHIPPED}-pooled", (NONE,), recipe, margin=False)]
