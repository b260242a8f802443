"""CapsNet on several data sets, each by its recipe in trained/."""

from capsviz.experiments.reproductions import SABOUR, Cell, shipped_recipe

LABELS = ("Data set",)
APART = True
TITLES = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar10-paper": "CIFAR-10, patches of 24×24",
    "smallnorb": "smallNORB",
    "svhn": "SVHN",
}
PUBLISHED = {
    "mnist": f"0.25 ± 0.005 ({SABOUR}); 0.27 (ethanleet/CapsNet)",
    "fashion_mnist": "9.40 (naturomics/CapsNet-Tensorflow)",
    "cifar10": "27.41 (ethanleet/CapsNet)",
    "cifar10-paper": f"10.6, 7 networks ({SABOUR})",
    "smallnorb": f"2.7 ({SABOUR}); 8.5 (ethanleet/CapsNet)",
    "svhn": f"4.3 ({SABOUR})",
}


def cells() -> list[Cell]:
    """A row for each data set."""
    return [
        Cell(name, (title,), shipped_recipe(name), PUBLISHED[name])
        for name, title in TITLES.items()
    ]
