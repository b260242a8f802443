"""A crowded machine is named in one line, and a quiet one is not."""

import os

import pytest

from capsviz.cli import machine


@pytest.mark.parametrize(
    ("load", "count", "environment", "said"),
    [
        (0.5, 4, {}, ""),
        (9.2, 4, {}, "4 cores, and 9 processes want them: OMP_NUM_THREADS=1"),
        (9.2, 4, {"OMP_NUM_THREADS": "2"}, ""),
        (0.5, 2, {}, "more are not allowed here: OMP_NUM_THREADS=2"),
        (9.2, 1, {}, ""),
    ],
)
def test_the_line_says_what_to_do(monkeypatch, load, count, environment, said):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    line = machine.crowded(load, count, environment)
    assert said in line and bool(line) == bool(said) and "\n" not in line


@pytest.mark.parametrize(("text", "most"), [("150000 100000", 1.5), ("max 100000", 1e9), ("", 1e9)])
def test_the_limit_of_a_container_counts(tmp_path, text, most):
    file = tmp_path / "cpu.max"
    file.write_text(text)
    assert machine.cores(file) == min(machine.cores(tmp_path / "none"), most)
