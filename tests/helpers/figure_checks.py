"""What is drawn stays on the page and can be read; the results that ship."""

from functools import cache

from capsviz import discovery, results
from helpers import legibility


def assert_fits(figure):
    """Nothing leaves the page, and no text is smaller than 6 points."""
    texts = legibility.drawn_texts(figure)
    assert [*legibility.letters(texts), *legibility.off_page(figure, texts)] == []


@cache
def shipped():
    """The results in figures/, by analysis."""
    found = {}
    for path in sorted((discovery.root() / "figures").glob("*.json")):
        if path.name != "manifest.json":
            result, about = results.read_result(path)
            found.setdefault(about["analysis"], []).append(result)
    return found
