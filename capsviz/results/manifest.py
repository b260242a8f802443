"""The manifest of a figure set: what is drawn, of what, and the digests of its files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from capsviz.files import write_text

NAME = "manifest.json"


class Entry(NamedTuple):
    """One picture of the set."""

    name: str
    analysis: str
    caption: str
    files: list[str]
    seconds: float
    commit: str | None = None  # of the code that made it
    part: str = ""  # of a result that several pictures show
    sha256: Mapping[str, str] | None = None  # of the files


class Earlier(NamedTuple):
    """What an earlier run left in a folder."""

    entries: list[Entry]
    whole: list[str]  # analyses that were drawn to their end
    key: Mapping | None  # what it was made of; None for a manifest of a version before


def digests(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """SHA-256 of files by their names."""
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def intact(folder: Path, entries: Sequence[Entry]) -> bool:
    """Whether every file of the entries lies there as it was written."""
    try:
        return all(one.sha256 and digests(folder, one.files) == one.sha256 for one in entries)
    except OSError:
        return False


def read(folder: Path) -> Earlier | None:
    """What an earlier run left; None for nothing, or for what is no manifest."""
    try:
        manifest = json.loads((folder / NAME).read_text(encoding="utf-8"))
        entries = [Entry(**figure) for figure in manifest["figures"]]
        return Earlier(entries, list(manifest.get("whole", ())), manifest.get("key"))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(folder: Path, about: Mapping, entries: Sequence[Entry], failed: Mapping, **more) -> None:
    """Write the manifest whole; `about` says of what, `failed` which analyses failed and why."""
    figures = [entry._asdict() for entry in sorted(entries, key=lambda entry: entry.name)]
    manifest = {**about, **more, "figures": figures, "failed": dict(failed)}
    write_text(folder / NAME, json.dumps(manifest, indent=1) + "\n")
