"""Difficult machines: no home folder, streams with few characters, a full disk."""

import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.command_line import fine, run

from capsviz import data, files
from capsviz.training.history import read_history

ROOT = Path(__file__).parents[2]
TRAIN = ["train", "--dataset", "digits", "--types", 1, "--channels", 2, "--no-reconstruction"]
TRAIN += ["--limit", 32, "--output", "out"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def room_for(size):
    """Limit files to `size` bytes: larger writes stop in the middle, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_figure_is_drawn_without_home_backend_temporary_folder_and_locale(tmp_path):
    away = {"MPLBACKEND": "of_a_notebook", "TMPDIR": "/missing", "LC_ALL": "C", "PYTHONUTF8": "0"}
    kept = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME", "LANG")}
    more = {"PYTHONIOENCODING": "cp1252", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = ["redraw", ROOT / "figures/curves-4-runs.json", "--format", "png", "--output", "out"]
    run_in = {"env": kept | away | more, "cwd": tmp_path}
    done = subprocess.run([sys.executable, "-m", "capsviz", *words], capture_output=True, **run_in)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("out/*.png"))


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_command_works_with_a_closed_stream_and_does_not_write_to_the_other_instead(closed):
    words = [sys.executable, "-m", "capsviz", "evaluate", "--checkpoint", "digits", "--n", "20"]
    run_in = {"env": os.environ | {"PYTHONPATH": str(ROOT)}, "capture_output": True, "text": True}
    done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *words], **run_in)
    assert done.returncode == 0, done.stderr
    assert "digits test: 20 images" not in done.stdout and "accuracy" not in done.stderr


@pytest.mark.parametrize("charset", ["cp1252", "gbk"])
def test_a_character_that_a_terminal_cannot_encode_becomes_a_question_mark(charset):
    done = fine(run("routing", "--explain", charset=charset))
    own = run("routing", "--explain").stdout.count("?")
    assert done.stdout_bytes.decode(charset).count("?") > own
    refused = run("evaluate", "--checkpoint", "猫", charset=charset)
    assert refused.exit_code == 2 and "unknown checkpoint '" in refused.stderr


def test_a_home_folder_is_needed_only_for_the_cache(monkeypatch):
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user without one
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("CAPSVIZ_DATA", "here")
    assert data.search_path() == [Path("here")]
    monkeypatch.delenv("CAPSVIZ_DATA")
    words = r"CAPSVIZ_DATA, XDG_CACHE_HOME or HOME.*--data-dir"
    with pytest.raises(FileNotFoundError, match=words):
        data.search_path()
    done = run("evaluate", "--n", 20)
    first = done.stderr.splitlines()[0]
    assert done.exit_code == 0 and "embedded 'digits'" in first and "--data-dir" in first


def test_an_interrupted_write_leaves_the_earlier_file(tmp_path):
    files.write_bytes(tmp_path / "a", b"before")
    with room_for(1000), pytest.raises(OSError, match=r"File too large: '.*/a'"):
        files.write_bytes(tmp_path / "a", b"x" * 5000)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a", b"before")]


@pytest.mark.parametrize("words", [("--export", "mine.npz"), ("--save-figure", "mine.png")])
def test_exported_data_and_sheets_are_whole_or_as_before(words):
    fine(run("data", "digits", *words))
    whole = Path(words[1]).read_bytes()
    with room_for(20_000):
        stopped = run("data", "digits", *words, "--force")
    assert stopped.stderr.splitlines()[-1] == f"Error: {words[1]}: File too large"
    assert [(p.name, p.read_bytes()) for p in Path().iterdir()] == [(words[1], whole)]


def test_training_on_a_full_disk_ends_in_one_line_and_can_be_resumed():
    assert run(*TRAIN, "--epochs", 2).exit_code == 0
    with room_for(400_000):  # less than the state
        stopped = run(*TRAIN, "--epochs", 3, "--resume")
    assert stopped.exit_code == 1
    assert stopped.stderr.splitlines()[-1] == "Error: out/state.safetensors: File too large"
    assert len(read_history(Path("out"))) == 2
    resumed = run(*TRAIN, "--epochs", 3, "--resume")
    assert resumed.exit_code == 0 and "epoch 3/3" in resumed.stderr


@pytest.mark.parametrize("mask", [0o077, 0o002])
def test_a_file_has_the_permissions_that_the_umask_leaves(tmp_path, mask):
    before = os.umask(mask)
    try:
        files.write_text(tmp_path / "result.json", "{}")
    finally:
        os.umask(before)
    assert (tmp_path / "result.json").stat().st_mode & 0o777 == 0o666 & ~mask
