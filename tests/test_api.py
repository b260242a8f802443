"""What `import capsviz` offers: names, own pictures, networks, torch.hub."""

import ast

import numpy as np
import pytest
import torch
from PIL import Image

import capsviz
from capsviz import discovery, pictures
from capsviz.inputs.opening import open_inputs
from capsviz.nn import models

STUB = discovery.folder("capsviz") / "__init__.pyi"


def test_dir_shows_what_is_offered_and_nothing_else():
    assert dir(capsviz) == sorted(capsviz.__all__)
    assert capsviz.load and capsviz.plot and capsviz.wrap
    assert {"checkpoint", "wrapping"} <= vars(capsviz).keys()  # by now, and they are not shown
    assert dir(capsviz) == sorted(capsviz.__all__)


def test_type_checkers_are_told_of_the_same_names():
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    names = {a.asname for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names}
    names |= {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    names |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert names == set(capsviz.__all__)
    assert (STUB.parent / "py.typed").exists()


def test_models_and_datasets_are_listed_by_the_names_that_load_takes():
    assert "digits" in capsviz.models() and "digits" in capsviz.datasets()
    assert capsviz.load(capsviz.models()[0]) is not None


def test_a_map_lies_over_its_image_in_one_line():
    image, values = torch.zeros(1, 28, 28), np.array([[-2.0, 0], [0, 1]])
    image[:, 10:20, 10:20] = 1
    axes = capsviz.overlay(image, values)
    grey, coloured = axes.images
    assert list(grey.get_extent()) == list(coloured.get_extent()) == [-0.5, 27.5, 27.5, -0.5]
    assert coloured.norm.vmax == 2 == -coloured.norm.vmin
    with pytest.raises(ValueError, match=r"expected an image \(C, H, W\) and a map"):
        capsviz.overlay(image[None], values)
    for pixels, said in ((image.byte(), "float images"), (255 * image, r"in \[0, 1\], got .* 255")):
        with pytest.raises(ValueError, match=f"expected .*{said}"):
            capsviz.overlay(pixels, values)


def test_a_network_is_made_by_its_class_as_by_its_name():
    options = {"types": 2, "channels": 5, "routing": "em"}
    one = capsviz.CapsNet((1, 21, 19), 3, **options)
    two = models.build("capsnet", (1, 21, 19), 3, **options)
    assert isinstance(two, capsviz.CapsNet) and one.config == two.config
    assert capsviz.CapsNet(types=2).config["image_shape"] == (1, 28, 28)
    with pytest.raises(ValueError, match="rooting"):
        capsviz.CapsNet(rooting="em")


def test_a_picture_is_opened_for_a_network(tmp_path):
    pixels = np.full((200, 300), 255, np.uint8)
    pixels[40:160, 140:160] = 0  # a one on paper
    Image.fromarray(pixels).save(tmp_path / "one.png")
    image = capsviz.open_image(tmp_path / "one.png")
    assert image.shape == (1, 1, 28, 28) and image.dtype == torch.float32
    assert image.max() > 0.9 and image[..., :4].max() == 0  # bright ink in the middle
    model = capsviz.load("digits")
    expected = pictures.prepare(tmp_path / "one.png", pictures.frame(model)).image
    assert torch.equal(capsviz.open_image(tmp_path / "one.png", model), expected)
    fresh = capsviz.CapsNet((3, 24, 20), types=2)  # without a card
    assert capsviz.open_image(tmp_path / "one.png", fresh).shape == (1, 3, 24, 20)
    assert capsviz.trace(model, image).lengths.shape == (1, 10)
    with pytest.raises(ValueError, match="there is no file"):
        capsviz.open_image(tmp_path / "two.png")
    with pytest.raises(TypeError, match="expected the path of a picture file, got ndarray"):
        capsviz.open_image(pixels)
    with pytest.raises(ValueError, match=r"Linear does not say .* capsviz\.wrap"):
        capsviz.open_image(tmp_path / "one.png", torch.nn.Linear(2, 2))


def test_torch_hub_loads_trained_and_new_networks_from_a_checkout():
    place = {"repo_or_dir": str(discovery.root()), "source": "local"}
    model = torch.hub.load(model="pretrained", name="digits", **place)
    assert model.card["name"] == "digits" and not model.training
    small = torch.hub.load(model="capsnet", classes=3, types=2, routing="k_means", **place)
    assert small.config["classes"] == 3 and small.config["routing"] == "k_means"


def test_what_a_loop_of_ones_own_trained_is_kept_and_opened(tmp_path):
    part = capsviz.data.load("digits", "train")
    model = capsviz.CapsNet(types=2, channels=4, routing="em").eval()
    path = capsviz.save(model, tmp_path / "mine", part)
    assert path == tmp_path / "mine" / "mine.safetensors"
    again = capsviz.load(tmp_path / "mine")
    images = part[0][0][None]
    assert torch.equal(again(images).lengths, model(images).lengths)  # stored as it is
    assert again.card["name"] == "mine" and again.card["dataset"]["classes"] == list("0123456789")
    other = capsviz.save(model, tmp_path / "two.safetensors", part, options={"download": False})
    assert other == tmp_path / "two.safetensors"
    assert capsviz.load(other).card["dataset"]["options"] == {"download": False}


def test_a_data_set_remembers_its_options_and_what_is_saved_is_opened_with_them(tmp_path):
    given = {"block": 2, "pad_px": 2, "crop_px": 30}
    part = capsviz.data.load("digits", "train", **given).first(50)
    assert part.options == given and capsviz.data.load("digits", "train").options == {}
    model = capsviz.CapsNet(part.image_shape, types=2, channels=4)
    path = capsviz.save(model, tmp_path / "mine", part)
    assert capsviz.load(path).card["dataset"]["options"] == given
    test = capsviz.data.load("digits", "test", **given)
    assert open_inputs(checkpoint=str(path)).dataset.digest == test.digest


def test_what_commands_could_not_open_is_not_kept(tmp_path):
    part = capsviz.data.load("digits", "train")
    with pytest.raises(ValueError, match=r"--network FILE\.py:FUNCTION --weights FILE"):
        capsviz.save(torch.nn.Linear(3, 3), tmp_path / "mine", part)
    with pytest.raises(ValueError, match=r"of 3 classes, but digits has \(1, 28, 28\) of 10"):
        capsviz.save(capsviz.CapsNet(classes=3, types=2, channels=4), tmp_path / "mine", part)
    assert not (tmp_path / "mine").exists()
