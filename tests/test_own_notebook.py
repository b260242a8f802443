"""The notebook docs/own-network.ipynb runs, in ten cells, from a module to a figure and a report.

Made anew by `jupyter execute --inplace docs/own-network.ipynb`.
"""

import pytest
from helpers import source_code as sources

notebooks = pytest.importorskip(
    "helpers.notebooks", reason="pip install nbformat nbclient ipykernel"
)
code, text = notebooks.code, notebooks.text
PATH = sources.ROOT / "docs" / "own-network.ipynb"


@pytest.fixture(scope="module")
def committed():
    return notebooks.read(PATH)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    return notebooks.execute(PATH, tmp_path_factory.mktemp("own"), epochs=2)


def printed(notebook):
    """All that the cells printed and returned."""
    return "\n".join(text(cell) for cell in code(notebook))


def test_it_was_committed_with_its_outputs_in_order_and_without_errors(committed):
    notebooks.assert_committed_in_order(committed)
    assert PATH.stat().st_size < 1_000_000


def test_it_is_at_most_ten_short_cells(committed):
    assert len(code(committed)) <= 10
    assert max(len(cell.source.splitlines()) for cell in code(committed)) <= 21


def assert_its_story(notebook):
    """Assert that a mistake is reported and mended, and that one routing figure is drawn."""
    words = printed(notebook)
    before, _, after = words.partition("MendedCapsNet: ")
    assert "FAIL    mixed_positions" in before and "(144, 1, 1)" in before
    assert "FAIL" not in after.splitlines()[0]
    assert "(16, 3, 3)" in after
    outputs = [output for cell in code(notebook) for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1


def test_it_tells_of_a_mistake_and_its_remedy(committed):
    assert_its_story(committed)


@pytest.mark.slow
def test_it_runs_and_says_what_is_written_in_it(committed, executed):
    notebooks.assert_says_the_same(committed, executed)
    assert_its_story(executed)
