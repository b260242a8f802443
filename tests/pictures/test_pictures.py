"""A user's pictures: every kind that people have is read, as a network's own data were."""

import re
import struct
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

import capsviz
from capsviz import data, pictures
from capsviz.pictures import opening

SHAPE = pictures.Frame((1, 28, 28))


def read(path, frame=SHAPE):
    return pictures.prepare(path, frame).image


def stroke(size=(280, 280), ink=255, ground=0, mode="L", where=(60, 40, 90, 230)):
    image = Image.new(mode, size, ground)
    ImageDraw.Draw(image).rectangle(where, fill=ink)
    return image


def save(tmp_path, image, name="x.png"):
    image.save(tmp_path / name)
    return tmp_path / name


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "1", "LA", "CMYK"])
def test_every_mode_of_colour_is_read(tmp_path, mode):
    image = stroke().convert("RGB").convert(mode)
    path = save(tmp_path, image, "x.tif" if mode == "CMYK" else "x.png")
    plain = read(save(tmp_path, stroke(), "y.png"))
    assert abs(read(path) - plain).max() < 0.02


@pytest.mark.parametrize("ink", [0, 255])
def test_ink_on_a_transparent_ground_is_seen_whether_black_or_white(tmp_path, ink):
    image = Image.new("RGBA", (280, 280), (0, 0, 0, 0))
    ImageDraw.Draw(image).rectangle((60, 40, 90, 230), fill=(ink, ink, ink, 255))
    plain = read(save(tmp_path, stroke(), "y.png"))
    assert abs(read(save(tmp_path, image)) - plain).max() < 1e-6


def test_colour_networks_get_three_channels_resized(tmp_path):
    path = save(tmp_path, stroke(mode="RGB", ink=(255, 0, 0), ground=(0, 0, 255)))
    image = read(path, pictures.Frame((3, 32, 20)))
    assert image.shape == (1, 3, 32, 20) and image[0, 0].max() > 0.9 and image[0, 1].max() < 0.1


@pytest.mark.parametrize("top", [1.0, 1023, 4095, 16383, 65535, 100_000])
def test_grey_values_of_any_depth_are_read_alike(tmp_path, top):
    ramp = np.linspace(0, 1, 40 * 40, dtype=np.float32).reshape(40, 40)
    pixels = ramp if top == 1 else (ramp * top).astype(np.int32 if top > 65535 else np.uint16)
    read = pictures.load(save(tmp_path, Image.fromarray(pixels), "x.tif"))
    np.testing.assert_allclose(read[..., 0], ramp, atol=2e-3)


def test_a_deep_tiff_in_which_0_is_white_is_no_negative(tmp_path):
    ramp = np.linspace(0, 1, 40 * 40, dtype=np.float32).reshape(40, 40)
    path = save(tmp_path, Image.fromarray((ramp * 4095).astype(np.uint16)), "x.tif")
    content = bytearray(path.read_bytes())
    entry = content.index(struct.pack("<HHI", 262, 3, 1))
    content[entry + 8 : entry + 10] = bytes(2)
    path.write_bytes(content)
    read = pictures.load(path, top=4095)
    np.testing.assert_allclose(read[..., 0], 1 - ramp, atol=2e-3)


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (Image.new("L", (1, 300), 255), "is 1 x 300 pixels, expected at least 4"),
        (Image.new("L", (3, 3), 255), "is 3 x 3 pixels, expected at least 4"),
        (Image.new("1", (12_000, 12_000)), "at most 50,000,000"),
        (Image.fromarray(np.full((40, 40), np.nan, np.float32)), "not numbers"),
        *((Image.new("L", (50, 50), grey), "is empty") for grey in (0, 128, 255)),
        *((content, "is not a picture that can be read") for content in (b"", b"hello", 5_000)),
        (Image.fromarray(np.full((9, 9), -5, np.int32)), "signed ones are not read: add 5"),
        (bytes(128) + b"DICM", "it is DICOM: .* by pydicom"),
        (None, "there is no file"),
        ("folder", "is not a picture"),
    ],
    ids=range(14),
)
def test_what_cannot_be_read_as_a_picture_is_refused(tmp_path, picture, message):
    path = tmp_path / "x.tif"
    if isinstance(picture, Image.Image):
        picture.save(path)
    elif isinstance(picture, int):  # a picture that is cut short
        path.write_bytes(save(tmp_path, Image.effect_noise((200, 200), 80)).read_bytes()[:picture])
    elif isinstance(picture, bytes):
        path.write_bytes(picture)
    elif picture == "folder":
        path.mkdir()
    with pytest.raises(ValueError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("files", "top", "words"),
    [
        ({"a.png": "L", "b.tif": "I;16"}, 0, "depths differ: .* 1 of 16 bits by 65,535"),
        ({"a.tif": "F", "b.tif": "I;16"}, 0, "depths differ: .* 1 of 32 bits by 1"),
        ({"a.png": "RGB", "b.tif": "I;16"}, 4095, "--range is for grey .* by 4,095"),
        ({"a.png": "L"}, 4095, "--range is for grey .*, 1 of 8 bits by 255"),
        ({"a.gif": "L", "b.gif": "L"}, 0, "2 files hold several pictures: .* and 4 more are left"),
        ({"a.tif": "L", "b.tif": "RGB", "c.png": "LA"}, 0, "^$"),
    ],
)
def test_depths_and_pages_of_pictures_are_one_line(tmp_path, files, top, words):
    more = {"save_all": True, "append_images": [Image.new("L", (9, 9), k) for k in (99, 199)]}
    for name, mode in files.items():
        how = more if name.endswith("gif") else {}
        Image.new(mode, (9, 9), 1).save(tmp_path / name, **how)
    kinds = opening.kinds([*tmp_path.iterdir(), tmp_path / "none.png"])
    assert len(kinds) == len(files) and re.search(words, "".join(opening.doubts(kinds, top)))


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
    part = data.load("folder", "test", folder, image_size=size, image_channels=channels)
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


@pytest.mark.parametrize("names", ["0123456789", None, ("shirt", "coat"), ("0 - zero", "1 - one")])
def test_strokes_are_looked_for_where_classes_are_digits_or_not_known(names):
    about = {"name": "mine"} | ({} if names is None else {"classes": list(names)})
    config = {"image_shape": (1, 28, 28), "classes": len(names or "ab")}
    model = SimpleNamespace(config=config, card={"dataset": about})
    assert pictures.frame(model).centred is (names is None or "shirt" not in names)


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
    colour = network(data.load("folder", "test", folder, image_channels=3))
    with pytest.raises(ValueError, match="are for networks of grey images"):
        capsviz.open_image(file, colour, invert="yes")


@pytest.mark.parametrize("ink", [120, 135])
def test_transparent_ground_is_white_in_a_set(tmp_path, ink):
    image = Image.new("RGBA", (20, 20), (0, 0, 0, 0))
    image.paste((ink, ink, ink, 255), (5, 5, 15, 15))
    image.save(tmp_path / "x.png")
    found = opening.cover(opening.load(tmp_path / "x.png", alike=True), 20, 1)[0]
    assert found[0, 0] == 255 and found[10, 10] == ink
