"""Tables: every cell arrives, signs are escaped, LaTeX compiles."""

import re

import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath

from capsviz.results import tables

HEADER = ["corruption", "caps_net", "CNN"]
ROWS = [["fog", "12.3 %", "4 ± 1"], ["a|b", "–", "< 5"]]


def test_markdown_has_a_line_per_row_and_aligns_numbers_right():
    assert tables.markdown(HEADER, ROWS).splitlines() == [
        "| corruption | caps_net | CNN |",
        "| :-- | --: | --: |",
        "| fog | 12.3 % | 4 ± 1 |",
        r"| a\|b | – | < 5 |",
    ]


def test_latex_escapes_special_characters():
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
def test_symbols_become_latex_commands(text, expected):
    assert tables.escape(text) == expected


def test_markdown_and_latex_are_written_beside_each_other(tmp_path):
    paths = tables.write(tmp_path / "new" / "net.v1", HEADER, ROWS, "Error in %.")
    assert [p.name for p in paths] == ["net.v1.md", "net.v1.tex"]
    assert paths[0].read_text(encoding="utf-8").endswith("|\n\nError in %.\n")
    assert r"\label{tab:net.v1}" in paths[1].read_text(encoding="utf-8")


def printed(text):
    """Return the environment of a LaTeX table, its size, and its tabulars as rows of cells."""
    parts = re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}", text, re.DOTALL)
    rows = [
        [[cell.strip(" \\") for cell in row.split("&")] for row in one.split("\n") if "&" in row]
        for one in parts
    ]
    return text.split("\n")[0], re.findall(r"\\(small|footnotesize)\n", text), rows


def points(rows, size):
    """Return the width of a tabular in LaTeX's font."""
    letters = FontProperties(family="cmr10", size=size)
    shown = (
        max(TextToPath().get_text_width_height_descent(c.replace("\\", ""), letters, False)[0]
            for c in column)
        for column in zip(*rows, strict=True)
    )  # fmt: skip
    return sum(width + 12 for width in shown)


def test_a_table_wider_than_a_column_spans_both():
    wide = [["mnist", *["99.6 [99.2, 99.9]"] * 4]]
    made = tables.latex(["network", *["as they are"] * 4], wide, "", "x")
    environment, size, (rows,) = printed(made)
    assert environment == r"\begin{table*}" and made.endswith("\\end{table*}\n") and not size
    assert 245 < points(rows, 10) <= 504
    assert printed(tables.latex(HEADER, ROWS, "", "x"))[0] == r"\begin{table}"


def test_a_long_header_is_wrapped_before_columns_are_split():
    header = ["Warp", *["a network, freshly initialised (paper)"] * 3, "Test %"]
    environment, size, (rows,) = printed(
        tables.latex(header, [["rotation", *["0.89 [0.89, 0.90]"] * 3, "9"]], "", "x")
    )
    assert [row[1] for row in rows[:3]] == ["a network,", "freshly", "initialised"]
    assert [row[0] for row in rows[:4]] == ["", "", "", "Warp"] and rows[3][-1] == r"Test~\%"
    assert environment == r"\begin{table*}" and not size and points(rows, 10) <= 504


def test_a_table_taller_than_a_page_continues_in_further_ones():
    made = tables.latex(HEADER, [[f"row {k}", *ROWS[0][1:]] for k in range(100)], "All", "x")
    pages = re.findall(r"\\begin\{table\}.*?\\end\{table\}", made, re.DOTALL)
    assert len(pages) == 3 and max(page.count("\n") for page in pages) < 60
    assert [k for page in pages for k in re.findall(r"row (\d+)", page)] == [*map(str, range(100))]
    assert made.count(r"\label{tab:x}") == made.count(r"\caption{All}") == 1
    assert made.count(r"\addtocounter{table}{-1}") == made.count(r"\caption{(continued)}") == 2


def test_a_table_wider_than_a_page_continues_below_with_its_row_names():
    header = ["network", "data", *[f"measure {k}" for k in range(16)]]
    names = [["mnist-slim", "one"], ["mnist-slim", "two"]]
    rows = [[*name, *[f"{k}.0 [-91.2, 99.9]" for k in range(16)]] for name in names]
    environment, size, tabulars = printed(tables.latex(header, rows, "", "x"))
    assert environment == r"\begin{table*}" and size == ["footnotesize"] and len(tabulars) == 4
    assert all([row[:2] for row in one] == [header[:2], *names] for one in tabulars)
    assert all(250 < points(one, 8.5) <= 504 for one in tabulars)  # small letters are wider: cmr8
    whole = [[cell for one in tabulars for cell in one[k][2:]] for k in range(3)]
    assert whole == [row[2:] for row in (header, *rows)]
