"""The page of an analysis in parts: question, method, how to read it, what not to conclude."""

from __future__ import annotations

import re
from typing import NamedTuple

from capsviz.analysis import explanation

SECTION = re.compile(r"^## +(.+)$", re.MULTILINE)


class About(NamedTuple):
    """The parts of an analysis's page; paragraphs apart by blank lines, "" for what it lacks."""

    question: str
    method: str
    reading: str
    conclusions: str  # that do not follow


def about(analysis: str) -> About:
    """Return the parts of the page of an analysis."""
    return parts(explanation(analysis))


def parts(page: str) -> About:
    """Return the parts of a page: its title, and the sections of `capsviz.analysis.explanation`.

    What stands under no heading is the method.
    """
    title, _, rest = page.partition("\n")
    first, *more = SECTION.split(rest)
    sections = {more[k].strip().lower(): _joined(more[k + 1]) for k in range(0, len(more), 2)}
    method = "\n\n".join(filter(None, [_joined(first), sections.get("method", "")]))
    return About(
        title.lstrip("# ").strip(),
        method,
        sections.get("what to see", ""),
        sections.get("what not to conclude", ""),
    )


def _joined(text: str) -> str:
    """Paragraphs, each on one line."""
    return "\n\n".join(" ".join(one.split()) for one in text.strip().split("\n\n"))
