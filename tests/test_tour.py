"""The notebook docs/tour.ipynb runs, shows every analysis, and says what is written in it.

Made anew by `jupyter execute --inplace docs/tour.ipynb`.
"""

import os
import re

import pytest
import sources

from capsviz import discovery

nbformat = pytest.importorskip("nbformat", reason="pip install nbformat nbclient ipykernel")
nbclient = pytest.importorskip("nbclient", reason="pip install nbclient ipykernel")

PATH = sources.ROOT / "docs" / "tour.ipynb"
NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?")
VARIES = "varies"  # tag of a cell whose numbers may differ from machine to machine


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text(cell):
    """What a cell printed and returned, without its pictures."""
    parts = []
    for output in cell.outputs:
        if output.output_type == "stream":
            parts.append(output.text)
        elif "image/png" not in output.data:
            parts.append(output.data["text/plain"])
    return "\n".join(parts)


@pytest.fixture(scope="module")
def committed():
    return nbformat.read(PATH, as_version=4)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The same cells, run now, without any data but the embedded ones."""
    notebook = nbformat.read(PATH, as_version=4)
    for cell in code(notebook):
        cell.outputs = []
    folder = tmp_path_factory.mktemp("tour")
    env = {**os.environ, "PYTHONPATH": str(sources.ROOT), "OMP_NUM_THREADS": "1"}
    env |= {"XDG_CACHE_HOME": str(folder), "IPYTHONDIR": str(folder)}
    env.pop("CAPSVIZ_DATA", None)
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env=env)  # CellExecutionError with the traceback if a cell fails
    return notebook


def test_it_was_committed_with_its_outputs_in_order_and_without_errors(committed):
    assert [cell.execution_count for cell in code(committed)] == [
        *range(1, len(code(committed)) + 1)
    ]
    kinds = {output.output_type for cell in code(committed) for output in cell.outputs}
    assert kinds <= {"stream", "display_data", "execute_result"}
    streams = {o.name for c in code(committed) for o in c.outputs if o.output_type == "stream"}
    assert streams == {"stdout"}
    assert PATH.stat().st_size < 2_000_000


def test_it_is_short_cells_with_a_sentence_each(committed):
    assert 15 <= len(code(committed)) <= 35
    assert max(len(cell.source.splitlines()) for cell in code(committed)) <= 18
    assert sum(cell.cell_type == "markdown" for cell in committed.cells) >= 15


@pytest.mark.parametrize("name", discovery.names("capsviz.analyses"))
def test_every_analysis_is_on_the_tour(committed, name):
    (cell,) = [c for c in code(committed) if f"from capsviz.analyses import {name}\n" in c.source]
    assert f'show("{name}", ' in cell.source
    assert any("image/png" in output.get("data", {}) for output in cell.outputs)


@pytest.mark.slow
def test_it_runs_and_says_what_is_written_in_it(committed, executed):
    pairs = list(zip(code(committed), code(executed), strict=True))
    assert len(pairs) == len(code(committed))
    for before, now in pairs:
        kinds = [[o.output_type for o in cell.outputs] for cell in (before, now)]
        assert kinds[0] == kinds[1], now.source
        if VARIES in before.metadata.get("tags", ()):
            continue
        then, today = text(before), text(now)
        assert NUMBER.sub("#", then) == NUMBER.sub("#", today), now.source
        numbers = [
            [float(n.replace("−", "-")) for n in NUMBER.findall(words)] for words in (then, today)
        ]
        assert numbers[1] == pytest.approx(numbers[0], rel=0.02, abs=0.011), now.source
