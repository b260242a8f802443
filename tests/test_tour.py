"""The notebook docs/tour.ipynb runs, shows every analysis, and says what is written in it.

Made anew by `jupyter execute --inplace docs/tour.ipynb`.
"""

import pytest
import sources

from capsviz import discovery

notebooks = pytest.importorskip("notebooks", reason="pip install nbformat nbclient ipykernel")
code = notebooks.code
PATH = sources.ROOT / "docs" / "tour.ipynb"


@pytest.fixture(scope="module")
def committed():
    return notebooks.read(PATH)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    return notebooks.execute(PATH, tmp_path_factory.mktemp("tour"))


def test_it_was_committed_with_its_outputs_in_order_and_without_errors(committed):
    notebooks.assert_committed_in_order(committed)
    assert PATH.stat().st_size < 2_000_000


def test_it_is_short_cells_with_a_sentence_each(committed):
    assert 15 <= len(code(committed)) <= 25
    assert max(len(cell.source.splitlines()) for cell in code(committed)) <= 18
    assert sum(cell.cell_type == "markdown" for cell in committed.cells) >= 15


@pytest.mark.parametrize("name", discovery.names("capsviz.analyses"))
def test_every_analysis_is_on_the_tour(committed, name):
    (cell,) = [c for c in code(committed) if f"from capsviz.analyses import {name}\n" in c.source]
    assert f'show("{name}", ' in cell.source
    assert any("image/png" in output.get("data", {}) for output in cell.outputs)


@pytest.mark.slow
def test_it_runs_and_says_what_is_written_in_it(committed, executed):
    notebooks.assert_says_the_same(committed, executed)
