"""The figure set is complete and described, survives a failed figure, and its LaTeX compiles."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers import command_line
from matplotlib.text import Text

from capsviz import discovery, files, results
from capsviz.analyses.detect import Detect
from capsviz.results import sets as paperset
from capsviz.statistics.words import shortened


def run(*args):
    return command_line.run("figures", "--checkpoint", "digits", *args)


@pytest.fixture(scope="module")
def figure_set(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    result = command_line.fine(run("--only", "perturb", "--n", 20, "--output", folder))
    return folder, result


def test_every_figure_has_its_numbers_and_is_in_the_manifest(figure_set):
    folder, _ = figure_set
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["failed"] == {} and manifest["n"] == 20
    assert [f["name"] for f in manifest["figures"]] == [
        "perturb-digits-2-0",
        "perturb-digits-2-20-images",
    ]
    for figure in manifest["figures"]:
        assert {p.rpartition(".")[2] for p in figure["files"]} >= {"pdf", "png", "json"}
        assert all((folder / name).is_file() for name in figure["files"])
        assert figure["caption"].endswith(".")
    assert manifest["provenance"]["weights_sha256"]


def test_latex_shows_every_figure_with_caption_and_label(figure_set):
    text = (figure_set[0] / "figures.tex").read_text()
    assert text.count(r"\includegraphics") == text.count(r"\label{fig:") == 2
    assert "°" not in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not here")
def test_latex_compiles(figure_set, tmp_path):
    for path in figure_set[0].iterdir():
        shutil.copy(path, tmp_path)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "figures.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_failed_figure_is_named_and_the_others_are_drawn(blank, tmp_path, monkeypatch):
    def broken(*given, **options):
        raise ValueError("no luck")

    monkeypatch.setattr("capsviz.analyses.routing.survey.survey", broken)
    monkeypatch.setattr(Detect, "left_out", broken)
    asked = ["--only", "detect", "--only", "routing", "--n", 5, "--format", "png"]
    result = run(*asked, "--output", tmp_path / "x")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "Error: 2 failed: detect, routing"
    manifest = json.loads((tmp_path / "x" / "manifest.json").read_text())
    assert manifest["failed"]["routing"] == manifest["failed"]["detect"] == "ValueError: no luck"
    assert len(manifest["figures"]) == 2


def test_the_set_leaves_out_an_analysis_that_gives_a_reason(blank, tmp_path, monkeypatch):
    monkeypatch.setattr(Detect, "left_out", lambda self, inputs: "nothing to detect")
    asked = ["--only", "detect", "--only", "reconstruct", "--n", 5, "--format", "png"]
    result = run(*asked, "--output", tmp_path)
    assert "detect left out: nothing to detect" in result.stderr
    assert result.stdout.startswith("2 figures")
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["failed"] == {} and len(manifest["figures"]) == 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--only", "rotat"], "unknown analysis 'rotat'"),
        (["--venue", "nips"], "unknown venue 'nips'"),
        (["--n", 361], "expected 1 to 360"),
        (["--digit", 11], "no class 11"),
    ],
)
def test_a_wrong_request_prints_one_line_and_writes_nothing(tmp_path, args, message):
    result = run(*args, "--output", tmp_path / "x")
    assert result.exit_code == 2 and message in result.stderr.splitlines()[-1]
    assert not (tmp_path / "x").exists()


def test_every_analysis_of_one_network_takes_part():
    apart = {"predict", "view"}  # of a user's pictures, of two networks
    apart |= {"attack", "binding"}  # several networks together, networks for assemblies
    assert set(paperset.offering()) == set(discovery.names("capsviz.analyses")) - apart


def test_a_killed_set_continues_where_it_stopped(blank, tmp_path, monkeypatch):
    words = ("--only", "reconstruct", "--only", "routing", "--n", 5, "--format", "png")
    words += ("--output", tmp_path / "x")
    latex = tmp_path / "x" / "figures.tex"
    latex.parent.mkdir()
    latex.write_text("of an earlier set")

    def killed(*args, **named):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:  # between a file and its record
        broken.setattr(results, "caption", killed)
        stopped = run(*words)
    assert stopped.exit_code == 1 and list((tmp_path / "x").glob("*.json"))
    assert latex.read_text() == "of an earlier set"
    assert stopped.stderr.splitlines()[-1].endswith("Run the same command to resume")
    with monkeypatch.context() as broken:
        broken.setattr("capsviz.analyses.routing.survey.survey", killed)
        assert run(*words).exit_code == 1
    manifest = json.loads((tmp_path / "x" / "manifest.json").read_text())
    assert manifest["whole"] == ["reconstruct"] and len(manifest["figures"]) == 4
    again = command_line.fine(run(*words))
    assert "reconstruct: kept, 2 drawn before" in again.stderr
    manifest = json.loads((tmp_path / "x" / "manifest.json").read_text())
    assert manifest["whole"] == ["reconstruct", "routing"] and len(manifest["figures"]) == 6
    (tmp_path / "x" / "routing-digits-2-0.png").unlink()
    third = run(*words)
    assert "reconstruct: kept" in third.stderr and "routing: kept" not in third.stderr
    assert (tmp_path / "x" / "routing-digits-2-0.png").stat().st_size > 1000
    assert "kept" not in run(*words, "--force").stderr


def test_figures_of_another_run_are_not_mixed_in(figure_set, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(figure_set[0], folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for force in ([], ["--force"]):
        other = run("--only", "perturb", "--n", 30, "--output", folder, *force)
        assert other.exit_code == 2 and "(n differ)" in other.stderr
        assert "choose another --output, or delete that folder first" in other.stderr
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_figures_are_redrawn_if_a_plugin_has_changed(figure_set, plugin, tmp_path):
    shutil.copytree(figure_set[0], tmp_path / "copy")
    plugin("analyses/own.py", "")
    edited = run("--only", "perturb", "--n", 20, "--output", tmp_path / "copy")
    assert edited.exit_code == 2 and "(plug-ins differ)" in edited.stderr


def test_figures_are_redrawn_if_plugins_or_data_are_no_longer_given(figure_set, tmp_path):
    shutil.copytree(figure_set[0], tmp_path / "copy")
    manifest = json.loads((tmp_path / "copy" / "manifest.json").read_text())
    manifest["key"] |= {"data files": "a1b2c3", "plug-ins": "d4e5f6"}
    (tmp_path / "copy" / "manifest.json").write_text(json.dumps(manifest))
    without = run("--only", "perturb", "--n", 20, "--output", tmp_path / "copy")
    assert without.exit_code == 2 and "(data files, plug-ins differ)" in without.stderr


def test_a_second_set_in_the_same_folder_at_once_is_refused(tmp_path):
    with files.locked(tmp_path):
        second = run("--only", "rotate", "--n", 4, "--output", tmp_path)
    assert second.exit_code == 1 and not list(tmp_path.glob("[!.]*"))
    assert f"another process is drawing figures in {tmp_path}" in second.stderr


def test_a_file_in_the_way_of_a_set_is_kept(tmp_path):
    (tmp_path / "rotate-digits-2-0.json").write_text("mine")
    result = run("--only", "rotate", "--n", 5, "--output", tmp_path)
    assert result.exit_code == 1 and "exists: add --force" in result.stderr
    assert (tmp_path / "rotate-digits-2-0.json").read_text() == "mine"


def test_a_set_without_formats_for_latex_reports_it(blank, tmp_path):
    words = ("--only", "rotate", "--n", 5, "--format", "svg", "--format", "svg")
    result = run(*words, "--output", tmp_path)
    assert result.exit_code == 0 and not (tmp_path / "figures.tex").exists()
    assert "no figures.tex: LaTeX includes pdf or png, got --format svg\n" in result.stderr


def test_a_single_figure_has_its_caption_for_a_paper(tmp_path):
    for path in (discovery.root() / "figures").glob("routing-mnist-2-0*"):
        shutil.copy(path, tmp_path)
    file = tmp_path / "routing-mnist-2-0.json"
    before = sorted(p.name for p in tmp_path.iterdir())
    shown = ["redraw", str(file), "--latex", "--venue", "icml"]
    text = command_line.run(*shown).stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == before  # nothing was drawn
    assert text.count(r"\begin{figure*}[t]") == text.count(r"\end{figure*}") == 2
    assert "width=6.75in" in text
    included = re.findall(r"\\includegraphics\[.*\]\{(.*)\}", text)
    assert [Path(name).exists() for name in included] == [True, True]
    captions = re.findall(r"\\caption\{(.*)\}", text)
    assert all(len(one) > 60 and "`" not in one for one in captions)
    narrow = command_line.run(*shown, "--width", "single").stdout
    assert "width=3.25in" in narrow and "figure*" not in narrow


def test_an_analysis_without_a_figure_is_reported_and_the_others_are_drawn(blank, tmp_path):
    result = run("--only", "curves,rotate", "--n", 5, "--format", "png", "--output", tmp_path)
    assert result.exit_code == 2 and "images: curves" in result.stderr
    assert list(tmp_path.glob("rotate-*.png"))


def test_long_names_of_classes_are_short_in_pictures():
    one, about = results.read_result(discovery.root() / "figures/rotate-mnist-2-0.json")
    long = [f"a rather long name of a class, {k:02d}" for k in range(10)]
    drawn = results.draw("rotate", one._replace(classes=long), about["width"])
    texts = " ".join(" ".join(text.get_text().split()) for text in drawn.findobj(Text))
    assert not any(name in texts for name in long)
    assert any(name in texts for name in shortened(long))


def test_analyses_with_many_passes_per_image_use_fewer_images_by_default(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(paperset, "make", lambda *args, **_: (seen.append(args[3]), ([], {}))[1])
    for typed in ((), ("--n", 300), ("--n", 20)):
        assert run("--output", tmp_path, *typed).exit_code == 0
    assert [(one.n, one.few) for one in seen] == [(360, 100), (300, 300), (20, 20)]
