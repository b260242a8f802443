"""The real MNIST-C's files: read in its layout; absence and damage are said plainly."""

import numpy as np
import pytest
import torch

from capsviz import data
from capsviz.inputs.opening import open_inputs
from capsviz.training import run as pipeline
from capsviz.training.recipe import Recipe


def write(root, corruption="fog", n=12, part="test"):
    """A small folder in MNIST-C's layout; its images and labels."""
    folder = root / "mnist_c" / corruption
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (n, 28, 28, 1), dtype=np.uint8)
    labels = np.arange(n, dtype=np.int64) % 10
    np.save(folder / f"{part}_images.npy", images)
    np.save(folder / f"{part}_labels.npy", labels)
    return images, labels


def load(root, corruption="fog", split="test"):
    return data.load("mnist_c", split, root, corruption=corruption)


def test_a_corruption_is_read_in_its_order(tmp_path):
    images, labels = write(tmp_path)
    part = load(tmp_path)
    assert part.images.shape == (12, 1, 28, 28) and part.images.dtype == torch.uint8
    assert np.array_equal(part.images[:, 0], images[..., 0])
    assert part.labels.tolist() == labels.tolist() and part.labels.dtype == torch.int64
    assert part.name == "mnist_c" and part.classes == tuple("0123456789")


def test_a_network_trained_on_a_corruption_is_opened_with_it(tmp_path):
    for corruption in ("fog", "identity"):
        for part, n in (("train", 5_040), ("test", 20 if corruption == "fog" else 10)):
            write(tmp_path, corruption, n, part)
    small = {"channels": 8, "types": 2, "hidden": [8, 9]}
    fog = {"corruption": "fog"}
    recipe = Recipe(dataset="mnist_c", dataset_options=fog, options=small, epochs=1, limit=32)
    splits = {split: pipeline.load(recipe, split, tmp_path) for split in data.SPLITS}
    splits["validation"] = splits["validation"].first(8)
    path, _ = pipeline.run("x", recipe, splits, tmp_path / "run", device=torch.device("cpu"))
    opened = open_inputs(checkpoint=path, data_dir=tmp_path)
    assert torch.equal(opened.dataset.images, splits["test"].images)
    assert len(opened.load("validation")) == 5_000 and len(opened.load("test")) == 20


def test_absence_says_where_the_files_belong(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"mnist_c: unpack mnist_c\.zip .*--data-dir"):
        load(tmp_path)
    (tmp_path / "mnist_c").mkdir()
    with pytest.raises(FileNotFoundError, match="holds no corruption"):
        load(tmp_path)
    (tmp_path / "mnist_c" / "fog").mkdir()
    with pytest.raises(FileNotFoundError, match=r"test_images\.npy is missing"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["frog", "../mnist_c/fog"])
def test_an_unknown_corruption_is_refused_with_those_there(tmp_path, name):
    write(tmp_path)
    with pytest.raises(ValueError, match=r"unknown corruption in MNIST-C .*expected one of: fog"):
        load(tmp_path, name)


@pytest.mark.parametrize("file", ["test_images.npy", "test_labels.npy"])
@pytest.mark.parametrize("kept", [0, -9])
def test_a_file_that_is_cut_short_is_refused(tmp_path, file, kept):
    write(tmp_path)
    path = tmp_path / "mnist_c" / "fog" / file
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=rf"{file} is damaged or cut short"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        ("test_images.npy", np.zeros((12, 28, 28), np.uint8), r"\(N, 28, 28, 1\).*\(12, 28, 28\)"),
        ("test_images.npy", np.zeros((12, 28, 28, 1)), "whole numbers .*float64"),
        ("test_images.npy", np.full((12, 28, 28, 1), 256), "from 0 to 255, got 256 to 256"),
        ("test_labels.npy", np.zeros(11, int), r"expected whole numbers \(12\), got int64 \(11,\)"),
        ("test_labels.npy", np.full(12, 10), "from 0 to 9, got 10 to 10"),
        ("test_labels.npy", np.array([{}] * 12), "damaged"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(tmp_path, file, array, message):
    write(tmp_path)
    np.save(tmp_path / "mnist_c" / "fog" / file, array)
    with pytest.raises(ValueError, match=message):
        load(tmp_path)
