"""Figure environments: files that LaTeX cannot read by their names."""

import pytest

from capsviz.results.latex import environment


@pytest.mark.parametrize(
    ("file", "readable"),
    [("out 50%_#1/rotate-2-0.pdf", "rotate-2-0.pdf"), ("out/50%{~}.pdf", "50----.pdf")],
)
def test_a_file_that_latex_cannot_read_is_included_by_another_name(file, readable):
    lines = environment(file, "A caption.", "50%", 3.25)
    assert lines[0] == f"% LaTeX cannot read {file}: copy it to {readable} beside the document"
    assert f"]{{{readable}}}" in lines[3] and r"\label{fig:50-}" in lines[-2]
    assert not any("%" in line for line in lines[1:])


def test_other_files_are_included_as_they_are():
    assert "]{my figures/a_b-0.1.pdf}" in environment("my figures/a_b-0.1.pdf", "", "a", 3.25)[2]
