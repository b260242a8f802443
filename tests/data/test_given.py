"""Images and labels of any usual kind make one data set; others are refused in one line."""

import numpy as np
import pytest
import torch
from PIL import Image

from capsviz import Dataset
from capsviz.data import check

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 3, 6, 7), np.uint8)
LABELS = np.arange(12) % 3
LAST = PIXELS.transpose(0, 2, 3, 1)
USUAL = Dataset(torch.from_numpy(PIXELS), torch.from_numpy(LABELS), ("0", "1", "2"), "x", "train")


@pytest.mark.parametrize(
    "images",
    [
        PIXELS,
        LAST,
        list(LAST),
        list(torch.from_numpy(PIXELS)),
        [Image.fromarray(one) for one in LAST],
        PIXELS.astype(np.int32),
        PIXELS.astype(np.float64),
        PIXELS / 255,
        torch.from_numpy(LAST / np.float32(255)),
    ],
)
def test_images_of_any_usual_type_and_layout_are_the_same(images):
    assert Dataset(images, LABELS).digest == USUAL.digest


@pytest.mark.parametrize(
    "labels",
    [
        LABELS.astype(np.uint8)[:, None],
        LABELS.astype(np.int32),
        LABELS.astype(np.float64),
        LABELS.tolist(),
        torch.from_numpy(LABELS).int(),
        np.eye(3)[LABELS],
        [str(label) for label in LABELS],
    ],
)
def test_labels_of_any_usual_type_and_shape_are_the_same(labels):
    part = Dataset(PIXELS, labels)
    assert part.digest == USUAL.digest and part.classes == ("0", "1", "2")
    assert part.labels.dtype == torch.int64


def test_grey_images_need_no_axis_of_channels_and_bool_is_black_and_white():
    grey = PIXELS[:, 0, :6, :6]
    whole = Dataset(grey, LABELS)
    assert whole.image_shape == (1, 6, 6) and np.array_equal(whole.images[:, 0], grey)
    assert Dataset(grey.reshape(12, 36), LABELS).digest == whole.digest
    assert Dataset(grey > 99, LABELS).images.unique().tolist() == [0, 255]


def test_the_axis_of_many_channels_is_the_one_unlike_two_equal_sides():
    bands = np.arange(12 * 20 * 36, dtype=np.uint8).reshape(12, 20, 6, 6)
    whole = Dataset(bands, LABELS)
    assert whole.image_shape == (20, 6, 6) and np.array_equal(whole.images, bands)
    assert Dataset(np.moveaxis(bands, 1, -1), LABELS).digest == whole.digest
    assert Dataset(whole.images[..., :5], LABELS).image_shape == (20, 6, 5)


def test_a_torch_data_set_is_read_with_its_classes():
    rows = torch.utils.data.TensorDataset(torch.from_numpy(PIXELS) / 255, torch.from_numpy(LABELS))
    assert Dataset(rows).digest == USUAL.digest
    rows.classes = ["ant", "bee", "cat"]
    assert Dataset(rows).classes == ("ant", "bee", "cat")
    part = Dataset(torch.utils.data.Subset(rows, [int(k) for k in np.flatnonzero(LABELS > 0)]))
    assert part.classes == ("ant", "bee", "cat") and part.labels.min() == 1


def test_classes_are_the_labels_that_occur_in_natural_order_or_those_that_are_named():
    assert Dataset(PIXELS, LABELS * 10 + 1).classes == ("1", "11", "21")
    part = Dataset(PIXELS, np.array(["x10", "x9", "x2"])[LABELS])
    assert part.classes == ("x2", "x9", "x10") and part.labels[:3].tolist() == [2, 1, 0]
    assert Dataset(PIXELS, LABELS > 0).classes == ("0", "1")
    assert Dataset(PIXELS, LABELS, 5).classes == ("0", "1", "2", "3", "4")
    assert Dataset(PIXELS, LABELS, np.int64(5)).classes == ("0", "1", "2", "3", "4")
    for names in (np.array([[b"ant"], [b"bee"], [b"cat"]]), np.array(["ant", "bee", "cat"])):
        assert Dataset(PIXELS, LABELS, names).classes == ("ant", "bee", "cat")
    signed = Dataset(PIXELS, np.where(LABELS > 0, 1, -1))
    assert signed.classes == ("-1", "1") and signed.labels.tolist() == (LABELS > 0).tolist()


def test_a_picture_with_a_palette_has_its_colours():
    picture = Image.new("P", (8, 8), 2)
    picture.putpalette([0, 0, 0, 255, 255, 255, 200, 100, 50])
    (image,) = Dataset([picture], [0]).images
    assert image[:, 0, 0].tolist() == [200, 100, 50]


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int8, np.int64, np.float16, np.float64])
def test_masks_are_black_and_white_in_numbers_of_any_type(kind):
    masks = PIXELS > 100
    part = Dataset(masks.astype(kind), LABELS)
    assert np.array_equal(part.images, 255 * masks)
    dark = Dataset(torch.from_numpy(masks).byte(), LABELS)  # kept: a part may be dark
    (line,) = (one for one in check({"train": dark}) if "brighter" in one)
    assert dark.images.max() == 1 and line.endswith("multiply by 255 / 1 yourself")


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (PIXELS / 127 - 1, LABELS, "from -1 .* undo the normalisation"),
        (PIXELS.astype(np.uint16) + 300, LABELS, "uint16 from 300 .*--range"),
        (np.full((12, 6, 6), np.nan), LABELS, "float64 from nan"),
        (PIXELS[0, 0, 0], LABELS, r"shape \(7,\): expected \(N, H, W\).*inputs=True"),
        (PIXELS.reshape(12, -1), LABELS, r"shape \(12, 126\): expected .* squares"),
        ([LAST[0], LAST[1, 1:]], LABELS[:2], r"different shapes, \(5, 7, 3\) and \(6, 7, 3\)"),
        (["a.png"] * 12, LABELS, "images must be numbers, got <U5"),
        (PIXELS, LABELS[:5], "12 images, but 5 labels"),
        (PIXELS, np.ones((12, 3)), "expected one class per image"),
        (PIXELS, LABELS + 0.5, "whole numbers or names, got fractions"),
        (PIXELS, None, "a ndarray without labels"),
        (PIXELS, (["dog"] * 12, ("cat",)), "unknown class dog, expected"),
        (PIXELS, (LABELS, ("a", "b")), "labels of 2 classes must be 0 to 1, got 0 to 2"),
        (PIXELS, (LABELS, ("a", "a", "b")), "different names"),
        (PIXELS, np.array(["a", "b", ""])[LABELS], "whole numbers or names, got empty ones"),
    ],
)
def test_what_is_no_image_or_label_is_refused_in_one_line(images, labels, message):
    with pytest.raises(ValueError, match=message) as error:
        Dataset(images, *(labels if isinstance(labels, tuple) else (labels,)))
    assert "\n" not in str(error.value)


def test_items_that_are_dicts_have_images_and_labels_by_name():
    images, labels = torch.rand(6, 3, 8, 9), [0, 1, 2, 0, 1, 2]
    items = [
        {"label": y, "image": x, "id": k}
        for k, (x, y) in enumerate(zip(images, labels, strict=True))
    ]
    part = Dataset(items_of(items))
    assert part.labels.tolist() == labels and part.images.shape == (6, 3, 8, 9)
    with pytest.raises(
        ValueError, match=r"expected .* \(image, label\) .*an item with the keys id"
    ):
        Dataset(items_of([{"id": 1}]))


def items_of(items):
    class Items(torch.utils.data.Dataset):
        def __len__(self):
            return len(items)

        def __getitem__(self, k):
            return items[k]

    return Items()
