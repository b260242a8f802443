"""All routings on a ResNet-20, and the ResNet-20 without capsules, on CIFAR-10.

The recipe is that of `cifar10-resnet`: 512 children of 8 numbers from the last map of 8x8 places,
parents of 16, one transform for each type of children. Children, objective and iterations are each
routing's own, all else is shared, but for the initial weights of self-attention and max-min: the
votes of a type's 64 children add up in one direction, and with the standard deviation of 0.1 of the
others all classes begin at lengths of 0.99 and more, where their squashing is flat, are shortened
together and stay at chance in trials. Theirs is 0.1 / sqrt(64).
"""

from capsviz.experiments.reproductions import Cell, by_routing, shipped_recipe

LABELS = ("Routing",)
SHIPPED = "cifar10-resnet"  # routed dynamically
EPOCHS = shipped_recipe(SHIPPED).epochs
SHORT = {"options": {"vote_std": 0.1 / 64**0.5}}
CHANGED = {"self_attention": SHORT, "max_min": SHORT}
PUBLISHED = {"dynamic": "10.6, ensemble of 7, 24x24 windows (Sabour et al. 2017)"}


def cells() -> list[Cell]:
    """A row for each routing that is there, and one without; the shipped run is the dynamic one."""
    recipe = shipped_recipe(SHIPPED)
    return [
        row._replace(run=SHIPPED, recipe=recipe) if row.labels == ("dynamic",) else row
        for row in by_routing(SHIPPED, recipe, PUBLISHED, CHANGED)
    ]
