"""Prediction of files: right on photographs, unharmed by bad files, bounded in memory."""

import itertools

import numpy as np
import pytest
import torch
from helpers.fixtures import build_tiny
from helpers.photographs import photograph
from PIL import Image

from capsviz import checkpoint, data
from capsviz.pictures import prediction
from capsviz.statistics.detection import Limits
from capsviz.training import thresholds

CLASSES = ("a", "b", "c")


@pytest.fixture(scope="module")
def mnist():
    """The shipped MNIST network, and its limits."""
    if "mnist" not in checkpoint.shipped():
        pytest.skip("no MNIST weights are here")
    model = checkpoint.load("mnist")
    return model, thresholds.limits(model)[0]


def stored(tmp_path, model, **dataset):
    card = {"name": "x", "dataset": {"name": "random", "classes": list(CLASSES), **dataset}}
    return checkpoint.load(checkpoint.save(tmp_path / "x.safetensors", model, card, dtype=None))


def write(folder, part, n, how=lambda image, k: Image.fromarray(image)):
    """n images of a split as files, their number and class in the name."""
    folder.mkdir(exist_ok=True)
    for k, (image, label) in enumerate(zip(part.images[:n, 0].numpy(), part.labels, strict=False)):
        picture = how(image, k)
        picture.save(folder / f"{k:03}-{label}.{(picture.format or 'png').lower()}")
    return sorted(folder.iterdir())


def right(model, paths, **given):
    """How many files are read as the class in their name."""

    def failed(line):
        raise AssertionError(line)

    seen = prediction.of_files(model, paths, failed=failed, **given)
    return sum(one.prediction.classes[0] == one.path.stem[-1] for one in seen)


def test_classes_lengths_and_errors_are_the_networks_own(tiny, tiny_images):
    with torch.no_grad():
        output = tiny(tiny_images)
        made = tiny.decode(output.poses, output.lengths.argmax(1))
    found, reconstructions = prediction.predict(tiny, tiny_images, CLASSES, top=2, limits=None)
    assert torch.allclose(reconstructions, made, atol=1e-6)
    for n, one in enumerate(found):
        order = sorted(range(3), key=lambda k: -output.lengths[n, k])[:2]
        assert one.classes == [CLASSES[k] for k in order]
        assert one.lengths == pytest.approx(output.lengths[n, order].tolist())
        assert one.sse == pytest.approx(float((tiny_images[n] - made[n]).square().sum()), rel=1e-5)
        assert one.unlike is None
    for top in (0, 4):
        with pytest.raises(ValueError, match=f"expected 1 to 3 classes to name, got {top}"):
            prediction.predict(tiny, tiny_images, CLASSES, top=top, limits=None)


def test_an_image_beyond_either_limit_is_unlike_the_training_data(tiny, tiny_images):
    every = prediction.predict(tiny, tiny_images, CLASSES, limits=None)[0]
    distances = np.array([one.sse**0.5 for one in every])
    lengths = np.array([one.lengths[0] for one in every])
    limits = Limits(float(np.quantile(lengths, 0.3)), float(np.quantile(distances, 0.7)))
    flagged = prediction.predict(tiny, tiny_images, CLASSES, limits=limits)[0]
    expected = [
        ["length"] * int(length < limits.length) + ["distance"] * int(distance > limits.distance)
        for length, distance in zip(lengths, distances, strict=True)
    ]
    assert [one.reasons for one in flagged] == expected
    assert [one.unlike for one in flagged] == [bool(reasons) for reasons in expected]
    assert {len(reasons) for reasons in expected} >= {0, 1}


def test_a_network_without_decoder_is_flagged_by_the_length_alone(tiny_images):
    model = build_tiny(reconstruction_weight=0.0)
    limits = Limits(length=2.0, distance=1.0)
    flagged, decoded = prediction.predict(model, tiny_images, CLASSES, limits=limits)
    assert decoded is None
    assert {(one.sse, one.unlike, *one.reasons) for one in flagged} == {(None, True, "length")}


def test_photographs_of_digits_are_read_by_the_mnist_weights(mnist, tmp_path):
    paths = write(tmp_path / "photos", data.load("digits", "test"), 10, photograph)
    assert right(mnist[0], paths) >= 9


@pytest.mark.mnist
def test_files_that_are_mnist_already_are_read_as_well_as_the_test_set(mnist, mnist_root, tmp_path):
    part = data.load("mnist", "test", mnist_root)
    paths = write(tmp_path / "images", part, 100)
    with torch.no_grad():
        lengths = mnist[0](part.images[:100] / 255).lengths
    direct = int((lengths.argmax(1) == part.labels[:100]).sum())
    assert right(mnist[0], paths) >= direct - 1


@pytest.mark.parametrize("name", ["digits", pytest.param("mnist", marks=pytest.mark.mnist)])
def test_the_stored_limits_flag_one_validation_image_in_twenty(name, request):
    if name == "mnist":
        request.getfixturevalue("mnist_root")
    model, part = checkpoint.load(name), data.load(name, "validation")
    stored = model.card["thresholds"]
    assert (stored["share"], stored["n"]) == (0.05, len(part))
    limits, why = thresholds.limits(model)
    assert why is None and limits == (stored["length"], stored["distance"])
    part = part.first(min(len(part), 300))
    flagged, _ = prediction.predict(model, part.images / 255, part.classes, limits=limits)
    share = np.mean([one.unlike for one in flagged])
    assert 0.03 < share <= 0.05 if name == "digits" else 0.03 < share < 0.07
    by = [sum(reason in one.reasons for one in flagged) for reason in ("length", "distance")]
    assert min(by) > 0.3 * max(by)  # an equal chance for each
    if name == "digits":
        model.card = {k: v for k, v in model.card.items() if k != "thresholds"}
        assert thresholds.limits(model)[0] == pytest.approx(limits, rel=1e-4)  # computed anew


def outside(folder):
    """Pictures by name: a row of eight digits, two digits, one digit, and nothing."""
    folder.mkdir()
    digits = data.load("digits", "test").images[:8, 0].numpy()
    rows = {"row": digits, "two": digits[:2], "one": digits[:1]}
    pictures = {name: np.pad(np.concatenate(row, 1), 8) for name, row in rows.items()}
    pictures["blank"] = np.zeros((40, 40), np.uint8)
    for name, picture in pictures.items():
        Image.fromarray(255 - np.kron(picture, np.ones((6, 6), np.uint8))).save(
            folder / f"{name}.png"
        )
    return sorted(folder.iterdir())


def test_a_row_of_digits_is_flagged_and_its_pieces_told_a_digit_is_not(mnist, tmp_path):
    model, limits = mnist
    lines = []
    paths = outside(tmp_path / "x")
    readings = prediction.of_files(model, paths, limits=limits, failed=lines.append)
    readings = {reading.path.stem: reading for reading in readings}
    assert {name: reading.pieces for name, reading in readings.items()} == {
        "row": 8, "two": 2, "one": 1,
    }  # fmt: skip
    assert readings["row"].prediction.unlike and not readings["one"].prediction.unlike
    assert len(lines) == 1 and "is empty" in lines[0] and "blank" in lines[0]


def test_many_files_are_read_a_batch_at_a_time(tmp_path, monkeypatch):
    model = stored(tmp_path, build_tiny())
    path = tmp_path / "x.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (21, 19), np.uint8)).save(path)
    monkeypatch.setattr(prediction, "BATCH", 4)
    opened = []

    def endless():
        for n in itertools.count():
            opened.append(n)
            yield path

    seen = prediction.of_files(model, endless(), failed=pytest.fail)
    assert len(list(itertools.islice(seen, 4))) == 4 and len(opened) == 4
    next(seen)
    assert len(opened) == 8


def test_folders_patterns_and_names_become_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["b.png", "a.JPG", "sub/c.tif", "sub/.hidden/d.png", "notes.txt", "d.pdf", "[x].png"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")

    def found(*given):
        files, nothing, _ = prediction.find(given)
        return [str(file) for file in files], nothing

    (tmp_path / "empty").mkdir()
    assert found(".") == (["[x].png", "a.JPG", "b.png", "sub/c.tif"], [])
    assert found("b.png", ".", "b.png")[0] == ["b.png", "[x].png", "a.JPG", "sub/c.tif"]
    assert found("*.png") == (["[x].png", "b.png"], [])
    assert found("**/*.tif") == (["sub/c.tif"], [])
    assert found("s*")[0] == ["sub/c.tif"]
    assert found("[x].png")[0] == ["[x].png"]
    assert found("none.png", "*.gif", "empty") == (["none.png"], ["*.gif", "empty"])
