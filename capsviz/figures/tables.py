"""Tables of text: Markdown for a page, LaTeX for a paper."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from capsviz.files import write_text

LATEX = {  # where pylatexenc's own form needs a package in older LaTeX, or other fonts
    "°": r"$^\circ$", "×": r"$\times$", "·": r"$\cdot$", "²": "$^2$", "→": r"$\to$", "–": "--",
    "…": r"\dots{}", "û": r"$\hat u$", "v̂": r"$\hat v$", "|": "$|$",
}  # fmt: skip
OPENING = re.compile(r'(?<![^\s(\[])"')  # a straight quote before a word


@functools.cache
def _encoder():
    from pylatexenc import latexencode

    ours = re.compile("|".join(map(re.escape, LATEX)))
    plain = latexencode.UnicodeToLatexConversionRule(
        latexencode.RULE_REGEX, [(ours, lambda match: LATEX[match[0]])]
    )
    return latexencode.UnicodeToLatexEncoder(
        conversion_rules=[plain, "defaults"],
        unknown_char_policy=lambda c: f"[U+{ord(c):04X}]",
        unknown_char_warning=False,
    )


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
    """Plain text as LaTeX; a character that it has no sign for becomes its code point."""
    text = OPENING.sub("“", text).replace('"', "”")
    return _encoder().unicode_to_latex(unicodedata.normalize("NFC", text))


def _check(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"expected {len(header)} cells in a row, got {len(row)}: {list(row)}")
