"""One self-contained page of a network, or of several beside each other: see `contents.collect`."""

from capsviz.results.report.contents import Contents, collect
from capsviz.results.report.page import LIMIT_BYTES, render

__all__ = ["LIMIT_BYTES", "Contents", "collect", "render"]
