"""The notebooks of docs/ run, and say what is written in them.

Made anew by `jupyter execute --inplace docs/NAME.ipynb`.
"""

import re

import pytest
from helpers import source_code as sources

from capsviz import discovery

LACKING = "pip install nbformat nbclient ipykernel"
notebooks = pytest.importorskip("helpers.notebooks", reason=LACKING)
kernel, DOCS = notebooks.kernel, sources.ROOT / "docs"
SHORTER = {  # of each notebook, numbers that make its run shorter in cells that may vary
    "tour": {"epochs": 1, "limit": 128, "fit": 16, r"model}, \*inputs.images": 40},
    "own-network": {"epochs": 1},
    "paper-figures": {},
}


@pytest.fixture(scope="module", params=SHORTER)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def committed(name):
    return notebooks.read(DOCS / f"{name}.ipynb")


def pictures(cell):
    return sum("image/png" in output.get("data", {}) for output in cell.outputs)


def test_it_was_committed_with_its_outputs_in_order_and_without_errors(name, committed):
    notebooks.assert_committed_in_order(committed)
    assert (DOCS / f"{name}.ipynb").stat().st_size < 2_000_000
    assert "WHEEL = " in notebooks.code(committed)[0].source  # installs where nothing is installed


def test_what_is_shown_is_drawn(committed):
    for cell in notebooks.code(committed):
        for analysis in re.findall(r'show\("(\w+)", ', cell.source):
            assert analysis in discovery.names("capsviz.analyses") and pictures(cell)


@pytest.mark.slow
def test_it_runs_and_says_what_is_written_in_it(name, kernel, committed, tmp_path):
    executed = notebooks.execute(kernel, DOCS / f"{name}.ipynb", tmp_path, **SHORTER[name])
    notebooks.assert_says_the_same(committed, executed)


def test_a_mistake_is_found_and_mended():
    own = notebooks.read(DOCS / "own-network.ipynb")
    words = "\n".join(notebooks.text(cell) for cell in notebooks.code(own))
    before, _, after = words.partition("MendedCapsNet: ")
    assert "FAIL    mixed_positions" in before and "(144, 1, 1)" in before
    assert "FAIL" not in after.splitlines()[0] and "(16, 3, 3)" in after


@pytest.mark.parametrize("analysis", discovery.names("capsviz.analyses"))
def test_every_analysis_is_in_the_gallery(analysis):
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert f"`capsviz {analysis.replace('_', '-')}" in text
