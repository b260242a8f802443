"""One self-contained page of a network, or of several beside each other: see `contents.collect`."""

from capsviz.reports.contents import Contents, collect
from capsviz.reports.page import LIMIT_BYTES, render

__all__ = ["LIMIT_BYTES", "Contents", "collect", "render"]
