"""What an analysis says of itself: its question, its method, how to read it, what not to conclude.

All of it is the docstring of its file: the first line asks, what comes from "A reader should see"
on says how to read the figures, and from "Do not conclude" on what does not follow from them.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from capsviz import discovery

READING = re.compile(r"A reader should see")
NOT_TO_CONCLUDE = re.compile(r"Do not conclude|One \w+ proves nothing")


class About(NamedTuple):
    """The parts of an analysis's docstring; plain text, paragraphs apart by blank lines."""

    question: str
    method: str
    reading: str
    conclusions: str  # that do not follow


def about(analysis: str) -> About:
    """The parts of the docstring of an analysis, read without importing it."""
    path = discovery.source("capsviz.analyses", analysis)
    return parts(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")


def parts(docstring: str) -> About:
    """The parts of a docstring; "" for those that it does not have."""
    question, _, rest = docstring.partition("\n")
    paragraphs = [" ".join(text.split()) for text in rest.strip().split("\n\n")]
    text = "\n\n".join(paragraphs)
    warned = NOT_TO_CONCLUDE.search(text)
    end = warned.start() if warned else len(text)
    read = READING.search(text, 0, end)
    start = read.start() if read else end
    return About(
        question.strip(), *(p.strip() for p in (text[:start], text[start:end], text[end:]))
    )
