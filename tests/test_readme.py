"""README and docs say what is true: tables are made from the cards, examples run, links lead."""

import re

import pytest
from helpers import command_line
from PIL import Image

from benchmarks import readme
from capsviz import checkpoint, discovery

ROOT = discovery.root()
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEXT = (ROOT / "docs/howto.md").read_text(encoding="utf-8")  # of the examples
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def block(part):
    """The Python block of the docs that holds `part`."""
    return next(b for b in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if part in b)


def example(part):
    """That block, executed."""
    module = {}
    exec(block(part), module)
    return module


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """The skeletons that the docs show, in a folder that `$CAPSVIZ_PLUGINS` names."""
    for kind, name in (("routing", "sharp2"), ("dataset", "bars2")):
        run("new", kind, name, "--folder", tmp_path / "mine")
    monkeypatch.setenv(discovery.PLUGINS, str(tmp_path / "mine"))
    return tmp_path


def run(*words):
    result = command_line.fine(command_line.run(*words))
    return result.stdout


@pytest.mark.parametrize("name", readme.PAGES)
def test_generated_parts_are_up_to_date(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "<!-- end -->" in text
    assert readme.fill(text, run=False) == text, "run `make readme`"


def test_the_readme_is_short():
    assert len(README.encode()) <= 9_000


def test_the_readmes_example_runs(monkeypatch):
    from matplotlib import pyplot

    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    module = {}
    exec(code, module)
    assert module["trace"].couplings.shape == (3, 1, 288, 10)
    assert "evidence for " in pyplot.gcf().axes[0].get_title()
    pyplot.close("all")


def test_the_training_loop_of_the_docs_trains_and_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = example("DataLoader(train")
    assert module["correct"].float().mean() > 0.5 and len(module["trace"].couplings) == 3
    right = module["correct"].float().mean()
    assert f"accuracy     {right:.2%}" in run("evaluate", "--checkpoint", "runs/mine")


@pytest.mark.skipif("mnist" not in checkpoint.shipped(), reason="no MNIST weights")
def test_a_picture_of_ones_own_is_traced_and_drawn_as_the_docs_say(tmp_path, monkeypatch):
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    paper = Image.new("L", (300, 420), "white")
    paper.paste(20, (135, 60, 165, 360))
    paper.save("photo.jpg")
    own = TEXT.partition("## Open your own picture")[2].partition("\n## ")[0]
    module = {}
    exec("".join(re.findall(r"```python\n(.*?)```", own, re.DOTALL)), module)
    assert int(module["predicted"]) == 1
    assert (tmp_path / "couplings.pdf").exists() and (tmp_path / "evidence.pdf").exists()
    ends = [axes.images[-1].norm.vmax for axes in pyplot.gcf().axes[:2]]
    assert ends[0] == ends[1]  # one scale for both maps
    pyplot.close("all")


def test_the_controls_of_the_docs_run():
    assert example('couplings="matched"')["trace"].couplings.shape == (3, 100, 288, 10)


def test_the_routing_and_the_data_set_of_the_docs_are_trained_with(plugins):
    small = ["--types", 2, "--channels", 8, "--epochs", 1, "--output", plugins / "run"]
    assert "test accuracy" in run("train", "--dataset", "bars2", "--routing", "sharp2", *small)
    card = checkpoint.load(plugins / "run").card
    assert card["results"]["test"]["n"] == 200 and card["dataset"]["name"] == "bars2"
    assert "200 images of bars2 test" in run("evaluate", "--checkpoint", plugins / "run")


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_link_leads_to_a_file_and_a_heading(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found.read_text(encoding="utf-8")), target


def test_the_files_that_the_pages_name_exist():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for path in re.findall(r"`((?:capsviz|analyses|tests|trained)/\S+?)`", text):
            if "NAME" not in path and "*" not in path:
                assert (ROOT / path).exists(), (page.name, path)
