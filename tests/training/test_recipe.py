"""Recipes: files, flags, what is refused; those in trained/, whose networks fit their data."""

from dataclasses import asdict

import pytest
import torch

from capsviz import data
from capsviz.discovery import folder
from capsviz.nn import models
from capsviz.training import run as pipeline
from capsviz.training.recipe import (
    Recipe,
    differing,
    read_option,
    read_recipe,
    resolve_precision,
    to_toml,
)


def test_a_recipe_survives_toml(tmp_path):
    recipe = Recipe(
        epochs=3, limit=7, options={"hidden": [4, 5], "preset": "authors"}, crop_px=24, flip=True,
        brightness=0.2, weight_decay=1e-4, decoder_learning_rate=1e-3, decoder_weight_decay=0.0,
        clip_norm=5, ema=0.999, warmup_epochs=0.5, early_stop=4,
        init_from='a "quoted" \\ ü.safetensors', schedule="constant", reconstruction_anneal=0.1,
        dataset_options={"eye": "left", "pairs": 2},
    )  # fmt: skip
    path = tmp_path / "x.toml"
    path.write_text(to_toml(recipe))
    assert read_recipe(path) == recipe


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epohcs = 3", "(did you mean 'epochs'?)"),
        ("learning_rate = -1", "learning_rate must be greater than 0, got -1"),
        ("schedule = 'steps'", "unknown schedule 'steps', expected one of: exponential, linear"),
        ("epochs = ", "not a TOML file"),
        ("epochs = 2.5", "epochs must be a valid integer, got 2.5"),
        ("clip_norm = inf", "clip_norm must be a finite number, got inf"),
        ("[options]\nclasses = 3", "classes comes from the data set: drop"),
        ("[dataset_options]\npad_px = 1", "use --option pad_px"),
        (f"seed = {10**20}", "seed must be from -4398046511104 to 4398046511104, got 1000"),
        ("warmup_epochs = 51", "warmup_epochs must be from 0 to the 50 epochs"),
    ],
)
def test_a_wrong_recipe_says_what_is_wrong(tmp_path, text, message):
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(ValueError) as error:
        read_recipe(path)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_decay_in_a_file_means_what_the_option_does(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text("lr_decay = 0.9\n")
    assert read_recipe(path) == pipeline.prepare(None, {"lr_decay": 0.9})[1]
    path.write_text(to_toml(Recipe()))
    assert read_recipe(path) == Recipe()


def test_recipes_differ_in_unknown_fields_and_in_a_decay_only_if_both_schedules_use_it():
    old = asdict(Recipe(schedule="linear", lr_decay=0.5))
    assert differing(old, Recipe(schedule="linear")) == set()
    assert differing(old, Recipe()) == {"schedule"}
    assert differing(asdict(Recipe(lr_decay=0.5)), Recipe()) == {"lr_decay"}
    del old["lr_decay_steps"], old["ema"]
    assert differing({**old, "colour": 1}, Recipe(schedule="linear")) == {"colour"}


@pytest.mark.parametrize("how", [{"reconstruction_weight": 0.1},
                                 {"options": {"reconstruction_weight": 0.1}},
                                 {"decoder_learning_rate": 0.1},
                                 {"reconstruction_anneal": 0.1}])  # fmt: skip
def test_no_reconstruction_with_an_option_of_it_is_refused(how):
    with pytest.raises(ValueError, match=r"--no-reconstruction and .* 0\.1"):
        pipeline.prepare("digits", {"reconstruction": False, **how})
    _, recipe = pipeline.prepare("digits", {"reconstruction": False, "reconstruction_weight": 0.0})
    assert recipe.options["reconstruction_weight"] == 0


def test_an_option_of_another_schedule_is_refused():
    with pytest.raises(ValueError, match="final_temperature is None, which a recipe file"):
        Recipe(options={"routing": "em", "final_temperature": None})
    with pytest.raises(ValueError, match="lr_decay has no effect with the schedule 'constant'"):
        pipeline.prepare("digits", {"schedule": "constant", "lr_decay": 0.5})


def test_flags_lie_over_the_recipe_and_the_rest_goes_to_the_network():
    flags = {"epochs": 2, "preset": "authors", "types": None, "reconstruction": False}
    flags["options"] = {"clip_norm": 5, "leaky": True}
    name, recipe = pipeline.prepare("digits", flags)
    assert name == "digits" and recipe.epochs == 2 and recipe.batch_size == 64
    assert recipe.options["preset"] == "authors" and recipe.options["types"] == 8
    assert recipe.clip_norm == 5 and recipe.options["leaky"] is True
    assert recipe.options["reconstruction_weight"] == 0


def test_options_of_the_data_set_and_of_the_network_are_laid_over_the_recipes(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text("[dataset_options]\neye = 'left'\nimage_size = 32\n[options]\ntypes = 8\n")
    flags = {"dataset_options": {"image_size": 96}, "options": {"leaky": True}, "channels": 9}
    _, recipe = pipeline.prepare(str(path), flags)
    assert recipe.dataset_options == {"eye": "left", "image_size": 96}
    assert recipe.options == {"types": 8, "leaky": True, "channels": 9}
    assert pipeline.prepare(str(path), {})[1] == read_recipe(path)


def test_another_model_is_given_none_of_the_recipes_options():
    _, recipe = pipeline.prepare("mnist", {"model": "resnet", "options": {"blocks": 1}})
    assert (recipe.model, recipe.options) == ("resnet", {"blocks": 1})
    same = pipeline.prepare("mnist", {"model": "capsnet"})[1]
    assert same == pipeline.prepare("mnist", {})[1] and same.options


@pytest.mark.parametrize(("fast", "meant"), [(True, "bf16"), (False, "fp32")])
def test_precision_auto_is_decided_by_the_processor(fast, meant, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: fast)
    cpu = torch.device("cpu")
    assert resolve_precision("auto", cpu) == meant
    assert {resolve_precision(name, cpu) for name in ("fp32", "bf16")} == {"fp32", "bf16"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kernel=9", ("kernel", 9)),
        ("padding=valid", ("padding", "valid")),
        ("channels = [128, 256]", ("channels", [128, 256])),
    ],
)
def test_an_option_is_read_as_in_a_recipe(text, expected):
    assert read_option(text) == expected


@pytest.mark.parametrize("text", ["kernel", "=9", "kernel=", "9=kernel"])
def test_what_is_no_option_is_refused(text):
    with pytest.raises(ValueError, match="expected NAME=VALUE"):
        read_option(text)


def test_options_of_a_data_set_reach_it_and_images_to_train_on_are_whole():
    recipe = Recipe(dataset="smallnorb", dataset_options={"eye": "left"}, image_size=48, crop_px=32)
    assert recipe.training_data_options == {"eye": "left", "image_size": 48}
    assert recipe.data_options == {"eye": "left", "image_size": 48, "crop_px": 32}
    assert Recipe(image_size=[48, 64]).data_options == {"image_size": [48, 64]}
    with pytest.raises(ValueError, match="takes no eye, got 'left'"):
        pipeline.load(Recipe(dataset="digits", dataset_options={"eye": "left"}), "test")


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


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"model": "matrix_capsnet", "decoder": "deconvolution"}, "no reconstruction weight and a"),
        ({"model": "matrix_capsnet", "reconstruction": True}, "add --option reconstruction_weight"),
        ({"model": "cnn", "decoder_learning_rate": 0.1}, "the network 'cnn' has no decoder"),
        ({"model": "resnet", "reconstruction": True}, "the network 'resnet' has no decoder"),
        ({"types": 8, "options": {"types": 4}}, "types is given twice, as 8 and as 4"),
        ({"options": {"clip_nrom": 5}}, r"option or recipe field .*did you mean 'clip_norm'"),
        ({"options": {"brightness": 3}}, "brightness must be at most 1, got 3"),
    ],
)
def test_options_without_effect_or_given_twice_are_refused(flags, message):
    with pytest.raises(ValueError, match=message):
        pipeline.prepare(None, flags)


def test_a_decoder_is_trained_where_one_is_asked_for():
    flags = {"reconstruction": True, "decoder": "deconvolution"}
    assert "reconstruction_weight" not in pipeline.prepare("assemblies", flags)[1].options
    more = {"model": "matrix_capsnet", "reconstruction_weight": 0.01}
    assert pipeline.prepare(None, flags | more)[1].options["reconstruction_weight"] == 0.01


def test_a_recipe_with_other_data_has_their_name_too():
    assert pipeline.prepare("mnist", {"dataset": "fashion_mnist"})[0] == "mnist-fashion_mnist"
    assert pipeline.prepare("mnist", {"epochs": 1})[0] == "mnist"
