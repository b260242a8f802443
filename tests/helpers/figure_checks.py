"""What is drawn stays on the page, can be read, and is drawn again from its numbers alone."""

from functools import cache

from capsviz import discovery, results
from helpers import legibility

NARROWEST = (3.25, 5.5)  # inches: of one column, of two; tests/results/test_print.py has all widths


def assert_fits(figure):
    """Nothing leaves the page, and no text is smaller than 6 points."""
    texts = legibility.drawn_texts(figure)
    assert [*legibility.letters(texts), *legibility.off_page(figure, texts)] == []


def assert_redrawn(analysis, result, folder, width=NARROWEST[0]):
    """Every picture and caption comes from the file as from the result; all can be read."""
    about = {"analysis": analysis, "kind": type(result).__name__, "width": 3.5}
    results.write_result(folder / "result", result, about)
    stored, _ = results.read_result(folder / "result.json")
    assert results.to_json(stored) == results.to_json(result)
    for part in results.parts(analysis, stored):
        text = results.caption(analysis, stored, part)
        assert text == results.caption(analysis, result, part)
        figure = results.draw(analysis, stored, width, part)
        with results.style():
            assert legibility.defects(figure, width, text) == [], part


@cache
def shipped():
    """The results in figures/, by analysis."""
    found = {}
    for path in sorted((discovery.root() / "figures").glob("*.json")):
        if path.name != "manifest.json":
            result, about = results.read_result(path)
            found.setdefault(about["analysis"], []).append(result)
    return found
