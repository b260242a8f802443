"""The paper's network on other data sets."""

from capsviz.reproductions import SABOUR, Cell, routed, shipped_recipe

LABELS = ("Data set",)
TITLES = {
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "smallnorb": "smallNORB",
    "svhn": "SVHN",
}
PUBLISHED = {
    "fashion_mnist": "9.40 (naturomics/CapsNet-Tensorflow)",
    "cifar10": f"10.6, 7 networks ({SABOUR}); 27.41 (ethanleet/CapsNet)",
    "smallnorb": f"2.7 ({SABOUR}); 8.5 (ethanleet/CapsNet)",
    "svhn": f"4.3 ({SABOUR})",
}


def cells() -> list[Cell]:
    """MNIST, then each data set by its recipe in trained/."""
    name, recipe = routed(3)
    made = [Cell(name, ("MNIST",), recipe, f"0.25 ± 0.005 ({SABOUR})")]
    for dataset, error in PUBLISHED.items():
        made.append(Cell(dataset, (TITLES[dataset],), shipped_recipe(dataset), error))
    return made
