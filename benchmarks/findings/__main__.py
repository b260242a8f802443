"""Write docs/findings.md."""

from benchmarks.findings import write

write()
