"""Pictures of class folders: read alike, each by itself, and as the network's own data were."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import capsviz
from capsviz import data, pictures
from capsviz.pictures import opening
from capsviz.pictures.opening import load


@pytest.fixture
def folder(tmp_path):
    """Two classes of pictures wider than high, light ground, the ink to one side."""
    generator = np.random.default_rng(0)
    for split in data.SPLITS:
        for name, left in (("left", 4), ("right", 52)):
            (tmp_path / split / name).mkdir(parents=True)
            for k in range(2):
                pixels = generator.integers(180, 256, (40, 80, 3)).astype(np.uint8)
                pixels[8:30, left + k : left + 20] = (30, 60, 90)
                Image.fromarray(pixels).save(tmp_path / split / name / f"{k}.png")
    return tmp_path


def network(part, **options):
    about = {"name": "folder", "whole": list(part.image_shape), "options": options}
    shape = part.image_shape if "crop_px" not in options else (part.image_shape[0], 20, 20)
    return SimpleNamespace(config={"image_shape": shape}, card={"dataset": about})


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [28, 32, (28, 40)])
def test_a_network_of_class_folders_is_given_a_picture_as_its_data_were(folder, channels, size):
    part = data.load("folder", "test", folder, image_size=size, channels=channels)
    height, width = (size, size) if isinstance(size, int) else size
    assert part.image_shape == (channels, height, width)
    files = [folder / "test" / name / f"{k}.png" for k in range(2) for name in ("left", "right")]
    images = torch.cat([capsviz.open_image(file, network(part)) for file in files])
    assert images.equal(part.images / 255)
    cropped = capsviz.open_image(files[0], network(part, crop_px=20))
    top, left = (height - 20) // 2, (width - 20) // 2
    assert cropped.equal(images[:1, :, top : top + 20, left : left + 20])


@pytest.mark.parametrize(("size", "shown"), [(4, (4, 4)), ((4, 8), (4, 8)), ((6, 4), (6, 4))])
def test_a_picture_covers_its_rectangle_and_keeps_its_proportions(size, shown):
    wide = np.zeros((20, 40, 3), np.float32)
    wide[:, 20:] = 1  # dark on the left half
    found = opening.cover(wide, size, 1)
    assert found.shape == (1, *shown)
    assert found[..., : shown[1] // 2].max() < 64 < 192 < found[..., shown[1] // 2 :].min()


@pytest.mark.parametrize("size", [0, (4, 0), (4, 4, 4), 2.5, ("4", 4)])
def test_a_size_that_is_none_is_refused(size, folder):
    with pytest.raises(ValueError, match="image_size must be pixels, as 32 or"):
        data.load("folder", "test", folder, image_size=size)


def test_a_grey_one_is_inverted_or_centred_where_that_is_named(folder):
    part = data.load("folder", "test", folder)
    file, model = folder / "test" / "left" / "0.png", network(part)
    plain = capsviz.open_image(file, model)
    assert capsviz.open_image(file, model, invert="no").equal(plain)
    torch.testing.assert_close(capsviz.open_image(file, model, invert="yes"), 1 - plain)
    centred = pictures.prepare(file, pictures.frame(model), centre=True)
    assert "ink" in centred.steps and not centred.image.equal(plain)
    model.card["dataset"] |= {"name": "arrays", "options": {"range": 4095.0}}
    frame = pictures.frame(model)
    assert frame.folders and not frame.centred and frame.top == 4095
    with pytest.raises(ValueError, match="inversion"):
        capsviz.open_image(file, model, invert="perhaps")


@pytest.mark.parametrize("ink", [120, 135])
def test_transparent_ground_is_white_in_a_set(tmp_path, ink):
    image = Image.new("RGBA", (20, 20), (0, 0, 0, 0))
    image.paste((ink, ink, ink, 255), (5, 5, 15, 15))
    image.save(tmp_path / "x.png")
    found = opening.cover(load(tmp_path / "x.png", alike=True), 20, 1)[0]
    assert found[0, 0] == 255 and found[10, 10] == ink
