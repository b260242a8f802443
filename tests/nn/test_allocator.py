"""The allocator: freed memory is kept, where there is a glibc."""

import subprocess
import sys

import pytest

CODE = """
import resource, sys
from capsviz.nn import allocator
kept = allocator.keep_freed_memory() if sys.argv[1] == "keep" else None

for _ in range(60):
    b"x" * (40_000_000 + _)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="not Linux")
def test_keeping_freed_memory_saves_page_faults():
    runs = {}
    for how in ("keep", "stock"):
        out = subprocess.check_output([sys.executable, "-c", CODE, how], text=True).split()
        runs[how] = (out[0], int(out[1]))
    if runs["keep"][0] == "False":
        pytest.skip("no glibc here")
    assert runs["keep"][1] < runs["stock"][1] / 5
