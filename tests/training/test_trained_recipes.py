"""Every recipe in trained/ can be read, and its network fits what its data set holds."""

import pytest
import torch

from capsviz import data
from capsviz.discovery import folder
from capsviz.nn import models
from capsviz.training.recipe import read_recipe

HOLDS = {"smallnorb": ((2, 48, 48), 5)}  # (C, H, W) and classes; of others, what they say
NAMES = sorted(path.stem for path in folder("capsviz.trained").glob("*.toml"))


def network(name):
    """The network of a recipe, without its numbers, how many classes there are, and the recipe."""
    recipe = read_recipe(folder("capsviz.trained") / f"{name}.toml")
    own = data.module_of(recipe.dataset)
    known = HOLDS.get(recipe.dataset)
    (channels, height, width), classes = known or (own.IMAGE_SHAPE, len(own.CLASSES))
    height, width = (recipe.crop_px or side + 2 * recipe.pad_px for side in (height, width))
    with torch.device("meta"):
        shape = (channels, height, width)
        return models.build(recipe.model, shape, classes, **recipe.options), classes, recipe


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_read_and_its_network_fits_its_data(name):
    model, classes, recipe = network(name)
    assert recipe.dataset in data.available()
    assert recipe.dataset == name.partition("-")[0]
    images = torch.zeros(1, *model.config["image_shape"], device="meta")
    assert model.eval()(images).lengths.shape == (1, classes)


@pytest.mark.parametrize(
    ("name", "grid", "dimensions", "channels", "classes"),
    [
        ("mnist", (32, 6, 6), (8, 16), 256, 10),
        ("cifar10-paper", (64, 4, 4), (8, 16), 256, 10),
        ("smallnorb", (32, 8, 8), (8, 16), 256, 5),
        ("svhn", (16, 8, 8), (6, 8), 64, 10),
    ],
)
def test_the_networks_are_those_of_the_paper(name, grid, dimensions, channels, classes):
    """Sabour et al. (2017): section 4, and section 7 for the others than MNIST."""
    model, *_ = network(name)
    settings = model.settings
    assert model.grid == grid and settings.iterations == 3 and settings.classes == classes
    assert (settings.primary_dimensions, settings.class_dimensions) == dimensions
    assert settings.channels == channels
    assert settings.leaky == (name == "cifar10-paper"), "none of the above"


def test_all_that_is_shipped_stays_small():
    files = [path for path in folder("capsviz.trained").rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files if path.suffix != ".pyc")
    assert 10**6 < size < 36_000_000
