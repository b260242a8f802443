"""All routings on one slim stem, and the stem without capsules, on MNIST.

The stem is Efficient-CapsNet's; children, objective and iterations are each routing's own, all else
is shared: 16 children of 8 numbers, parents of 16, a small deconvolution decoder. Mixtures learn
little where the first votes vary as much as their parents may, with 1.6 children each: EM adds 1 to
its variances, and the votes of variational routing begin at a tenth, as validation images had it.
Published numbers are of other stems, recipes and augmentations, some chosen on the test set: they
stand for orientation.
"""

from typing import Any

from capsviz.experiments.reproductions import Cell, by_routing
from capsviz.training.recipe import Recipe

LABELS = ("Routing",)
EPOCHS = 10
SHARED: dict[str, Any] = {
    "batch_size": 64,
    "learning_rate": 2e-3,
    "schedule": "linear",
    "warmup_epochs": 0.25,
    "ema": 0.999,
}
PUBLISHED = {
    "dynamic": "0.25, paper's stem, 3 seeds (Sabour et al. 2017)",
    "em": "0.44, four layers (Hinton et al. 2018)",
    "self_attention": "0.26, stronger augmentation (Mazzia et al. 2021)",
}
CHANGED = {"em": {"options": {"floor": 1.0}}, "variational": {"options": {"vote_std": 0.01}}}


def cells() -> list[Cell]:
    """A row for each routing that is there, and one without."""
    recipe = Recipe(options={"stem": "slim", "decoder": "deconvolution"}, **SHARED)
    return by_routing("mnist-slim", recipe, PUBLISHED, CHANGED)
