"""Measurements, and the tables and pictures that are generated from them.

Each measurement writes one JSON to results/; `gpu` writes a folder of them under runs/.
"""

import json

from capsviz.discovery import root
from capsviz.files import write_text

ROOT = root()  # of the checkout
RESULTS = ROOT / "benchmarks/results"


def read(name: str) -> dict:
    """Return the result of a measurement, or {} if there is none yet."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write(name: str, result: dict) -> None:
    """Write the result of a measurement."""
    write_text(RESULTS / f"{name}.json", json.dumps(result, indent=1) + "\n")
