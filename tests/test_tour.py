"""The notebook docs/tour.ipynb, a lecture, runs, and says what is written in it.

Made anew by `jupyter execute --inplace docs/tour.ipynb`.
"""

import re

import pytest
from helpers import source_code as sources

from capsviz import discovery

notebooks = pytest.importorskip(
    "helpers.notebooks", reason="pip install nbformat nbclient ipykernel"
)
code = notebooks.code
PATH = sources.ROOT / "docs" / "tour.ipynb"


@pytest.fixture(scope="module")
def committed():
    return notebooks.read(PATH)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    return notebooks.execute(PATH, tmp_path_factory.mktemp("tour"), epochs=2, fit=16)


def test_it_was_committed_with_its_outputs_in_order_and_without_errors(committed):
    notebooks.assert_committed_in_order(committed)
    assert PATH.stat().st_size < 2_000_000


def test_it_is_short_cells_with_a_sentence_each(committed):
    assert 12 <= len(code(committed)) <= 20
    assert max(len(cell.source.splitlines()) for cell in code(committed)) <= 18
    assert sum(cell.cell_type == "markdown" for cell in committed.cells) >= 15


def test_the_third_cell_shows_the_first_couplings(committed):
    first = code(committed)[:3]
    assert "capsviz.trace(model" in first[1].source and "plot.couplings(" in first[2].source
    assert any("image/png" in output.get("data", {}) for output in first[2].outputs)


def test_it_asks_before_it_shows_and_says_what_to_see(committed):
    told = [cell.source for cell in committed.cells if cell.cell_type == "markdown"]
    assert sum("*Question: " in text for text in told) >= 10
    assert sum("**What to see.**" in text for text in told) >= 8


def test_each_analysis_of_the_lecture_is_drawn(committed):
    for cell in code(committed):
        for name in re.findall(r'show\("(\w+)", ', cell.source):
            assert name in discovery.names("capsviz.analyses")
            assert any("image/png" in output.get("data", {}) for output in cell.outputs)


@pytest.mark.parametrize("name", discovery.names("capsviz.analyses"))
def test_every_analysis_is_in_the_gallery(name):
    text = (sources.ROOT / "docs/gallery.md").read_text(encoding="utf-8")
    assert f"`capsviz {name.replace('_', '-')}" in text


@pytest.mark.slow
def test_it_runs_and_says_what_is_written_in_it(committed, executed):
    notebooks.assert_says_the_same(committed, executed)
