"""What is drawn stays on the page, can be read, and is drawn again from its numbers alone."""

from matplotlib.text import Text

from capsviz import results
from helpers import legibility

NARROWEST = (3.25, 5.5)  # inches: of one column, of two; tests/figures/test_print.py has all widths


def assert_fits(figure):
    """Nothing leaves the page, and no text is smaller than 6 points."""
    figure.draw_without_rendering()
    _assert_on_page(figure)


def _assert_on_page(figure):
    drawn, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert drawn.x0 >= -0.01 and drawn.y0 >= -0.01, drawn
    assert drawn.x1 <= width + 0.01 and drawn.y1 <= height + 0.01, (drawn.extents, width, height)
    sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text().strip()]
    assert min(sizes) >= 6


def assert_redrawn(analysis, result, folder, widths=NARROWEST):
    """Every picture and caption comes from the file as from the result; all can be read."""
    about = {"analysis": analysis, "kind": type(result).__name__, "width": 3.5}
    results.write_result(folder / "result", result, about)
    stored, _ = results.read_result(folder / "result.json")
    assert results.to_json(stored) == results.to_json(result)
    for part in results.parts(analysis, stored):
        text = results.caption(analysis, stored, part)
        assert text == results.caption(analysis, result, part)
        for width in widths:
            figure = results.draw(analysis, stored, width, part)
            with results.style():
                defects = legibility.defects(figure, results.inches(width), text)
                assert not defects, f"{part} {width}: {defects}"
                _assert_on_page(figure)  # as it was laid out just now
