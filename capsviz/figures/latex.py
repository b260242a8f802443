"""The LaTeX file of a figure set."""

from __future__ import annotations

from collections.abc import Sequence

from capsviz.figures.manifest import Entry
from capsviz.figures.tables import escape
from capsviz.figures.venues import INCHES


def latex(
    entries: Sequence[Entry], kind: str, inches: float, column: float = INCHES["single"]
) -> str:
    """A LaTeX document that shows every figure with caption and label, and compiles as it is.

    What is wider than a column, in inches, stands over both.
    """
    star = "*" if inches > column + 0.01 else ""
    parts = [
        r"% Made by capsviz figures. Copy the figure environments, or compile it as it is.",
        rf"\documentclass{'[twocolumn]' if star else ''}{{article}}",
        r"\usepackage{graphicx}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage[margin=1.2cm]{geometry}",
        r"\begin{document}",
    ]
    for entry in entries:
        parts += [
            "",
            rf"\begin{{figure{star}}}[p]",
            r"  \centering",
            rf"  \includegraphics[width={min(inches, 7.4):.3g}in,"
            rf"height=9in,keepaspectratio]{{{entry.name}.{kind}}}",
            rf"  \caption{{{escape(entry.caption)}}}",
            rf"  \label{{fig:{entry.name}}}",
            rf"\end{{figure{star}}}",
            r"\clearpage",
        ]
    return "\n".join([*parts, "", r"\end{document}", ""])
