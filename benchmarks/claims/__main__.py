"""Write docs/claims.md."""

from benchmarks.claims import write

write()
