"""Write text for pages and papers: tables in Markdown and LaTeX, and LaTeX of figures."""

import functools
import re
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from capsviz.files import write_text

LATEX = {  # because pylatexenc's forms need a package in older LaTeX, or other fonts
    "°": r"$^\circ$", "×": r"$\times$", "·": r"$\cdot$", "²": "$^2$", "→": r"$\to$", "–": "--",
    "…": r"\dots{}", "û": r"$\hat u$", "v̂": r"$\hat v$", "|": "$|$",
}  # fmt: skip
COLUMN, PAGE = 245, 504  # widths in points of a column and of a page with two columns, 7 inches
GAP = 12  # points between the columns of a table
TALL = 45  # lines of a float that fit on a page
SIZES = {"": 1.0, r"\small": 0.925, r"\footnotesize": 0.85}  # relative widths at 10, 9, 8 points
NARROW, WIDE = " .,:;'|!()[]-ijlft", "mw%±×→–+=<>"
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
    """Return a Markdown table; the first column is aligned left, the others right."""
    rule = [":--", *["--:"] * (len(header) - 1)]
    lines = [header, rule, *rows]
    return "".join("| " + " | ".join(c.replace("|", r"\|") for c in r) + " |\n" for r in lines)


def latex(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str, label: str) -> str:
    """Return a LaTeX table environment of escaped plain text, which needs no package.

    A table wider than a column spans both. If it is wider than a page, its header is wrapped and
    its letters are smaller. If it is still too wide, the other columns follow below the first ones,
    with the row names repeated. A table taller than a page continues in further environments. The
    caption is plain text, the label "tab:LABEL".
    """
    columns = [([name], *cells) for name, *cells in zip(header, *rows, strict=True)]
    star = "*" if _width(columns) > COLUMN else ""
    if _width(columns) > PAGE:
        columns = [(_lines(name, cells), *cells) for (name,), *cells in columns]
    fitting = (size for size, scale in SIZES.items() if _width(columns, scale) <= PAGE)
    size = next(fitting, list(SIZES)[-1])
    pages: list[list[str]] = []
    for block in _blocks(columns, SIZES[size]):
        for start in range(0, max(1, len(rows)), TALL):
            part = [(lines, *cells[start : start + TALL]) for lines, *cells in block]
            tabular = _tabular(part)
            if pages and len(pages[-1]) + len(tabular) <= TALL:
                pages[-1] += ["", r"  \medskip", "", *tabular]
            else:
                pages.append(tabular)
    more = [r"  \addtocounter{table}{-1}", r"  \caption{(continued)}"]
    heads = [[rf"  \caption{{{escape(caption)}}}", rf"  \label{{tab:{label}}}"]]
    heads += [more] * (len(pages) - 1)
    lines = []
    for head, page in zip(heads, pages, strict=True):
        begin = [rf"\begin{{table{star}}}", r"  \centering", *head, r"  \medskip"]
        begin += [f"  {size}"] if size else []
        lines += [*begin, *page, rf"\end{{table{star}}}", ""]
    return "\n".join(lines)


def _tabular(columns) -> list[str]:
    """Return the lines of a tabular; a column is the list of its header lines, then its cells."""
    tall = max(len(lines) for lines, *_ in columns)
    heads = zip(*([""] * (tall - len(lines)) + lines for lines, *_ in columns), strict=True)
    rows = zip(*(cells for _, *cells in columns), strict=True)
    head, body = (
        [f"    {' & '.join(map(escape, row))} \\\\" for row in part] for part in (heads, rows)
    )
    rule = [r"    \hline"]
    begin = rf"  \begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}"
    return [begin, *rule, *head, *rule, *body, *rule, r"  \end{tabular}"]


def _blocks(columns, scale: float) -> list[list]:
    """Split the columns into as few blocks of similar width as fit on a page.

    Each block begins with the columns that name the rows.
    """
    rows = list(zip(*(cells for _, *cells in columns), strict=True))
    keys = (k for k in (1, 2, 3) if len({row[:k] for row in rows}) == len(rows))
    first = next(keys, 1)
    names, rest = columns[:first], columns[first:]
    for count in range(1, max(len(rest), 1) + 1):
        edges = [len(rest) * k // count for k in range(count + 1)]
        blocks = [[*names, *rest[start:end]] for start, end in pairwise(edges)]
        if max(_width(block, scale) for block in blocks) <= PAGE:
            break
    return blocks


def _lines(name: str, cells: Sequence[str]) -> list[str]:
    """Wrap a column's name to the width of its cells, or of its longest word if that is wider."""
    name = name.replace(" %", "\u00a0%")
    longest = max(1, *map(len, (*cells, *name.split(" "))))
    return textwrap.wrap(name, longest, break_on_hyphens=False) or [""]


def _width(columns, scale: float = 1.0) -> float:
    """Return the approximate width of columns side by side, in points."""
    widest = (max(map(_points, (*lines, *cells))) for lines, *cells in columns)
    return sum(scale * width + GAP for width in widest)


def _points(text: str) -> float:
    """Return the approximate width of a text in points, in LaTeX's 10-point font."""
    return sum(3 if c in NARROW else 8 if c.isupper() or c in WIDE else 5 for c in text)


def write(
    stem: Path, header: Sequence[str], rows: Sequence[Sequence[str]], caption: str
) -> list[Path]:
    """Write a table as `stem.md` and `stem.tex`, labelled by the stem's name; return the paths."""
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("md", "tex")]
    write_text(paths[0], f"{markdown(header, rows)}\n{caption}\n")
    write_text(paths[1], latex(header, rows, caption, stem.name))
    return paths


def escape(text: str) -> str:
    """Return plain text as LaTeX; an unknown character becomes its code point."""
    text = OPENING.sub("“", text).replace('"', "”")
    return _encoder().unicode_to_latex(unicodedata.normalize("NFC", text))


def typeset(caption: str) -> str:
    """Return a caption as LaTeX; text between backquotes is set as code."""
    return re.sub(r"`([^`]+)`", r"\\texttt{\1}", escape(caption))


def environment(
    file: str, caption: str, label: str, inches: float, column: float, *, place: str = "t"
) -> list[str]:
    """Return the lines of a figure environment; a figure wider than a column spans both."""
    star = "*" if inches > column + 0.01 else ""
    return [
        rf"\begin{{figure{star}}}[{place}]",
        r"  \centering",
        rf"  \includegraphics[width={min(inches, 7.4):.3g}in,height=9in,keepaspectratio]{{{file}}}",
        rf"  \caption{{{typeset(caption)}}}",
        rf"  \label{{fig:{label}}}",
        rf"\end{{figure{star}}}",
    ]


def document(captions: Mapping[str, str], kind: str, inches: float, column: float) -> str:
    """Return a complete LaTeX document with every figure of a set and its caption."""
    parts = [
        r"% Made by capsviz figures. Copy the figure environments, or compile it as it is.",
        rf"\documentclass{'[twocolumn]' if inches > column + 0.01 else ''}{{article}}",
        r"\usepackage{graphicx}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage[margin=1.2cm]{geometry}",
        r"\begin{document}",
    ]
    for name, caption in captions.items():
        figure = environment(f"{name}.{kind}", caption, name, inches, column, place="p")
        parts += ["", *figure, r"\clearpage"]
    return "\n".join([*parts, "", r"\end{document}", ""])
