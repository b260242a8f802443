"""LaTeX that shows figures: one environment with caption and label, or a whole document."""

from __future__ import annotations

import re
from collections.abc import Sequence

from capsviz.results.manifest import Entry
from capsviz.results.tables import escape
from capsviz.results.venues import INCHES

UNREADABLE = re.compile(r'[%#{}\\~^"]')  # by LaTeX, in the name of a file or a label


def typeset(caption: str) -> str:
    """A caption for LaTeX; what stands between backquotes is set as code."""
    return re.sub(r"`([^`]+)`", r"\\texttt{\1}", escape(caption))


def environment(
    file: str,
    caption: str,
    label: str,
    inches: float,
    column: float = INCHES["single"],
    *,
    place: str = "t",
) -> list[str]:
    """Lines of a figure environment; what is wider than a column, in inches, stands over both.

    Parameters
    ----------
    file     what is included; of a path that LaTeX cannot read its name, and a comment says so.
    caption  plain text, see `typeset`.
    label    after "fig:".
    place    t, p, ...: where LaTeX may put it.
    """
    star = "*" if inches > column + 0.01 else ""
    notes, label = [], UNREADABLE.sub("-", label)
    if UNREADABLE.search(file):
        readable = UNREADABLE.sub("-", file.rpartition("/")[2])
        notes = [f"% LaTeX cannot read {file}: copy it to {readable} beside the document"]
        file = readable
    return [
        *notes,
        rf"\begin{{figure{star}}}[{place}]",
        r"  \centering",
        rf"  \includegraphics[width={min(inches, 7.4):.3g}in,height=9in,keepaspectratio]{{{file}}}",
        rf"  \caption{{{typeset(caption)}}}",
        rf"  \label{{fig:{label}}}",
        rf"\end{{figure{star}}}",
    ]


def document(
    entries: Sequence[Entry], kind: str, inches: float, column: float = INCHES["single"]
) -> str:
    """A document that shows every figure of a set, and compiles as it is."""
    parts = [
        r"% Made by capsviz figures. Copy the figure environments, or compile it as it is.",
        rf"\documentclass{'[twocolumn]' if inches > column + 0.01 else ''}{{article}}",
        r"\usepackage{graphicx}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage[margin=1.2cm]{geometry}",
        r"\begin{document}",
    ]
    for entry in entries:
        file = f"{entry.name}.{kind}"
        figure = environment(file, entry.caption, entry.name, inches, column, place="p")
        parts += ["", *figure, r"\clearpage"]
    return "\n".join([*parts, "", r"\end{document}", ""])
