"""The packages: capsviz, and inside of it what lies at the top of the repository; the description.

A release is built with `CAPSVIZ_URL`, the address of the repository: the description's links and
pictures are made absolute by it, and it is the project's address in the metadata. Without it links
into the repository become plain text, for nowhere else would they lead anywhere.
"""

import os
import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<path>(?!\w+:|#)[^)\s]+)\)")


def description(text: str, url: str, version: str) -> str:
    """The README for who reads it elsewhere."""

    def absolute(match: re.Match) -> str:
        if not url:
            return "" if match["picture"] else match["text"]
        kind = "raw" if match["picture"] else "blob"
        return f"{match['picture']}[{match['text']}]({url}/{kind}/v{version}/{match['path']})"

    return LINK.sub(absolute, text)


def addresses(url: str) -> dict:
    """Where the project is found, if that is known."""
    names = {"Documentation": "docs", "Changelog": "CHANGELOG.md"}
    pages = {name: f"{url}/blob/HEAD/{path}" for name, path in names.items()}
    return {"url": url, "project_urls": {"Source": url, **pages}} if url else {}


url = os.environ.get("CAPSVIZ_URL", "").rstrip("/")
source = (HERE / "capsviz/__init__.py").read_text(encoding="utf-8")
version = re.search(r'__version__ = "(.+?)"', source)[1]
inside = find_packages(include=["analyses*", "trained*"])  # where they lie: setup.cfg, package_dir
setup(
    packages=[*find_packages(include=["capsviz*"]), *(f"capsviz.{name}" for name in inside)],
    long_description=description((HERE / "README.md").read_text(encoding="utf-8"), url, version),
    long_description_content_type="text/markdown",
    **addresses(url),
)
