"""Figures on disk: numbers are beside the pictures, and give the same pictures again."""

import json
import re
import shutil
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from helpers import command_line
from helpers.plain_capsnet import Foreign
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image, ImageSequence
from scipy.optimize import isotonic_regression
from skimage.color import colorconv, deltaE_ciede2000

from capsviz import analysis as contract
from capsviz import discovery, results
from capsviz.analyses import rotate
from capsviz.analyses.rotate.draw import frames
from capsviz.arrangement import ascending, legible, spread
from capsviz.results import house, panels
from capsviz.results.tables import typeset
from capsviz.statistics.estimate import Estimate

FIGURES = discovery.root() / "figures"


@pytest.fixture(scope="module")
def result():
    import torch

    image = torch.rand(1, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    return rotate.Rotate().measure(Foreign(), image, 3, classes=list("0123456789"), step=30.0)


def test_redraw_gives_the_identical_files_without_torch(tmp_path):
    formats = ["png", "pdf", "svg"]
    chosen = [f"--format={name}" for name in formats]
    made = ["--checkpoint", "digits", "--step", "60", "--width", "single", "--output", tmp_path]
    command_line.fine(command_line.run("rotate", *made, *chosen))
    stem, again = "rotate-digits-2-0-step-60", tmp_path / "b"
    args = ["redraw", f"{tmp_path / stem}.json", "--output", f"{again}"]
    code = "import sys; from capsviz.cli import main; sys.modules['torch'] = None\n"
    code += f"main({[*args, *reversed(chosen)]!r}, standalone_mode=False)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    for name in (f"{stem}.{ending}" for ending in formats):
        assert (tmp_path / name).read_bytes() == (again / name).read_bytes(), name


def assert_shipped_tables(folder, name):
    for kind in ("md", "tex"):
        shipped = (FIGURES / f"{name}.{kind}").read_text(encoding="utf-8")
        assert (folder / f"{name}.{kind}").read_text(encoding="utf-8") == shipped


@pytest.mark.parametrize(
    "name", ["affnist", "equivariance-mnist-1000-images", "corrupt-mnist-1000-images"]
)
def test_the_shipped_tables_match_their_numbers(name, tmp_path):
    result, about = results.read_result(FIGURES / f"{name}.json")
    analysis = contract.of_result(about["analysis"], type(result).__name__)
    results.tables.write(tmp_path / name, *analysis.table(result))
    assert_shipped_tables(tmp_path, name)


def test_the_manifest_has_captions_and_files_of_the_shipped_figures():
    manifest = json.loads((FIGURES / "manifest.json").read_text(encoding="utf-8"))
    latex = (FIGURES / "figures.tex").read_text(encoding="utf-8")
    for entry in manifest["figures"]:
        (numbers,) = (name for name in entry["files"] if name.endswith(".json"))
        made, about = results.read_result(FIGURES / numbers)
        part = entry.get("part", "")
        assert entry["caption"] == results.caption(
            entry["analysis"], made, part, width=about["width"]
        )
        assert not re.search(r"capsviz |--\w|pip |(^|\s)/\w", entry["caption"]), "a command, a path"
        assert entry["commit"] == about["provenance"]["commit"]
        assert all((FIGURES / name).is_file() for name in entry["files"])
        assert typeset(entry["caption"]) in latex


def test_redraw_writes_only_pictures_and_no_file_twice(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for file in FIGURES.glob("affine-mnist-mnist-resnet-*.json"):
            shutil.copy(file, tmp_path / folder / "x.json")
    table = tmp_path / "a/x.md"
    table.write_text("edited")
    one, other = (tmp_path / folder / "x.json" for folder in "ab")
    command_line.fine(command_line.run("redraw", one, other, "--format", "png"))
    assert table.read_text() == "edited" and (tmp_path / "b/x.png").is_file()
    both = command_line.run("redraw", one, other, "--format", "png", "--output", tmp_path / "c")
    command_line.refused(both, "several files would be drawn as")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("field", ["angles_deg", "lengths"])
def test_inconsistent_numbers_are_reported_in_one_line(result, tmp_path, field):
    results.save(tmp_path / "x", "rotate", result._replace(**{field: "x"}), formats=[])
    said = command_line.run("redraw", tmp_path / "x.json", "--format", "png")
    command_line.refused(said, "x.json' cannot be drawn")


def test_pictures_of_earlier_numbers_are_deleted(blank, result, tmp_path):
    results.save(tmp_path / "x", "rotate", result, formats=["pdf", "png"])
    for name in ("x-y.pdf", "x.md", "x.tex"):
        (tmp_path / name).touch()
    results.save(tmp_path / "x", "rotate", result, formats=["png"])
    assert {one.name for one in tmp_path.iterdir()} == {"x.png", "x.json", "x-y.pdf"}


def test_files_without_a_result_are_refused(tmp_path):
    path = tmp_path / "x.json"
    for text in ("", "[]", "{}", '{"analysis": "rotate", "kind": "Result", "result": {}}'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"is not a result|another version"):
            results.read_result(path)
    about = {"analysis": "nothing", "kind": "Result", "result": {}, "width": "single"}
    path.write_text(json.dumps(about))
    with pytest.raises(ValueError, match="unknown analysis 'nothing'"):
        results.read_result(path)
    with pytest.raises(ValueError, match="there is no file"):
        results.read_result(tmp_path / "none.json")


def test_an_animation_plays_its_frames(result, tmp_path):
    """Up to the nearest colour of the palette; repeated frames are merged into a longer one."""
    drawn = [*frames(result, 240)]
    path = results.animate([*drawn, drawn[-1], drawn[0]], tmp_path / "one.gif", fps=10)
    with Image.open(path) as gif:
        played = [np.array(one.convert("RGB")) for one in ImageSequence.Iterator(gif)]
        lasting = [one.info["duration"] for one in ImageSequence.Iterator(gif)]
    assert lasting == [100] * len(drawn) + [100, 100]
    expected = [*drawn, drawn[-1], drawn[0]]
    for given, one in zip(expected, played, strict=True):
        apart = abs(given.astype(int) - one).max(-1)
        assert (one[(given == 255).all(-1)] == 255).all() and np.median(apart) == 0
        assert (apart <= 8).mean() > 0.97
    assert (played[-1] == played[0]).all() and (played[-2] == played[-3]).all()


def test_widths_are_columns_or_inches():
    assert results.inches("single") < results.inches("double") and results.inches("5") == 5
    for wrong in ("triple", "0", "-3", "400", "nan"):
        with pytest.raises(ValueError, match="expected single, double"):
            results.inches(wrong)


def test_an_interval_beyond_the_axis_has_an_arrow_at_the_edge():
    axes = Figure().add_subplot()
    ends = np.array([[0.1, 0.3], [-2.0, 0.4], [-3.0, -2.0], [np.nan, np.nan]])
    estimate = Estimate(np.array([0.2, 0.1, -2.5, np.nan]), ends)
    panels.points(axes, estimate, "red", "o", left=-0.5)
    points, arrows = axes.lines
    assert points.get_xydata()[:2].tolist() == [[0.2, 0], [0.1, 1]]
    assert arrows.get_xydata().tolist() == [[-0.5, 1], [-0.5, 2]]
    assert arrows.get_marker() == "<" and arrows.get_markerfacecolor() == "white"
    (bars,) = axes.collections
    assert [bar[:, 0].tolist() for bar in bars.get_segments()[:2]] == [[0.1, 0.3], [-0.5, 0.4]]


@pytest.fixture
def shown(monkeypatch):
    """Draw a shipped figure of `rotate` with other class names."""
    monkeypatch.setattr(house, "_warned", set())
    result, _ = results.read_result(discovery.root() / "figures" / "rotate-mnist-2-0.json")
    return lambda name: result._replace(classes=[name.format(k) for k in range(10)])


def test_a_dollar_sign_is_drawn_as_a_letter(shown, tmp_path):
    drawn = results.draw("rotate", shown(r"$\frob$ x{}"), 7.16)
    for kind in results.FORMATS:
        assert results.save_figure(drawn, tmp_path / f"x.{kind}").stat().st_size > 1000
    words = [text.get_text() for text in drawn.findobj(Text)]
    assert any(r"\$\frob\$ x2" in one for one in words)
    assert r"$\frob$ x2" in (tmp_path / "x.svg").read_text(encoding="utf-8")


def test_letters_without_a_font_are_reported_in_one_line(shown, tmp_path, capsys):
    result = shown("猫{}犬")
    for kind in results.FORMATS:
        results.save_figure(results.draw("rotate", result, 7.16), tmp_path / f"x.{kind}")
    next(frames(result, 200))
    assert capsys.readouterr().err == "no font here has 猫 犬: --font takes a font with them\n"


RGB = np.array([to_rgb(colour) for colour in results.COLOURS])
LEAST = 15  # CIEDE2000; the ten colours of before came down to 1.5
DEUTERANOPIA = np.array([  # Machado, Oliveira & Fernandes 2009, table 1, severity 1.0; linear RGB
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.011820, 0.042940, 0.968881],
])  # fmt: skip


@pytest.mark.parametrize("eyes", [np.eye(3), DEUTERANOPIA], ids=["usual", "deuteranope"])
def test_colours_of_ten_classes_are_distinct(eyes):
    linear = colorconv.rgb2xyz(RGB) @ colorconv.rgb_from_xyz.T
    lab = colorconv.xyz2lab((linear @ eyes.T).clip(0, 1) @ colorconv.xyz_from_rgb.T)
    apart = {(i, j): deltaE_ciede2000(lab[i], lab[j]) for i, j in combinations(range(10), 2)}
    assert min(apart.values()) > LEAST, min(apart, key=apart.get)


def test_every_colour_contrasts_with_white_and_letters_more_so():
    for colours, least in ((RGB, 1.95), ([legible(rgb) for rgb in RGB], 4.45)):
        contrast = 1.05 / (colorconv.rgb2xyz([to_rgb(one) for one in colours])[:, 1] + 0.05)
        assert contrast.min() >= least


def test_names_of_lines_are_spread_without_changing_their_order():
    wanted = np.array([60.0, 30.0, 31.0, 32.0, 90.0])
    middles = spread(wanted, [8] * 5, 0, 100)
    assert (np.diff(np.sort(middles)) >= 8 - 1e-9).all()
    assert (np.argsort(middles) == np.argsort(wanted)).all()
    assert middles[0] == 60 and middles[4] == 90
    assert middles[[1, 2, 3]].mean() == pytest.approx(wanted[[1, 2, 3]].mean())
    assert spread([99.0, 100.0], [8, 8], 0, 100) == pytest.approx([88, 96])
    many = np.random.default_rng(0).normal(size=40)
    np.testing.assert_allclose(ascending(many), isotonic_regression(many).x, atol=1e-12)
