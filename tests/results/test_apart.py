"""Pictures that are drawn in another process are those that are drawn here."""

import pytest

from capsviz import discovery, results
from capsviz.results import apart

RESULTS = discovery.root() / "figures"


@pytest.mark.parametrize("look", [{}, {"rc": {"lines.linewidth": "3"}}])
def test_the_same_files_in_the_same_look(look, tmp_path):
    result, about = results.read_result(RESULTS / "transplant-mnist-1000-images.json")
    written = []
    with results.look(**look):
        for name, way in (("here", apart.here), ("apart", apart.apart)):
            with way() as draw:
                stem = tmp_path / name / "x"
                wait = draw(stem, about["analysis"], result, ("png", "pdf"), "double")
                paths, seconds = wait()
            assert seconds > 0
            written.append({path.name: path.read_bytes() for path in paths})
    assert written[0] == written[1] and {"x.png", "x.pdf"} <= set(written[0])


def test_what_cannot_be_drawn_says_so_where_it_is_waited_for(tmp_path):
    result, about = results.read_result(RESULTS / "transplant-mnist-1000-images.json")
    with apart.apart() as draw:
        wait = draw(tmp_path / "x", about["analysis"], result, ("bmp",), "double")
        other = draw(tmp_path / "y", about["analysis"], result, ("png",), "double")
        with pytest.raises(ValueError, match="bmp"):
            wait()
        assert other()[0]  # and what comes after it is drawn
