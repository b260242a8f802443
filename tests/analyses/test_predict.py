"""`capsviz predict` as its user drives it: lines, JSON, figures, and files that are bad."""

import json
import shutil

import numpy as np
import pytest
from helpers import command_line
from helpers.photographs import photograph
from PIL import Image

from capsviz import checkpoint, data, discovery, results
from capsviz.analyses.predict import SIDE, Predict, square
from capsviz.analyses.predict.draw import _layout

pytestmark = pytest.mark.skipif("mnist" not in checkpoint.shipped(), reason="no MNIST weights")


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """A folder of three, 0.jpg to 2.jpg."""
    folder = tmp_path_factory.mktemp("photographs")
    for k, image in enumerate(data.load("digits", "test").images[:3, 0].numpy()):
        photograph(image, k).save(folder / f"{k}.jpg")
    return folder


@pytest.fixture
def run(bare, photographs, tmp_path):
    """Run `capsviz predict` beside three photographs, photos/0.jpg to 2.jpg."""
    shutil.copytree(photographs, tmp_path / "photos")
    return lambda *args: bare("predict", *args)


@pytest.fixture(scope="module")
def truth():
    return [str(int(label)) for label in data.load("digits", "test").labels[:3]]


def test_lines_and_json_say_the_same(run, truth):
    result = run("photos", "--topk", 2)
    assert result.exit_code == 0 and result.stderr == "3 pictures\n"
    records = json.loads(run("photos/*.jpg", "--json", "--topk", 2).stdout)
    assert [record["classes"][0] for record in records] == truth
    for record, line in zip(records, result.stdout.splitlines(), strict=True):
        pairs = zip(record["classes"], record["lengths"], strict=True)
        words = ", ".join(f"{name} ({length:.2f})" for name, length in pairs)
        assert line.startswith(f"{record['file']}: {words}; SSE ")
        assert set(record) == {
            "file", "classes", "lengths", "reconstruction_sse", "unlike_training_data",
            "unlike_by", "pieces_of_ink",
        }  # fmt: skip
        assert record["lengths"][0] > record["lengths"][1] and len(record["lengths"]) == 2
        assert record["pieces_of_ink"] >= 1


def test_bad_files_are_named_and_the_others_predicted(run, tmp_path):
    (tmp_path / "photos" / "1b.png").write_text("hello")
    result = run("photos", "none.png", "nothing*.png")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 3
    lines = result.stderr.splitlines()
    assert len(lines) == 5 and lines[-1].startswith("Error: 3 of the pictures")
    for name, line in zip(("nothing*.png", "1b.png", "none.png"), lines[1:], strict=False):
        assert name in line


def test_a_network_without_capsules_is_flagged_by_its_probability_or_says_once_why_not(
    run, tmp_path
):
    limit = checkpoint.load("mnist-resnet").card["thresholds"]["length"]
    for record in json.loads(run("photos", "--checkpoint", "mnist-resnet", "--json").stdout):
        assert record["reconstruction_sse"] is None
        assert record["unlike_training_data"] == (record["lengths"][0] < limit)
    for path in discovery.folder("capsviz.trained").glob("mnist-resnet.*"):
        shutil.copy(path, tmp_path)
    card = json.loads((tmp_path / "mnist-resnet.json").read_text())
    (tmp_path / "mnist-resnet.json").write_text(json.dumps(card | {"thresholds": {}}))
    result = run("photos", "--checkpoint", "mnist-resnet.safetensors", "--json")
    _, line = result.stderr.splitlines()
    assert line.startswith("not known which pictures are unlike") and "no validation" in line
    assert {record["unlike_training_data"] for record in json.loads(result.stdout)} == {None}


def test_the_figure_shows_every_step_and_is_redrawn_from_its_numbers(run, tmp_path, truth):
    result = run("photos", "--save-figure", "out/steps.png")
    assert result.exit_code == 0
    found, about = results.read_result(tmp_path / "out" / "steps.json")
    assert found.steps == ["grey", "inverted", "ink", "cropped", "input", "reconstruction"]
    assert found.pictures.shape == (3, 6, 1, SIDE, SIDE)
    assert found.files == ["0.jpg", "1.jpg", "2.jpg"] and found.predicted == truth
    assert (
        about["provenance"]["weights_sha256"] == checkpoint.load("mnist").card["weights"]["sha256"]
    )
    again = command_line.run("redraw", "out/steps.json", "--output", "again", "--format", "png")
    assert again.exit_code == 0, again.stderr
    assert (tmp_path / "again/steps.png").read_bytes() == (tmp_path / "out/steps.png").read_bytes()
    shutil.copytree(tmp_path / "photos", tmp_path / "others")
    run("photos/0.jpg", "others/0.jpg", "--save-figure", "out/both.png")
    both, _ = results.read_result(tmp_path / "out" / "both.json")
    assert both.files == ["photos/0.jpg", "others/0.jpg"]


def test_of_many_pictures_those_unlike_the_training_data_are_drawn_first(
    run, tmp_path, monkeypatch
):
    monkeypatch.setattr("capsviz.analyses.predict.PICTURES", 2)
    for k, name in enumerate(("3.jpg", "2.jpg")):
        pixels = np.random.default_rng(k).integers(0, 256, (28, 28), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / name)
    said = run("photos", "--save-figure", "out/steps.png")
    assert said.stderr.splitlines()[-1] == "2 of 4 pictures drawn"
    found, _ = results.read_result(tmp_path / "out" / "steps.json")
    assert found.files == ["2.jpg", "3.jpg"] and all(found.unlike)
    assert "2 of 4 pictures drawn" in Predict().caption(found)
    many = found._replace(**{name: value * 6 for name, value in found._asdict().items()
                             if isinstance(value, list) and name != "steps"},
                          pictures=np.concatenate([found.pictures] * 6), of=12)  # fmt: skip
    assert _layout(many, 7.16)[1:3] == (2, 6) and _layout(many, 3.25)[1:3] == (1, 8)


def test_a_step_is_fitted_in_without_changing_its_shape():
    fitted = square(np.zeros((20, 80)))
    rows = np.flatnonzero((fitted[0] == 0).any(1))
    assert fitted.shape == (1, SIDE, SIDE) and len(rows) == SIDE / 4
    assert abs(rows.mean() - (SIDE - 1) / 2) <= 0.5
    assert square(np.zeros((5, 5, 3))).shape == (3, SIDE, SIDE)


def test_predict_says_what_it_leaves_out_and_that_pictures_lie_far_below_their_range(tmp_path):
    pixels = np.full((28, 28), 100, np.uint16)
    pixels[5:20, 12:15] = 4000
    Image.fromarray(pixels).save(tmp_path / "x.tif")
    (tmp_path / "x.heix").write_bytes(b"x")
    pages = [Image.new("L", (28, 28))] * 3
    Image.fromarray(pixels).save(tmp_path / "y.tif", save_all=True, append_images=pages)
    model = checkpoint.load("digits")
    model.card = model.card | {"dataset": {"name": "folder", "whole": [1, 28, 28]}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "load", lambda *_, **__: model)
        dark = command_line.run("predict", tmp_path)
        bright = command_line.run("predict", tmp_path, "--range", "4095")
    assert dark.exit_code == bright.exit_code == 0, dark.output
    said = dark.stderr.splitlines()
    assert said[0] == "2 pictures; left out: 1 files that are not pictures (1 .heix)"
    assert said[1] == (
        "WARN 1 files hold several pictures: the first of each is used, and 3 more are left out"
    )
    assert said[-1].startswith("WARN no pixel is brighter than 15 of 255") and "4095" in said[-1]
    assert "no pixel" not in bright.stderr
