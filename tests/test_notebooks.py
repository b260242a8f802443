"""The notebooks of docs/ run, and say what is written in them.

Made anew by `jupyter execute --inplace docs/NAME.ipynb`.
"""

import itertools
import os
import re

import matplotlib
import pytest

from capsviz import discovery

LACKING = "pip install nbformat nbclient ipykernel"
nbformat = pytest.importorskip("nbformat", reason=LACKING)
nbclient = pytest.importorskip("nbclient", reason=LACKING)

DOCS = discovery.root() / "docs"
SHORTER = {  # of each notebook, numbers that make its run shorter in cells that may vary
    "tour": {"epochs": 1, "limit": 128, "fit": 16, r"model}, \*inputs.images": 40},
    "own-network": {"epochs": 1},
    "paper-figures": {},
}
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


def read(name):
    """A notebook as it was committed."""
    return nbformat.read(DOCS / f"{name}.ipynb", as_version=4)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """A client with one kernel for all notebooks, which knows no data but the embedded ones."""
    folder = tmp_path_factory.mktemp("kernel")
    env = {**os.environ, "PYTHONPATH": str(discovery.root()), "OMP_NUM_THREADS": "1"}
    env |= {"XDG_CACHE_HOME": str(folder), "IPYTHONDIR": str(folder)}
    env["MPLCONFIGDIR"] = matplotlib.get_cachedir()  # building a cache of fonts takes a warning
    for name in ("CAPSVIZ_DATA", "MPLBACKEND"):  # pictures are shown inline
        env.pop(name, None)
    client = nbclient.NotebookClient(nbformat.v4.new_notebook(), timeout=300)
    client.execute(env=env, cleanup_kc=False)
    yield client
    client._cleanup_kernel()


def execute(client, name, folder, **shorter):
    """The same cells, run now in a folder, and without the names of what ran before.

    `shorter` are whole numbers to write in the place of others, as `epochs=2`, in cells that vary.
    """
    notebook = read(name)
    for word, number in shorter.items():
        pattern = re.compile(rf'\b({word}(?:"\s*:\s*|=|\())\d+')
        cells = [cell for cell in code(notebook) if pattern.search(cell.source)]
        assert cells and all(VARIES in cell.metadata.get("tags", ()) for cell in cells), word
        for cell in cells:
            cell.source = pattern.sub(rf"\g<1>{number}", cell.source)
    for cell in code(notebook):
        cell.outputs = []
    notebook.cells.insert(0, nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {folder}"))
    client.nb = notebook
    client.execute(cleanup_kc=False)  # CellExecutionError with the traceback if a cell fails
    del notebook.cells[0]
    return notebook


@pytest.fixture(scope="module", params=SHORTER)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def committed(name):
    return read(name)


def pictures(cell):
    return sum("image/png" in output.get("data", {}) for output in cell.outputs)


def test_it_was_committed_with_its_outputs_in_order_and_without_errors(name, committed):
    cells = code(committed)
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell.outputs]
    assert {one.output_type for one in outputs} <= {
        "stream", "display_data", "execute_result"
    }  # fmt: skip
    assert {o.name for o in outputs if o.output_type == "stream"} == {"stdout"}  # nothing warned
    assert (DOCS / f"{name}.ipynb").stat().st_size < 2_000_000
    assert "WHEEL = " in cells[0].source  # installs where nothing is installed


def test_what_is_shown_is_drawn(committed):
    for cell in code(committed):
        for analysis in re.findall(r'show\("(\w+)", ', cell.source):
            assert analysis in discovery.names("capsviz.analyses") and pictures(cell)


@pytest.mark.slow
def test_it_runs_and_says_what_is_written_in_it(name, kernel, committed, tmp_path):
    executed = execute(kernel, name, tmp_path, **SHORTER[name])
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


def test_a_mistake_is_found_and_mended():
    own = read("own-network")
    words = "\n".join(text(cell) for cell in code(own))
    before, _, after = words.partition("MendedCapsNet: ")
    assert "FAIL    mixed_positions" in before and "(144, 1, 1)" in before
    assert "FAIL" not in after.splitlines()[0] and "(16, 3, 3)" in after


@pytest.mark.parametrize("analysis", discovery.names("capsviz.analyses"))
def test_every_analysis_is_in_the_gallery(analysis):
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert f"`capsviz {analysis.replace('_', '-')}" in text
