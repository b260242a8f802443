"""Docstrings of capsviz as Sphinx takes them: sections of "name  what it is", fields with comments.

    Parameters
    ----------
    votes       (B, I, J, E) what child i predicts
                for parent j.

becomes a definition list. Fields of dataclasses and named tuples are told from the comments beside
them. Single backquotes are code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from pathlib import Path

FIGURES = Path(__file__).resolve().parents[2] / "figures"
PICTURE = re.compile(r"!\[[^\]]*\]\(\.\./figures/(?P<stem>[^)]+)\.\w+\)")
SECTIONS = ("Parameters", "Returns", "Raises", "Yields")
OF_NAMES = ("Parameters", "Raises")
ENTRY = re.compile(r"(?P<names>\S+(?:, \S+)*)(?:\s{2,}(?P<text>.*))?$")
FIELD = re.compile(r"^ {4}(?P<name>\w+): (?P<kind>[^=#]+?)(?: = [^#]+)?(?:\s+# (?P<text>.*))?$")
OUTSIDE = re.compile(  # links to files of the repository that are not pages
    r"(?<!!)\[([^\]]+)\]\((?:\.\./)?(?:benchmarks/[^)]+|CITATION\.cff|CONTRIBUTING\.md)\)"
)


def escaped(text: str) -> str:
    """Prose: what is in backquotes is code, and no other sign means anything."""
    if "``" in text:  # it is reStructuredText already
        return text
    pieces = re.split(r"`([^`]+)`", text)
    for k, piece in enumerate(pieces):
        if k % 2:
            pieces[k] = f"``{piece.strip()}``"
        else:
            plain = re.sub(r"([*|\\])", r"\\\1", re.sub(r"_(?=\W|$)", r"\\_", piece))
            after = "\\ " if k and re.match(r"\w", plain) else ""  # what follows code at once
            pieces[k] = after + plain
    return "".join(pieces)


def converted(lines: Iterable[str]) -> list[str]:
    """A docstring's lines as reStructuredText."""
    lines, out, k = list(lines), [], 0
    while k < len(lines):
        ruled = k + 1 < len(lines) and re.fullmatch(r"-{3,}", lines[k + 1].strip() or " ")
        if lines[k].strip() in SECTIONS and ruled:
            end = next((e for e in range(k + 2, len(lines)) if _title(lines, e)), len(lines))
            out += _section(lines[k].strip(), lines[k + 2 : end])
            k = end
        elif lines[k].startswith("    ") and not (out and out[-1].startswith("- ")):
            end = k
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            out += ["", "::", "", *lines[k:end], ""]
            k = end
        else:
            out.append(escaped(lines[k]))
            k += 1
    return out


def _title(lines: list[str], k: int) -> bool:
    return lines[k].strip() in SECTIONS and k + 1 < len(lines) and lines[k + 1].startswith("---")


def _section(title: str, lines: list[str]) -> list[str]:
    out = ["", f"**{title}**", ""]
    if title not in OF_NAMES:
        return [*out, *(escaped(line.strip()) for line in lines), ""]
    for line in lines:
        entry = ENTRY.match(line) if line and not line.startswith(" ") else None
        if entry:
            out += ["", f"``{entry['names']}``"]
            if entry["text"]:
                out.append(f"    {escaped(entry['text'])}")
        elif line.strip():
            out.append(f"    {escaped(line.strip())}")
    return [*out, ""]


def fields(kind: type) -> list[str]:
    """Fields of a dataclass or a named tuple, with the comments beside them."""
    names = getattr(kind, "_fields", None) or list(getattr(kind, "__dataclass_fields__", ()))
    out = ["", "**Fields**", ""]
    for line in inspect.getsource(kind).splitlines() if names else ():
        match = FIELD.match(line)
        if match and match["name"] in names:
            told = f": {escaped(match['text'])}" if match["text"] else ""
            out += [f"``{match['name']}``", f"    ``{match['kind']}``{told}", ""]
    return out if names else []


def with_numbers(text: str) -> str:
    """Add to each figure a link to the file of its numbers, if it has one."""

    def add(match: re.Match) -> str:
        stem = match["stem"]
        files = [
            one.stem for one in FIGURES.glob("*.json") if f"{stem}-".startswith(f"{one.stem}-")
        ]
        link = f"\n\n[Numbers](../figures/{max(files, key=len)}.json)" if files else ""
        return match[0] + link

    return PICTURE.sub(add, text)


def setup(app):
    """Register with Sphinx."""

    def process(app, what, name, obj, options, lines):
        lines[:] = converted(lines) + (fields(obj) if what == "class" else [])

    def without_links(app, *where, **_):
        content = where[-1]
        content[0] = OUTSIDE.sub(r"\1", content[0])
        if where[0] == "gallery":
            content[0] = with_numbers(content[0])

    app.connect("autodoc-process-docstring", process)
    app.connect("source-read", without_links)
    app.connect("include-read", without_links)
    return {"parallel_read_safe": True}
