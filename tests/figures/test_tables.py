"""Tables: every cell arrives, signs are escaped, LaTeX compiles."""

import shutil
import subprocess

import pytest

from capsviz.figures import tables

HEADER = ["corruption", "caps_net", "CNN"]
ROWS = [["fog", "12.3 %", "4 ± 1"], ["a|b", "–", "< 5"]]


def test_markdown_has_a_row_for_each_and_numbers_to_the_right():
    assert tables.markdown(HEADER, ROWS).splitlines() == [
        "| corruption | caps_net | CNN |",
        "| :-- | --: | --: |",
        "| fog | 12.3 % | 4 ± 1 |",
        r"| a\|b | – | < 5 |",
    ]


def test_latex_escapes_what_it_is_given():
    text = tables.latex(HEADER, ROWS, "Error in %.", "corrupt-10")
    assert r"\caption{Error in \%.}" in text and r"\label{tab:corrupt-10}" in text
    assert r"corruption & caps\_net & CNN \\" in text and r"\begin{tabular}{lrr}" in text
    assert r"fog & 12.3 \% & 4 \ensuremath{\pm} 1 \\" in text
    assert r"a$|$b & -- & \ensuremath{<} 5 \\" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v\u0302 û", r"$\hat v$ $\hat u$"),
        ("90°, 3 × 4 · 5²", r"90$^\circ$, 3 $\times$ 4 $\cdot$ 5$^2$"),
        (r"a\b{c}~^", r"a{\textbackslash}b\{c\}{\textasciitilde}{\textasciicircum}"),
        ("u – v … → σ", r"u -- v \dots{} $\to$ \ensuremath{\sigma}"),
        (
            'the "paper" ("it")',
            r"the {\textquotedblleft}paper{\textquotedblright} "
            r"({\textquotedblleft}it{\textquotedblright})",
        ),
        ("Łé 字", r"{\L}\'e [U+5B57]"),
    ],
)
def test_signs_become_what_latex_writes_them_as(text, expected):
    assert tables.escape(text) == expected


@pytest.mark.parametrize("make", [tables.markdown, lambda h, r: tables.latex(h, r, "", "x")])
def test_a_row_of_another_length_is_refused(make):
    with pytest.raises(ValueError, match=r"expected 3 cells in a row, got 2: \['a', 'b'\]"):
        make(HEADER, [*ROWS, ["a", "b"]])


def test_both_are_written_beside_each_other(tmp_path):
    paths = tables.write(tmp_path / "new" / "net.v1", HEADER, ROWS, "Error in %.")
    assert [p.name for p in paths] == ["net.v1.md", "net.v1.tex"]
    assert paths[0].read_text(encoding="utf-8").endswith("|\n\nError in %.\n")
    assert r"\label{tab:net.v1}" in paths[1].read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not here")
def test_latex_compiles(tmp_path):
    tables.write(tmp_path / "table", HEADER, ROWS, "Error in %.")
    document = r"\documentclass{article}\begin{document}\input{table}\end{document}"
    (tmp_path / "whole.tex").write_text(document)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "whole.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
