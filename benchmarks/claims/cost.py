"""Claims on speed and memory, from benchmarks/results/speed.json."""

import json

from benchmarks import RESULTS
from benchmarks.claims.claim import DESCRIPTION, ROOT, Claim
from benchmarks.table import rows


def speed():
    """Every line of the README's table."""
    path = RESULTS / "speed.json"
    results = json.loads(path.read_text("utf-8"))
    machine = f"{results['about']['processor']}, {results['about']['hardware']}"
    for row in rows(results):
        unit = {"": "", "s": " s", "faster": "×"}[row.unit]
        number = f"{row.ours:.{0 if row.unit else 2}f}{unit}"
        aim = "" if row.bar is None else f"; aim {row.bar:g}, {'met' if row.met else 'missed'}"
        literal = DESCRIPTION if row.literal is None else f"the literal network, {row.literal:.2f}"
        yield Claim(
            f"{row.what[0].upper()}{row.what[1:]}: {number}.",
            f"{number}; no interval: measured on one machine ({machine}){aim}",
            path.relative_to(ROOT).as_posix(),
            "steps, memory, data_path, epoch",
            literal,
            "0: nothing is said of a trained network",
            "`make bench` on a quiet machine of the same kind",
        )
