"""Class folders of a user's pictures: their splits, what is left out, and how pictures are read."""

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from helpers import command_line
from PIL import Image, features

from capsviz import data
from capsviz.inputs.opening import open_inputs
from capsviz.pictures import opening


def make_folder(root: Path, counts, size=(40, 30), mode="RGB"):
    for name, n in counts.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for k in range(n):
            Image.new(mode, size, color=k * 3).save(root / name / f"{k}.png")


def test_a_data_set_without_weights_or_recipe_says_how_to_train_some(tmp_path):
    make_folder(tmp_path, {"cat": 20, "dog": 40})
    words = rf"`capsviz train --dataset folder`.* runs/{tmp_path.name}"
    with pytest.raises(ValueError, match=words):
        open_inputs(dataset="folder", data_dir=tmp_path)


def test_pictures_are_called_as_their_folder_is_and_never_as_another_data_set(tmp_path):
    for name, called in (("my pictures", "my-pictures"), ("mnist", "own-mnist")):
        make_folder(tmp_path / name, {"cat": 10, "dog": 20})
        part = data.load("folder", "train", tmp_path / name)
        assert (part.name, part.loader) == (called, "folder")
        assert (part.first(3).name, part.first(3).loader) == (called, "folder")


@pytest.mark.parametrize(
    ("tree", "train", "validation", "test"),
    [
        ({"cat": 20, "dog": 40}, [14, 28], [2, 4], [4, 8]),
        ({"few": 4, "fewer": 4, "many": 200}, [2, 2, 140], [1, 1, 20], [1, 1, 40]),
        ({str(k): 3 for k in range(1, 13)}, [1] * 12, [1] * 12, [1] * 12),
        ({"train/a": 20, "train/b": 20}, [14, 14], [2, 2], [4, 4]),
        ({"train/a": 20, "train/b": 20, "test/a": 3, "test/b": 4}, [18, 18], [2, 2], [3, 4]),
        ({"train/a": 9, "train/b": 9, "val/a": 3, "val/b": 3, "test": 5}, [7, 7], [3, 3], [2, 2]),
        ({f"{split}/{name}": 3 for split in ("Training", "VAL", "testing") for name in "ab"},
         [3, 3], [3, 3], [3, 3]),
        ({f"{name}/{split}": n for split, n in (("Train", 20), ("test", 3)) for name in "ab"},
         [18, 18], [2, 2], [3, 3]),
        ({f"y/x/{split}/{name}": 3 for split in ("TRAIN", "dev", "test_set/x") for name in "ab"},
         [3, 3], [3, 3], [3, 3]),
    ],
    ids=range(9),
)  # fmt: skip
def test_splits_are_those_of_the_folders_and_the_missing_ones_are_drawn_by_class(
    tmp_path, tree, train, validation, test
):
    make_folder(tmp_path, tree)
    parts = {s: data.load("folder", s, tmp_path, image_size=12) for s in data.SPLITS}
    counts = [part.labels.bincount().tolist() for part in parts.values()]
    assert counts == [train, validation, test]
    names = list(dict.fromkeys(path.rpartition("/")[2] for path in tree if path != "test"))
    names = ["a", "b"] if "a/test" in tree else names
    assert all(part.classes == tuple(names) for part in parts.values())
    assert parts["test"].image_shape == (1, 12, 12)
    assert parts["test"].labels[: len(names)].tolist() == list(range(len(names)))  # in turn
    again = data.load("folder", "train", tmp_path, image_size=12)
    assert again.digest == parts["train"].digest
    left_out = parts["test"].left_out or ""
    assert ("no class folder (5 in test)" in left_out) == ("test" in tree)


def test_a_test_folder_alone_is_all_for_testing_and_others_say_what_they_are_drawn_from(tmp_path):
    make_folder(tmp_path / "alone" / "test" / "x", {"a": 5, "b": 7})
    part = data.load("folder", "test", tmp_path / "alone")
    assert (part.labels.bincount().tolist(), part.drawn_from) == ([5, 7], 0)
    with pytest.raises(FileNotFoundError, match="has test, but no folder 'train'"):
        data.load("folder", "train", tmp_path / "alone")
    part = data.load("folder", "test", tmp_path / "alone" / "test")
    assert (part.labels.bincount().tolist(), part.drawn_from) == ([1, 1], 12)


def test_folders_that_look_like_splits_or_folds_are_doubted_as_classes(tmp_path):
    make_folder(tmp_path / "folds", {f"{fold}/{name}": 5 for fold in "12" for name in "ab"})
    (doubt,) = (d for d in data.load("folder", "test", tmp_path / "folds").doubts if "rename" in d)
    assert doubt.startswith("the classes 1, 2 all hold the folders a, b and no pictures: if a, b")
    make_folder(tmp_path / "sound", {"1/a": 5, "1/b": 5, "2/a": 5, "2/c": 5})
    assert "rename" not in str(data.load("folder", "test", tmp_path / "sound").doubts)


def test_what_is_made_of_pictures_unasked_is_said_with_the_options(tmp_path):
    make_folder(tmp_path, {f"{s}/{c}": 6 for s in data.SPLITS for c in "ab"}, size=(48, 32))
    Image.new("RGB", (16, 11), (90, 0, 0)).save(tmp_path / "train" / "a" / "0.png")

    def doubts(**options):
        return data.load("folder", "train", tmp_path, **options).doubts

    size, colour, larger = doubts()
    assert "most of 48 x 32 pixels, are made 28 x 28: choose" in size and "as 32x48 (" in size
    assert colour == "pictures in colour are made grey: --image-channels 3 keeps the colour"
    assert larger == "0.png of 16 x 11 pixels is enlarged 2.5 times"
    grey, larger = doubts(image_size=[32, 48], image_channels=3)
    assert grey.startswith("5 pictures are grey, others in colour: ") and "3.0 times" in larger
    assert doubts(image_size=[32, 48], channels=3) == (grey, larger)  # as of earlier cards
    assert len(doubts(image_channels=1)) == len(doubts(image_size=28)) == 2


def test_a_picture_is_turned_as_its_camera_says(tmp_path):
    make_folder(tmp_path, {"train/a": 4, "train/b": 4, "test/a": 1, "test/b": 1})
    turned = Image.new("L", (28, 28))
    turned.paste(255, (0, 0, 28, 5))  # bright at the top, to be shown a quarter turn to the right
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(tmp_path / "test/b/0.png", exif=exif)
    upright = data.load("folder", "test", tmp_path).images[1, 0]
    assert upright[14, 26] > 200 and upright[1, 2] < 50


def test_a_folder_without_classes_or_with_a_broken_picture_is_refused(tmp_path):
    for kind in (FileNotFoundError, ValueError):
        with pytest.raises(kind, match="needs --data-dir"):
            data.load("folder", "train")
        with pytest.raises(kind, match="no class folders"):
            data.load("folder", "train", tmp_path)
    make_folder(tmp_path, {"a": 10, "b": 10})
    for path in (tmp_path / "a").iterdir():
        path.write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"class 'a' can be read: .*a/\d+.png' is not a picture"):
        data.load("folder", "train", tmp_path)


@pytest.mark.parametrize(
    ("folders", "match"),
    [
        (["train", "test"], "train of .* are named like splits, but hold no class folders"),
        (["train/a", "train/b", "test/a", "test/c"], "different class folders: b, c in one of"),
        (["data/train/a", "data/train/b", "data/test/a"], "test has one class folder, 'a'"),
        (["train/a", "train/b", "Training/a", "Training/b"], "are both train images"),
        (["only"], "one class folder, 'only', expected two or more"),
        (["a", "b", "few"], "expected at least 3 of each class, got 2 of one"),
    ],
)
def test_folders_that_may_be_splits_are_not_taken_for_classes(tmp_path, folders, match):
    make_folder(tmp_path, {name: 2 if name == "few" else 10 for name in folders})
    with pytest.raises(ValueError, match=match) as error:
        data.load("folder", "test", tmp_path)
    assert "\n" not in str(error.value)


def test_what_is_left_out_of_a_folder_is_counted_in_one_line(tmp_path, monkeypatch):
    endings = opening._endings() - {".heic"}  # as without pillow-heif
    monkeypatch.setattr(opening, "_endings", lambda: endings)
    make_folder(tmp_path / "train", {"a": 6, "b": 6})
    for split in ("val", "test"):
        make_folder(tmp_path / split, {"a": 1, "b": 1})
    for name in ("a/notes.txt", "b/1.heic", "b/2.HEIC", "b/Thumbs.dcm", "a/._0.png", ".Rhistory"):
        (tmp_path / "train" / name).write_bytes(b"other")
    for name in (".ipynb_checkpoints", "__MACOSX", "a/.thumbnails"):
        make_folder(tmp_path / "train" / name, {"": 3})
    for name in ("a/0.png", "b/3.png"):
        (tmp_path / "train" / name).write_bytes(b"broken")
    part = data.load("folder", "train", tmp_path)
    assert part.labels.bincount().tolist() == [5, 5] and part.classes == ("a", "b")
    (tmp_path / "loose.png").write_bytes((tmp_path / "val/a/0.png").read_bytes())
    make_folder(tmp_path / "extra", {"": 3})
    part = data.load("folder", "train", tmp_path)
    assert "4 files that are not pictures (2 .heic, " in part.left_out
    assert "5 hidden files or folders" in part.left_out
    assert "pip install pillow-heif" in part.left_out and "pydicom" in part.left_out
    assert "pictures in no class folder (1 in ., 3 in extra)" in part.left_out
    assert "2 of 12 pictures that cannot be read, e.g. " in part.left_out
    assert part.left_out.count("\n") == 1


def test_masks_beside_pictures_are_no_pictures(tmp_path):
    make_folder(tmp_path, {"benign": 10, "normal": 10})
    for k in range(10):
        picture = tmp_path / f"benign/{k}.png"
        picture.rename(picture.with_name(f"benign ({k}).png"))
        Image.new("L", (9, 9)).save(picture.with_name(f"benign ({k})_mask.png"))
    Image.new("L", (9, 9)).save(tmp_path / "benign/benign (0)_mask_1.png")
    make_folder(tmp_path, {"a mask": 10})  # a class of that name
    (tmp_path / "normal/0.png").rename(tmp_path / "normal/__mask.png")
    (tmp_path / "normal/1.png").rename(tmp_path / "normal/2-gt.png")  # no word for a mask alone
    (tmp_path / "a mask/0.png").rename(tmp_path / "a mask/x_mask.png")
    parts = [data.load("folder", split, tmp_path) for split in data.SPLITS]
    assert sum(map(len, parts)) == 30
    assert "11 masks of the pictures beside them" in parts[0].left_out


def test_patients_in_folders_are_doubted_as_those_in_file_names_are(tmp_path):
    for kind in "ab":
        for patient in range(12):
            make_folder(tmp_path / kind, {f"patient{kind}{patient:02}": 4})
    assert any(
        "groups of file names" in one for one in data.load("folder", "test", tmp_path).doubts
    )


def test_names_of_folders_are_compared_as_they_look(tmp_path):
    for split, form in (("train", "NFC"), ("test", "NFD")):
        make_folder(tmp_path / split, {unicodedata.normalize(form, "Äpfel"): 4, "Birnen": 4})
    assert data.load("folder", "test", tmp_path).classes == ("Birnen", "Äpfel")


def test_training_says_classes_counts_and_what_was_left_out(tmp_path, monkeypatch):
    make_folder(tmp_path, {"cat": 10, "dog": 20})
    (tmp_path / "dog" / "readme.md").write_text("dogs")
    words = ["train", "--dataset", "folder", "--data-dir", tmp_path, "--epochs", 1, "--model"]
    words += ["average", "--option", "channels=[2, 2]"]
    monkeypatch.chdir(tmp_path.parent)
    run = command_line.fine(command_line.run(*words))
    opened = open_inputs(checkpoint=f"runs/{tmp_path.name}", data_dir=tmp_path, capsules=False)
    assert opened.name == opened.dataset.name == tmp_path.name  # "folder" is nowhere
    assert opened.model.card["dataset"]["name"] == opened.dataset.loader == "folder"
    assert "2 classes (cat, dog); 21 training, 3 validation and 6 test images" in run.stderr
    assert run.stderr.count("1 files that are not pictures (1 .md)") == 1
    words = ["evaluate", "--checkpoint", f"runs/{tmp_path.name}", "--data-dir", str(tmp_path)]
    said = command_line.run(*words)
    warned = [line for line in run.stderr.splitlines() if line.startswith("WARN")]
    assert warned and not set(warned) - set(said.stderr.splitlines()), said.output
    shown = open_inputs(checkpoint=words[2], capsules=False, shown=False).dataset  # no --data-dir
    assert (len(shown), shown.classes) == (0, ("cat", "dog"))
    with pytest.raises(ValueError, match="no image of folder was found"):
        shown.nth_of_class(0, 0)


def test_a_picture_that_is_added_leaves_the_others_in_their_splits(tmp_path):
    def colours(split):
        part = data.load("folder", split, tmp_path, image_size=12)
        return set(zip(part.labels.tolist(), part.images[:, 0, 0, 0].tolist(), strict=True))

    make_folder(tmp_path, {"a": 40, "b": 40}, mode="L")
    before = {split: colours(split) for split in data.SPLITS}
    Image.new("L", (40, 30), color=250).save(tmp_path / "a" / "one more.png")
    after = {split: colours(split) for split in data.SPLITS}
    assert sum(len(before[split] - after[split]) for split in data.SPLITS) <= 2
    assert len(before["train"]) == 56 and sum(map(len, after.values())) == 81


def test_a_link_to_a_folder_above_is_read_once(tmp_path):
    make_folder(tmp_path, {"a": 4, "b": 4})
    (tmp_path / "a" / "again").symlink_to(tmp_path / "a")
    assert sum(len(data.load("folder", split, tmp_path)) for split in data.SPLITS) == 8


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_a_set_that_lies_far_below_its_range_is_told_and_read_by_range(tmp_path, dtype):
    for name, level in (("a", 1000), ("b", 4000)):
        (tmp_path / name).mkdir()
        for k in range(4):
            scale = 1 if dtype is np.uint16 else 65535
            pixels = np.full((9, 9), (level + k) / scale).astype(dtype)
            Image.fromarray(pixels).save(tmp_path / name / f"{k}.tif")
    part = data.load("folder", "test", tmp_path)
    (line,) = (one for one in data.check({"test": part}) if "brighter" in one)
    assert line.startswith("WARN test: no pixel is brighter than 16 of 255")
    assert "--range 4095 for 12-bit data" in line
    top = 4095 if dtype is np.uint16 else 4095 / 65535
    part = data.load("folder", "test", tmp_path, range=top)
    assert part.images.flatten(1).float().mean(1).tolist() == pytest.approx([62, 249], abs=1)
    assert not any("brighter" in line for line in data.check({"test": part}))
    with pytest.raises(ValueError, match=r"'a' can be read: .* expected 0 to .*--range"):
        data.load("folder", "test", tmp_path, range=top / 10)


@pytest.mark.parametrize("ending", ["gif", "jfif", "webp", "avif", "heic"])
def test_pictures_of_phones_and_of_the_web_are_read(tmp_path, ending):
    if ending == "heic":
        pytest.importorskip("pillow_heif").register_heif_opener()
    if ending == "avif" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    for name, level in (("a", 10), ("b", 250)):
        (tmp_path / name).mkdir()
        for k in range(3):
            Image.new("RGB", (30, 20), (level,) * 3).save(tmp_path / name / f"{k}.{ending}")
    part = data.load("folder", "test", tmp_path)
    assert part.images.float().mean((1, 2, 3)).tolist() == pytest.approx([10, 250], abs=4)
    assert part.left_out is None
