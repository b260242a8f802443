"""Provenance: a result says whether the code that made it was as committed."""

import subprocess

import pytest

from capsviz import discovery, provenance


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with a file of each kind, in place of our own."""
    monkeypatch.setattr(discovery, "root", lambda: tmp_path)
    for name in ("capsviz/a.py", "analyses/b.py", "benchmarks/c.py", "benchmarks/results/d.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    someone = ("-c", "user.name=x", "-c", "user.email=x@y", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "."), (*someone, "commit", "-qm", "x")):
        subprocess.check_call(["git", "-C", str(tmp_path), *words])
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "mark"),
    [
        ("capsviz/a.py", "+"),
        ("analyses/b.py", "+"),
        ("benchmarks/c.py", "+"),
        ("benchmarks/results/d.json", ""),
    ],
)
def test_a_commit_is_marked_where_its_code_was_changed(checkout, changed, mark):
    clean = provenance.commit()
    assert len(clean) == 40
    (checkout / changed).write_text("2\n")
    assert provenance.commit() == clean + mark


def test_without_a_checkout_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(discovery, "root", lambda: tmp_path)
    assert provenance.commit() is None
