"""What `benchmarks.gpu` measured on a GPU, as a table: from results/gpu-*.json."""

from __future__ import annotations

import json

from benchmarks import RESULTS
from benchmarks.gpu import ROUNDS
from capsviz.results.tables import markdown

CONTENDERS = {
    "floor": "floor",
    "literal": "literal",
    "capsviz launches": "capsviz, by launches",
    "capsviz graph": "capsviz, one graph",
}
AIM = 0.6  # seconds of an epoch


def gpu_table() -> str:
    """Steps by precision and batch, and epochs by batch, with what they are of."""
    steps = {path.stem: _read(path) for path in sorted(RESULTS.glob("gpu-steps-*.json"))}
    header = ["batch", "precision", *(f"{label}, ms" for label in CONTENDERS.values())]
    rows = []
    for name in sorted(steps, key=lambda name: (name.rpartition("-")[2], int(name.split("-")[2]))):
        _, _, batch, precision = name.split("-")
        times = steps[name]["milliseconds"]
        rows.append([batch, precision, *(f"{times[key]:.1f}" for key in CONTENDERS)])
    epochs = {
        int(path.stem.split("-")[2]): _read(path)
        for path in RESULTS.glob("gpu-epochs-*-graph.json")
    }
    listed = ", ".join(f"{epochs[batch]['seconds']:.2f} s by {batch:,}" for batch in sorted(epochs))
    met = [f"{batch:,}" for batch in sorted(epochs) if epochs[batch]["seconds"] <= AIM]
    met = f"met by batches of {' and '.join(met)} alone" if met else "missed"
    about = next(iter(steps.values()))
    versions = about["provenance"]["versions"]
    return "\n".join(
        [
            markdown(header, rows),
            f"Training steps, medians of {ROUNDS} rounds in which all take turns, waiting for the "
            f"GPU after each; {about['hardware']}, torch {versions['torch']}, one session. An "
            f"epoch of MNIST in bf16, with validation: {listed} images (aim: {AIM} s, {met}).",
        ]
    )


def _read(path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))
