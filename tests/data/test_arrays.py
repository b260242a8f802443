"""Arrays and tables as people have them: each kind of file gives the images that were written."""

import csv
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from capsviz import data
from capsviz.data.arrays import describe

IMAGES = np.random.default_rng(0).integers(0, 256, (30, 8, 8), np.uint8)
LABELS = np.arange(30) % 3
SPLITS = {"train": slice(20), "validation": slice(20, 24), "test": slice(24, 30)}


def write_npz(place):  # as MedMNIST does
    own = {"train": "train", "val": "validation", "test": "test"}
    arrays = {f"{name}_images": IMAGES[SPLITS[split]] for name, split in own.items()}
    labels = LABELS[:, None].astype(np.uint8)
    arrays |= {f"{name}_labels": labels[SPLITS[split]] for name, split in own.items()}
    np.savez(place / "x.npz", **arrays)
    return place / "x.npz"


def write_npy(place):
    for split, part in SPLITS.items():
        np.save(place / f"X_{split}.npy", IMAGES[part] / 255)
        np.save(place / f"y_{split}.npy", LABELS[part].astype(np.float32))
    return place


def write_csv(place):  # as Kaggle does
    for split, part in SPLITS.items():
        with (place / f"mnist_{split}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["label", *(f"pixel{k}" for k in range(64))])
            rows.writerows(
                [k, *row.ravel()] for k, row in zip(LABELS[part], IMAGES[part], strict=True)
            )
    return place


def write_mat(place):
    content = {}
    for split, part in SPLITS.items():
        content |= {
            f"{split}_x": np.moveaxis(IMAGES[part], 0, -1),
            f"{split}_y": LABELS[None, part],
        }
    savemat(place / "x.mat", content)
    return place / "x.mat"


def write_mat_73(place):
    h5py = pytest.importorskip("h5py")
    with h5py.File(place / "x.mat", "w", userblock_size=512) as file:
        for split, part in SPLITS.items():  # MATLAB's axes are the other way round
            file[f"{split}_x"] = np.moveaxis(IMAGES[part], 0, -1).T
            file[f"{split}_y"] = LABELS[part, None].astype(float).T
    with (place / "x.mat").open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    return place / "x.mat"


def encoded(pixels):
    Image.fromarray(pixels).save(content := io.BytesIO(), "PNG")
    return {"bytes": content.getvalue(), "path": None}


def write_hub(path, cells, names, **labels):  # as hubs have it
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    about = {"info": {"features": {kind: {"names": own} for kind, own in names.items()}}}
    table = pa.table({"image": cells, **{kind: own.tolist() for kind, own in labels.items()}})
    parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(about)}), path)


def write_parquet(place):
    parts = [("train", 0, slice(12)), ("train", 1, slice(12, 20))]
    parts += [(split, 0, part) for split, part in SPLITS.items() if split != "train"]
    for split, number, part in parts:
        path = place / f"{split}-{number:05}-of-{1 + (split == 'train'):05}.parquet"
        cells = [*map(encoded, IMAGES[part])]
        write_hub(path, cells, {"label": ["0", "1", "2"]}, label=LABELS[part])
    return place


@pytest.mark.parametrize(
    "write", [write_npz, write_npy, write_csv, write_mat, write_mat_73, write_parquet]
)
def test_each_kind_of_file_gives_the_images_and_labels_of_its_splits(tmp_path, write):
    place = write(tmp_path)
    for split, own in SPLITS.items():
        part = data.load("arrays", split, place)
        assert sorted(part.labels.tolist()) == sorted(LABELS[own].tolist())
        for label in range(3):
            expected = IMAGES[own][LABELS[own] == label]
            assert np.array_equal(part.images[part.labels == label, 0], expected)
        assert part.labels[:3].tolist() == [0, 1, 2]  # one of each class in turn
        assert part.classes == ("0", "1", "2") and part.left_out is None


def test_splits_that_are_missing_are_drawn_by_class_and_equal_images_stay_together(tmp_path):
    np.savez(tmp_path / "x.npz", np.concatenate([IMAGES, IMAGES]), np.concatenate([LABELS, LABELS]))
    parts = {split: data.load("npz", split, tmp_path / "x.npz") for split in data.SPLITS}
    assert {s: len(part) for s, part in parts.items()} == {"train": 42, "validation": 6, "test": 12}
    assert parts["test"].labels.bincount().tolist() == [4, 4, 4]
    assert data.check(parts) == []  # no image is in two of them


def test_images_are_scaled_resized_and_coloured_as_is_asked(tmp_path):
    np.savez(tmp_path / "x.npz", images=IMAGES.astype(np.uint16) * 16, labels=LABELS + 1)
    plain = data.load("npz", "test", tmp_path / "x.npz", range=16 * 255)
    assert set(plain.images.flatten(1).sum(1).tolist()) < set(IMAGES.sum((1, 2)).tolist())
    assert plain.classes == ("1", "2", "3")
    part = data.load("npz", "test", tmp_path / "x.npz", range=4080, image_size=4, image_channels=3)
    assert part.image_shape == (3, 4, 4)
    np.savez(tmp_path / "x.npz", data=np.moveaxis(IMAGES, 0, 1).reshape(8, 240), labels=np.zeros(8))
    assert data.load("npz", "train", tmp_path / "x.npz", shape="10x24").image_shape == (1, 10, 24)


def test_a_table_may_lack_a_header_and_name_its_classes(tmp_path):
    rows = [f'"{"cat" if k else "ant"}",' + ",".join(map(str, one.ravel()))
            for k, one in zip(LABELS, IMAGES, strict=True)]  # fmt: skip
    (tmp_path / "x.csv").write_text("\n".join(rows))
    part = data.load("csv", "train", tmp_path / "x.csv")
    assert part.classes == ("ant", "cat") and len(part) == 21 and part.image_shape == (1, 8, 8)


@pytest.mark.parametrize("form", ["%.18e", "%.4g", "-%g"])
def test_numbers_of_a_table_without_names_may_be_written_in_any_way(tmp_path, form):
    sign = -1 if form[0] == "-" else 1
    columns = np.column_stack([IMAGES.reshape(30, 64) / 2550, LABELS * sign])
    np.savetxt(tmp_path / "x.csv", columns, delimiter=",", fmt=["%.8e"] * 64 + [form])
    parts = [data.load("csv", s, tmp_path / "x.csv", labels="last") for s in data.SPLITS]
    assert sum(map(len, parts)) == 30 and len(parts[0].classes) == len(set(LABELS.tolist()))


def write_table(place, header, columns, mark=","):
    rows = [header, *np.column_stack(columns).tolist()]
    place.write_text("\n".join(mark.join(map(str, row)) for row in rows if row) + "\n")
    return place


@pytest.mark.parametrize(
    ("header", "order", "mark", "options"),
    [
        (range(65), "ly", ",", {}),  # as pandas numbers columns
        (range(1, 66), "yl", ",", {"labels": "last"}),
        (["", *range(65)], "kly", ",", {}),  # rows, too
        (["", *(f"p{k}" for k in range(64)), "label"], "kyl", ";", {}),
        ([*(f"p{k}" for k in range(64)), "digit"], "yl", "\t", {"labels": "digit"}),
        (
            ["ImageId", *(f"p{k}" for k in range(64)), "class_id"],
            "kyl",
            ",",
            {"labels": "class_id"},
        ),
        ((), "yl", ",", {"labels": "last"}),
    ],
    ids=range(7),
)
def test_a_table_may_number_its_columns_and_rows_and_have_labels_anywhere(
    tmp_path, header, order, mark, options
):
    kinds = {"y": IMAGES.reshape(30, 64), "l": LABELS, "k": np.arange(30)}
    write_table(tmp_path / "x.csv", list(header), [kinds[one] for one in order], mark)
    parts = [data.load("csv", split, tmp_path / "x.csv", **options) for split in data.SPLITS]
    assert [len(part) for part in parts] == [21, 3, 6]
    known = {image.tobytes(): label for image, label in zip(IMAGES, LABELS, strict=True)}
    for image, label in ((one.images[k, 0], one.labels[k]) for one in parts for k in range(3)):
        assert known[image.numpy().tobytes()] == label
    assert "look less like" not in str(parts[0].doubts)


def test_a_table_without_names_says_which_column_is_taken_for_labels_and_doubts_it(tmp_path):
    pixels = np.tile(IMAGES.reshape(30, 64)[:, :5] // 128 * 9, (2, 13))[:, :64]
    labels = np.tile(LABELS, 2)
    last = write_table(tmp_path / "last.csv", [], [pixels, labels])
    said = "labels, column 1 of 65, look less like classes than the last column does: if that"
    assert data.load("csv", "test", last).doubts[0].startswith(said)
    assert "array labels, column 1 of 65: (60,)" in str(describe(last))
    first = write_table(tmp_path / "first.csv", [], [labels, pixels])
    assert "less like" not in str(data.load("csv", "test", first).doubts)
    with pytest.raises(ValueError, match="no column of labels"):
        data.load("csv", "test", first, labels="nowhere")


@pytest.mark.parametrize(("by", "top"), [(17, "15"), (255 * 5, "0.2")])
def test_the_range_that_is_advised_is_the_largest_value_of_the_arrays(tmp_path, by, top):
    images = IMAGES // 17 if by == 17 else IMAGES / by
    np.savez(tmp_path / "x.npz", images=images, labels=LABELS)
    part = data.load("npz", "test", tmp_path / "x.npz")
    (line,) = (one for one in data.check({"test": part}) if "brighter" in one)
    assert f"e.g. --range {top}, the largest of these arrays" in line
    bright = data.load("npz", "test", tmp_path / "x.npz", range=float(top))
    assert bright.images.max() > 200 and "brighter" not in str(data.check({"test": bright}))


def test_a_file_of_masks_needs_no_range(tmp_path):
    np.savez(tmp_path / "x.npz", images=IMAGES // 255, labels=LABELS)
    part = data.load("npz", "test", tmp_path / "x.npz")
    assert part.images.max() == 255 and "brighter" not in str(data.check({"test": part}))
    assert torch.equal(part.images, data.load("npz", "test", tmp_path / "x.npz", range=1.0).images)


def test_a_list_of_files_is_not_said_to_be_damaged(tmp_path):
    (tmp_path / "x.csv").write_text("filename,label\na.png,0\n")
    with pytest.raises(ValueError, match=r"'a\.png'.*expected a label and the pixel") as error:
        data.load("csv", "test", tmp_path / "x.csv")
    assert "damaged" not in str(error.value)


def test_a_table_without_labels_is_left_out_and_said(tmp_path):
    write_csv(tmp_path)
    (tmp_path / "mnist_test.csv").write_text("pixel0,pixel1\n1,2\n")
    part = data.load("csv", "test", tmp_path)
    assert "mnist_test_(no column of labels)" in part.left_out and len(part) == 3
    said = r"holds .no column of labels.: expected images and labels"
    with pytest.raises(ValueError, match=said):
        data.load("csv", "test", tmp_path / "mnist_test.csv")


@pytest.mark.parametrize("ending", [".npy", ".npz", ".csv", ".parquet"])
def test_files_of_equal_names_in_folders_of_splits_are_all_read(tmp_path, ending):
    for split, part in (("train", slice(20)), ("test", slice(20, 30))):
        (place := tmp_path / "plain" / split).mkdir(parents=True)
        if ending == ".npz":
            np.savez(place / "data.npz", images=IMAGES[part], labels=LABELS[part])
        elif ending == ".npy":
            np.save(place / "images.npy", IMAGES[part])
            np.save(place / "labels.npy", LABELS[part])
        elif ending == ".csv":
            rows = np.column_stack([LABELS[part], IMAGES[part].reshape(-1, 64)])
            np.savetxt(place / "data.csv", rows, "%d", ",")
        else:
            write_hub(place / "0000.parquet", [*map(encoded, IMAGES[part])], {}, label=LABELS[part])
    test = data.load("arrays", "test", tmp_path)
    assert sorted(test.labels.tolist()) == sorted(LABELS[20:]) and test.drawn_from == 0
    found = {one.tobytes() for one in test.images[:, 0].numpy()}
    assert found == {one.tobytes() for one in IMAGES[20:]}


def test_names_of_classes_are_those_of_the_labels(tmp_path):
    def classes(chosen="", **arrays):
        np.savez(tmp_path / "x.npz", images=IMAGES, **arrays)
        return data.load("npz", "test", tmp_path / "x.npz", labels=chosen).classes

    names, others = np.array(["ant", "bee", "cat"]), np.array([f"{k}.png" for k in range(30)])
    assert classes(image_names=others, target=LABELS, target_names=names) == (*names,)
    assert classes(feature_names=others, labels=LABELS, classes=np.char.encode(names)) == (*names,)
    assert classes("classes", classes=LABELS) == ("0", "1", "2")
    two = {"coarse_label_names": names, "fine_label_names": others}
    assert classes("coarse_labels", coarse_labels=LABELS, **two) == ("0", "1", "2")


def test_a_hub_table_with_two_kinds_of_labels_has_the_names_of_the_chosen(tmp_path):
    kinds = {"label": ["ant", "bee", "cat"], "race": ["x", "y", "z"]}
    cells = [*map(encoded, IMAGES)]
    write_hub(tmp_path / "x.parquet", cells, kinds, **dict.fromkeys(kinds, LABELS))
    for labels, kind in (("", "label"), ("race", "race"), ("label", "label")):
        part = data.load("parquet", "test", tmp_path / "x.parquet", labels=labels)
        assert part.classes == tuple(kinds[kind])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("names", [["C", "C#", "D#"], [20210001, 20210002, 20210003]])
def test_labels_of_a_table_are_those_that_are_written(tmp_path, names, encoding):
    rows = [[names[k], *one.ravel()] for k, one in zip(LABELS, IMAGES, strict=True)]
    text = "\n".join(",".join(map(str, row)) for row in rows)
    (tmp_path / "x.csv").write_text(text, encoding=encoding)
    assert data.load("csv", "test", tmp_path / "x.csv").classes == tuple(map(str, names))


def test_transparent_arrays_are_put_on_white_and_other_channels_refused(tmp_path):
    images = np.zeros((30, 8, 8, 4), np.uint8)
    images[:, :4, :, 3] = 255  # black above, nothing below
    for channels in (1, 3):
        np.savez(tmp_path / "x.npz", images=images, labels=LABELS)
        part = data.load("npz", "test", tmp_path / "x.npz", image_channels=channels)
        assert part.image_shape == (channels, 8, 8)
        assert not part.images[:, :, :4].any() and part.images[:, :, 4:].min() >= 254
    np.savez(tmp_path / "x.npz", images=np.moveaxis(images[..., :2], 3, 1), labels=LABELS)
    with pytest.raises(ValueError, match="of 2 channels are neither grey nor colour"):
        data.load("npz", "test", tmp_path / "x.npz", image_channels=3)


def test_hidden_folders_and_tables_beside_a_named_array_are_left_alone(tmp_path):
    write_csv(tmp_path)
    (tmp_path / ".ipynb_checkpoints").mkdir()
    write_csv(tmp_path / ".ipynb_checkpoints")
    assert len(data.load("csv", "test", tmp_path)) == 6
    write_npy(tmp_path)
    assert len(data.load("npy", "test", tmp_path / "X_test.npy")) == 6


def test_a_cell_of_a_hub_table_that_is_no_picture_is_named(tmp_path):
    cells = [*map(encoded, IMAGES)]
    cells[7] = {"bytes": b"no picture", "path": None}
    write_hub(tmp_path / "x.parquet", cells, {}, label=LABELS)
    with pytest.raises(ValueError, match="picture 7 of the table, counted from 0, cannot be read"):
        data.load("parquet", "test", tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": IMAGES, "labels": LABELS[:5]}, r"shape \(30, 8, 8\), but 5 labels"),
        ({"images": IMAGES, "x": IMAGES, "labels": LABELS}, "images and x .* images=NAME"),
        ({"foo": LABELS}, "holds foo: expected images and labels"),
        ({"images": np.array([{}]), "labels": LABELS[:1]}, "cannot be read .*allow_pickle"),
        ({"images": IMAGES + 256.5, "labels": LABELS}, "float64 from 256.5 .*--range"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "but 0 labels"),
    ],
)
def test_arrays_that_are_no_data_set_are_refused_in_one_line(tmp_path, arrays, message):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(ValueError, match=message) as error:
        data.load("npz", "train", tmp_path / "x.npz")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("ending", [".npz", ".npy", ".csv", ".mat", ".parquet"])
def test_damaged_files_and_missing_ones_are_named(tmp_path, ending):
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    (tmp_path / f"x{ending}").write_bytes(b"no arrays")
    with pytest.raises(ValueError, match=rf"x{ending} cannot be read"):
        data.load("arrays", "train", tmp_path / f"x{ending}")
    for place in (None, tmp_path / f"y{ending}"):
        with pytest.raises(FileNotFoundError, match=r"by --data-dir FILE, but"):
            data.load("arrays", "train", place)


@pytest.mark.parametrize(
    ("name", "ending"), [("pixel{n}", "csv"), ("{row}x{column}", "tsv"), ("{n}", "csv")]
)
def test_pixels_are_in_the_order_of_their_names(tmp_path, name, ending):
    names = [name.format(n=k, row=1 + k // 8, column=1 + k % 8) for k in range(64)]
    order = np.random.default_rng(0).permutation(64)
    with (tmp_path / f"x.{ending}").open("w", newline="") as file:
        rows = csv.writer(file, delimiter="," if ending == "csv" else "\t")
        rows.writerow(["label", *(names[k] for k in order)])
        rows.writerows([k, *row.ravel()[order]] for k, row in zip(LABELS, IMAGES, strict=True))
    parts = [data.load("arrays", split, tmp_path / f"x.{ending}") for split in data.SPLITS]
    found = {one.numpy().tobytes() for part in parts for one in part.images[:, 0]}
    assert found == {one.tobytes() for one in IMAGES}


def test_volumes_are_doubted_as_images(tmp_path):
    np.savez(tmp_path / "x.npz", images=np.zeros((30, 8, 8, 8), np.uint8), labels=LABELS)
    part = data.load("arrays", "test", tmp_path / "x.npz")
    assert any("8 channels: volumes are no images" in one for one in part.doubts)


def test_pixels_named_by_column_and_row_stay_where_they_are(tmp_path):
    names = [f"{x}_{y}" for y in range(8) for x in range(8)]
    with (tmp_path / "x.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["label", *names])
        rows.writerows([k, *row.ravel()] for k, row in zip(LABELS, IMAGES, strict=True))
    part = data.load("arrays", "train", tmp_path / "x.csv")
    assert {one.numpy().tobytes() for one in part.images[:, 0]} <= {one.tobytes() for one in IMAGES}
