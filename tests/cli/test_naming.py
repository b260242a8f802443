"""Names of figures contain their inputs, and existing files are not overwritten."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import pytest
from helpers import command_line

from capsviz.cli import main, naming

SMALL = ("--step", 90, "--format", "png", "--output", "out")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return command_line.run


def names(folder):
    return sorted(path.name for path in Path(folder).glob("*.json"))


def test_a_name_contains_the_checkpoint_and_options_that_are_not_defaults(blank, run, tmp_path):
    assert run("rotate", "--checkpoint", "digits", "--digit", 3, *SMALL).exit_code == 0
    assert names("out") == ["rotate-digits-3-0-step-90.json"]
    context = click.Context(main.get_command(None, "rotate"))
    with context:
        context.params = {"start": -90.0, "stop": 360.0, "step": 4.0, "digit": 5, "fps": 3}
        assert naming.changed(context) == {"from": -90.0}


@pytest.mark.parametrize(
    ("base", "networks", "options", "name"),
    [
        ("rotate-mnist-2-0", ["mnist"], {}, "rotate-mnist-2-0"),
        ("rotate-mnist-2-0", ["mnist-attention"], {}, "rotate-mnist-attention-mnist-2-0"),
        ("rotate-drawing", ["digits"], {}, "rotate-digits-drawing"),
        ("sweep-shear-mnist-9-images", ["a", "b"], {}, "sweep-a-b-shear-mnist-9-images"),
        ("rotate-mnist-2-0", ["mnist"], {"step": 0.5}, "rotate-mnist-2-0-step-0.5"),
        ("rotate-x", ["x"], {"from": -60.0, "to": 60}, "rotate-x-from--60-to-60"),
        ("pca-mnist-poses", ["mnist"], {"method": "pca"}, "pca-mnist-poses"),
        ("perturb-mnist-2-0", ["mnist"], {"all": True}, "perturb-mnist-2-0-all"),
        ("detect-x", ["x"], {"eps": (0.1, 0.3)}, "detect-x-eps-0.1-0.3"),
        ("view-x", ["x"], {"change": ((3, 0.2),)}, "view-x-change-3-0.2"),
        ("affnist", [], {"folder": Path("results")}, "affnist-folder-results"),
        ("affnist", [], {"folder": Path("a/results")}, "affnist-folder-results-163954"),
        ("affine-x-9", ["x", "m"], {"baseline": "m"}, "affine-x-m-x-9-baseline-m"),
        ("tour", ["x"], {}, "tour-x"),
    ],
)
def test_the_parts_of_a_name(base, networks, options, name):
    assert naming.stem(base, networks, options) == name


def test_long_names_are_cut_and_stay_different():
    one, other = (
        naming.stem("sweep-x", [f"network-{k}{end}" for k in range(12)], {}) for end in "ab"
    )
    assert one != other and max(len(one), len(other)) < 80


def test_a_network_is_called_by_its_file_and_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert naming.label("mnist") == "mnist"
    assert naming.label("runs/first") == "first"
    assert naming.label("runs/digits") == "runs-digits", "not the shipped one"
    assert naming.label("runs/first/mine.safetensors") == "first-mine"
    assert naming.label("net.py:build") == "net-build"
    for seed in range(2):
        (tmp_path / f"task-{seed}/runs/paper-{seed}").mkdir(parents=True)
        (tmp_path / f"task-{seed}/runs/notes.txt").touch()
    assert naming.label("task-*/runs/*") == "paper"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert naming.label("~/task-*/runs/*") == "paper"
    assert naming.label("nowhere/*") == "unnamed"


def test_an_existing_result_is_not_overwritten_and_nothing_is_computed(blank, run, monkeypatch):
    words = ("rotate", "--checkpoint", "digits", *SMALL)
    assert run(*words).exit_code == 0
    before = {path: path.read_bytes() for path in Path("out").iterdir()}
    monkeypatch.setattr("capsviz.inputs.context.measure_with", None)  # called, it would fail
    command_line.refused(run(*words), "exists: add --force to overwrite it")
    assert {path: path.read_bytes() for path in Path("out").iterdir()} == before
    monkeypatch.undo()
    assert run(*words[:-1], Path("out").absolute(), "--force").exit_code == 0


def test_numbers_of_changed_weights_are_saved_beside_the_earlier_ones(blank, run, tmp_path):
    (tmp_path / "mine.py").write_text("import capsviz\nbuild = lambda: capsviz.load('digits')\n")
    words = ("rotate", "--network", tmp_path / "mine.py:build", "--dataset", "digits", *SMALL)
    assert run(*words).exit_code == 0
    (first,) = Path("out").glob("*.json")
    before = first.read_bytes()
    os.utime(tmp_path / "mine.py", (1, 1))
    assert run(*words).exit_code == 0
    (second,) = {*Path("out").glob("*.json")} - {first}
    assert first.read_bytes() == before and second.stem.startswith(f"{first.stem}-")
    command_line.refused(run(*words), f"{second.stem}.gif exists: add --force to overwrite it")


def test_a_name_with_the_same_beginning_is_another(tmp_path):
    (tmp_path / "view-2-angle-20.5.json").write_text("{}")
    (tmp_path / "view-2-angle-20.json.old").write_text("{}")
    naming.refuse_existing(tmp_path / "view-2-angle-20", force=False)
    for kinds in ((), ("pdf", "json")):
        with pytest.raises(ValueError, match=r"angle-20\.5\.json exists: .* another --output"):
            naming.refuse_existing(tmp_path / "view-2-angle-20.5", force=False, kinds=kinds)
    naming.refuse_existing(tmp_path / "view-2-angle-20.5", force=False, kinds=("pdf",))


def test_a_folder_is_tried_before_anything_is_computed(run, monkeypatch):
    Path("file").write_text("")
    monkeypatch.setattr("capsviz.inputs.context.measure_with", None)
    result = run("rotate", "--checkpoint", "digits", *SMALL[:-1], "file/inside")
    assert result.exit_code == 1 and "Not a directory" in result.stderr


def test_redraw_overwrites_pictures_only_with_force(blank, run):
    words = ("rotate", "--checkpoint", "digits", *SMALL)
    assert run(*words, "--venue", "icml").exit_code == 0
    (path,) = Path("out").glob("*.json")
    assert json.loads(path.read_text())["width"] == 6.75
    assert "exists" in run("redraw", path, "--format", "png").stderr
    assert run("redraw", path, "--format", "svg").exit_code == 0
    assert run("redraw", path, "--format", "png", "--force", "--width", "single").exit_code == 0


def test_figures_are_drawn_and_redrawn_with_their_settings_and_font(run):
    Path("mine.rc").write_text("# mine\naxes.linewidth: 3\naxes.facecolor: EEEEEE\n")
    words = ("rotate", "--checkpoint", "digits", *SMALL)
    assert run(*words, "--rc", "mine.rc", "--font", "DejaVu Serif").exit_code == 0
    (path,) = Path("out").glob("*.json")
    look = {"rc": {"axes.linewidth": "3", "axes.facecolor": "EEEEEE"}, "font": "DejaVu Serif"}
    assert json.loads(path.read_text())["look"] == look
    Path("mine.rc").unlink()
    assert run("redraw", path, "--format", "png", "--output", "again").exit_code == 0
    png = path.with_suffix(".png")
    assert (Path("again") / png.name).read_bytes() == png.read_bytes()
    assert run("redraw", path, "--format", "png", "--output", "b", "--font", "DejaVu Sans")
    assert (Path("b") / png.name).read_bytes() != png.read_bytes()
