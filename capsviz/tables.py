"""Tables of text: Markdown for a page, LaTeX for a paper."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path

from capsviz.files import write_text

LATEX = {
    "\\": r"\textbackslash{}", "%": r"\%", "&": r"\&", "#": r"\#", "_": r"\_", "$": r"\$",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "°": r"$^\circ$", "×": r"$\times$", "±": r"$\pm$", "·": r"$\cdot$", "≤": r"$\le$",
    "≥": r"$\ge$", "Σ": r"$\Sigma$", "²": "$^2$", "→": r"$\to$", "−": "$-$", "–": "--",
    "…": r"\dots{}", "û": r"$\hat u$", "v̂": r"$\hat v$", "σ": r"$\sigma$",
    "<": "$<$", ">": "$>$", "|": "$|$",
}  # fmt: skip


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column to the left, the others, of numbers, to the right.

    Parameters
    ----------
    header  names of the columns, plain text.
    rows    as many texts in each as there are columns.

    Raises
    ------
    ValueError  for a row of another length.
    """
    _check(header, rows)
    rule = [":--", *["--:"] * (len(header) - 1)]
    lines = [header, rule, *rows]
    return "".join("| " + " | ".join(c.replace("|", r"\|") for c in r) + " |\n" for r in lines)


def latex(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str, label: str) -> str:
    """A LaTeX table environment, plain text escaped; needs no package.

    Parameters
    ----------
    header   names of the columns.
    rows     as many texts in each as there are columns.
    caption  plain text.
    label    to refer to it by: `tab:label`.

    Raises
    ------
    ValueError  for a row of another length.
    """
    _check(header, rows)
    lines = [" & ".join(map(escape, row)) + r" \\" for row in (header, *rows)]
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{escape(caption)}}}",
            rf"  \label{{tab:{label}}}",
            rf"  \begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            r"    \hline",
            f"    {lines[0]}",
            r"    \hline",
            *(f"    {line}" for line in lines[1:]),
            r"    \hline",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def write(
    stem: Path, header: Sequence[str], rows: Sequence[Sequence[str]], caption: str
) -> list[Path]:
    """Write a table as `stem.md` and `stem.tex`, labelled by the stem's name; the two paths."""
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("md", "tex")]
    write_text(paths[0], f"{markdown(header, rows)}\n{caption}\n")
    write_text(paths[1], latex(header, rows, caption, stem.name))
    return paths


def escape(text: str) -> str:
    """Plain text as LaTeX; a character that pdflatex may not know becomes its code point."""

    def one(c: str) -> str:
        if c in LATEX or ord(c) < 127:
            return LATEX.get(c, c)
        return c if "LATIN" in unicodedata.name(c, "") else f"[U+{ord(c):04X}]"

    return "".join(LATEX["v̂"] if c == "\0" else one(c) for c in text.replace("v̂", "\0"))


def _check(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"expected {len(header)} cells in a row, got {len(row)}: {list(row)}")
