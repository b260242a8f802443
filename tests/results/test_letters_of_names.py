"""Class names as text: a dollar sign is a letter, and letters that no font has are told once."""

import pytest
from matplotlib.text import Text

from capsviz import discovery, results
from capsviz.analyses.rotate.draw import frames
from capsviz.results import house


@pytest.fixture
def shown(monkeypatch):
    """A shipped figure of `rotate`, its classes called otherwise."""
    monkeypatch.setattr(house, "_told", set())
    result, _ = results.read_result(discovery.root() / "figures" / "rotate-mnist-2-0.json")
    return lambda name: result._replace(classes=[name.format(k) for k in range(10)])


def test_a_dollar_sign_is_a_letter(shown, tmp_path):
    drawn = results.draw("rotate", shown(r"$\frob$ x{}"), 7.16)
    for kind in results.FORMATS:
        assert results.save_figure(drawn, tmp_path / f"x.{kind}").stat().st_size > 1000
    words = [text.get_text() for text in drawn.findobj(Text)]
    assert any(r"\$\frob\$ x2" in one for one in words)
    assert r"$\frob$ x2" in (tmp_path / "x.svg").read_text(encoding="utf-8")


def test_letters_that_no_font_has_are_told_in_one_line(shown, tmp_path, capsys):
    result = shown("猫{}犬")
    for kind in results.FORMATS:
        results.save_figure(results.draw("rotate", result, 7.16), tmp_path / f"x.{kind}")
    next(frames(result, 200))
    assert capsys.readouterr().err == "no font here has 猫 犬: --font takes a font with them\n"
