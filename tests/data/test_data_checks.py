"""What is said of a data set before it is used, and `capsviz data`."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import command_line
from matplotlib import rc_context
from PIL import Image

from capsviz import data
from capsviz.commands.data import drawn
from capsviz.data import Dataset, _splits


def noise(labels, seed=0):
    images = torch.randint(0, 256, (len(labels), 1, 6, 6), dtype=torch.uint8,
                           generator=torch.Generator().manual_seed(seed))  # fmt: skip
    return Dataset(images, labels, ("a", "b"), "noise", "test")


def test_nothing_is_said_of_a_sound_data_set():
    splits = {"train": noise([0, 1] * 10), "test": noise([0, 1] * 10, seed=1)}
    assert data.check(splits) == []
    assert data.summary(splits["test"]) == (
        "noise test: 20 images (1, 6, 6) of 2 classes (a 10, b 10)"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda part: noise([0] * 19 + [1]), "1 images of b and 19 of a.* correct for 95.0%"),
        (lambda part: noise([0] * 20), "no image of 1 classes .b."),
        (lambda part: Dataset(part.images // 8, part.labels, 2), "brighter than 31 of 255"),
        (lambda part: Dataset(part.images * 0 + 9, part.labels, 2), "20 of 20 images are of one"),
    ],
)
def test_what_is_odd_about_a_split_is_one_line_for_all_splits(change, message):
    part = change(noise([0, 1] * 10))
    lines = data.check({"validation": part, "test": part})
    (line,) = (one for one in lines if re.search(message, one))
    assert line.startswith("WARN validation, test: ")


def test_images_that_are_in_training_and_test_are_counted():
    train = noise([0, 1] * 10)
    test = train.take(slice(7))
    assert data.check({"train": train, "test": test}) == [
        "WARN test: 7 of 7 images are also in train"
    ]
    twice = Dataset(
        torch.cat([train.images, train.images[:3]]), [0, 1] * 10 + [1, 0, 1], ("a", "b")
    )
    lines = data.check({"train": twice, "test": noise([0, 1], seed=1)})
    assert lines == ["WARN train: 3 images also appear with another class"]


@pytest.fixture
def folder(tmp_path):
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            (tmp_path / "mine" / split / name).mkdir(parents=True)
            for k in range(10):
                pixels = np.random.default_rng(k).integers(0, 256, (20, 30, 3), np.uint8)
                Image.fromarray(pixels).save(tmp_path / "mine" / split / name / f"{k}.png")
    return tmp_path / "mine"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("patient{group:02}_slice{k}", True), ("P-{group}-{k}", True), ("{group}_{k}", True),
        ("img_{k:03}", False), ("IMG_{k}", False), ("IMG_2021031{group}_{k}", False),
        ("2021-0{group}-{k}", False), ("{k}", False), ("train_image_{k}", False),
        ("{k}_{label}", False), ("n0{label}_{k}", False), ("cat.{k}", False),
    ],
)  # fmt: skip
def test_groups_of_file_names_that_two_splits_share_are_found(pattern, found):
    rows = [(k, k % 2, k % 9) for k in range(90)]
    train, part = (
        [(pattern.format(k=k + start, label=label, group=group), label) for k, label, group in some]
        for start, some in ((0, rows), (1000, rows[:30]))
    )
    if pattern == "{k}_{label}":  # counted anew in each split
        part = train[:30]
    assert len(_splits.groups_in_both(train, part)) == (9 if found else 0)
    assert _splits.groups_in_both(train[:9], train[9:18]) == []  # no group of several


def run(*words):
    return command_line.run("data", *words)


def test_a_sheet_has_the_house_style_and_class_names_as_they_are_written(tmp_path):
    part = replace(noise([0, 1] * 10), classes=(r"$\frob$", "R&D"))
    sheets = []
    for size in (6, 30):
        with rc_context({"ytick.labelsize": size}):  # as a user's matplotlibrc may have it
            drawn(part, tmp_path / "sheet.png")
        sheets.append(np.asarray(Image.open(tmp_path / "sheet.png")))
    assert np.array_equal(*sheets)


def test_the_command_says_what_is_in_a_folder_and_draws_it(folder, tmp_path):
    (folder / "train" / "cat" / "notes.txt").write_text("x")
    (folder / "labels.csv").write_text("file,label\n0.png,cat\n")
    for name, pixels in (("b", np.zeros((116, 164, 3), np.uint8)), ("c", np.ones((9, 9), "u2"))):
        Image.fromarray(pixels).save(folder / "train" / "dog" / f"{name}.png")
    said = command_line.fine(run(folder, "--save-figure", tmp_path / "sheet.png"))
    lines = said.output.splitlines()
    of = "41 PNG RGB of 8 bits, 1 PNG grey of 16 bits; width 9 to 164, height 9 to 116 pixels"
    assert f"pictures: {of}" in lines
    assert "mine train: 20 images (1, 28, 28) of 2 classes (cat 9, dog 11)" in lines
    assert f"left out of {folder}: 2 files that are not pictures (1 .csv, 1 .txt)" in lines
    assert any(line.startswith("WARN test: ") and "also in train" in line for line in lines)
    assert any(line.startswith("WARN train: depths differ") for line in lines)
    assert np.ptp(np.asarray(Image.open(tmp_path / "sheet.png"))) == 255
    assert run(folder, "--save-figure", tmp_path / "sheet.png").exit_code == 2
    about = json.loads(run(folder, "--json", "--image-size", 20).output)
    assert about["images"]["test"] == {"cat": 10, "dog": 10}
    assert about["options"]["image_size"] == 20


def test_the_command_knows_data_sets_and_files_of_arrays(tmp_path):
    assert "digits test: 360 images (1, 28, 28) of 10 classes (0 36, " in run("digits").output
    said = run("digits", "--data-option", "blok")
    assert said.exit_code == 2
    assert said.stderr.endswith("takes no blok, got None: expected block\n")
    names = np.array(["ant", "bee"])
    images = np.eye(9)[[np.arange(9)] * 30]
    np.savez(tmp_path / "x.npz", images=images, labels=np.arange(30) % 2, classes=names)
    for words in (("digits", "--dataset", "mnist"), (tmp_path / "x.npz", "--data-dir", tmp_path)):
        command_line.refused(run(*words), "exclude each other: drop one")
    assert run(tmp_path / "x.npz", "--export", tmp_path / "y.npz").exit_code == 0
    assert "(ant 10, bee 10)" in run(tmp_path / "y.npz").output
    lines = run(tmp_path / "x.npz").output.splitlines()
    assert lines[0] == "array images: (30, 9, 9) float64, 0 to 1"
    assert "of 2 classes (ant 10, bee 10)" in run(tmp_path / "x.npz").output
