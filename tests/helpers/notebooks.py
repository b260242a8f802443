"""Notebooks of docs/: what their cells say, and their cells run anew."""

import itertools
import os
import re

import matplotlib
import pytest

from helpers import source_code as sources

nbformat = pytest.importorskip("nbformat", reason="pip install nbformat nbclient ipykernel")
nbclient = pytest.importorskip("nbclient", reason="pip install nbclient ipykernel")

NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?")
VARIES = "varies"  # tag of a cell whose numbers may differ from machine to machine


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text(cell):
    """What a cell printed and returned, without its pictures."""
    printed = "".join(o.text for o in cell.outputs if o.output_type == "stream")
    shown = [o for o in cell.outputs if o.output_type != "stream" and "image/png" not in o.data]
    return "\n".join([printed, *(o.data["text/plain"] for o in shown)])


def kinds(cell):
    """Of its outputs, in order; what is printed may come in several pieces."""
    return [kind for kind, _ in itertools.groupby(o.output_type for o in cell.outputs)]


def read(path):
    """A notebook as it was committed."""
    return nbformat.read(path, as_version=4)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """A client with one kernel for all notebooks, which knows no data but the embedded ones."""
    folder = tmp_path_factory.mktemp("kernel")
    env = {**os.environ, "PYTHONPATH": str(sources.ROOT), "OMP_NUM_THREADS": "1"}
    env |= {"XDG_CACHE_HOME": str(folder), "IPYTHONDIR": str(folder)}
    env["MPLCONFIGDIR"] = matplotlib.get_cachedir()  # building a cache of fonts takes a warning
    for name in ("CAPSVIZ_DATA", "MPLBACKEND"):  # pictures are shown inline
        env.pop(name, None)
    client = nbclient.NotebookClient(nbformat.v4.new_notebook(), timeout=300)
    client.execute(env=env, cleanup_kc=False)
    yield client
    client._cleanup_kernel()


def execute(client, path, folder, **shorter):
    """The same cells, run now in a folder, and without the names of what ran before.

    `shorter` are whole numbers to write in the place of others, as `epochs=2`, in cells that vary.
    """
    notebook = read(path)
    for name, number in shorter.items():
        pattern = re.compile(rf'\b({name}(?:"\s*:\s*|=|\())\d+')
        cells = [cell for cell in code(notebook) if pattern.search(cell.source)]
        assert cells and all(VARIES in cell.metadata.get("tags", ()) for cell in cells), name
        for cell in cells:
            cell.source = pattern.sub(rf"\g<1>{number}", cell.source)
    for cell in code(notebook):
        cell.outputs = []
    notebook.cells.insert(0, nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {folder}"))
    client.nb = notebook
    client.execute(cleanup_kc=False)  # CellExecutionError with the traceback if a cell fails
    del notebook.cells[0]
    return notebook


def assert_committed_in_order(notebook):
    """Its cells were run once, from first to last, and none of them failed or warned."""
    assert [cell.execution_count for cell in code(notebook)] == [*range(1, len(code(notebook)) + 1)]
    outputs = [output for cell in code(notebook) for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {
        "stream", "display_data", "execute_result"
    }  # fmt: skip
    assert {o.name for o in outputs if o.output_type == "stream"} == {"stdout"}


def assert_says_the_same(committed, executed):
    """The same words, and but for cells that vary the same numbers."""
    for before, now in zip(code(committed), code(executed), strict=True):
        assert kinds(before) == kinds(now), now.source
        if VARIES in before.metadata.get("tags", ()):
            continue
        then, today = text(before), text(now)
        assert NUMBER.sub("#", then) == NUMBER.sub("#", today), now.source
        numbers = [
            [float(n.replace("−", "-")) for n in NUMBER.findall(words)] for words in (then, today)
        ]
        assert numbers[1] == pytest.approx(numbers[0], rel=0.02, abs=0.011), now.source
