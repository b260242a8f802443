"""Measure how time and memory of a training step grow with batch, classes, size and iterations.

`python -m benchmarks.scaling` measures each point in a separate process (float32, the system's
allocator). It writes results/scaling.json after each point, so an interrupted series resumes where
it stopped. `--draw` makes docs/scaling.pdf and .png from that file. A point that would not fit into
free memory is recorded as refused.
"""

import argparse
import json
from collections.abc import Iterable

from benchmarks import ROOT, read, write
from benchmarks.clock import about, python
from benchmarks.networks import VOTE_TENSORS
from capsviz import memory

SWEEPS = {
    "batch": (1, 8, 32, 128, 512),
    "classes": (10, 20, 50, 100, 200),
    "size": (28, 40, 64, 96),
    "iterations": (1, 3, 5, 10),
}
BATCH = {"classes": 32, "size": 16}  # smaller if one image needs more memory; otherwise 128
LABELS = {
    "batch": "batch",
    "classes": "classes (batch 32)",
    "size": "image side, px (batch 16)",
    "iterations": "routing iterations (batch 128)",
}
ROUNDS = 3


def points() -> list[dict]:
    """Return all settings of all sweeps, for both networks."""
    return [
        {"network": network, "sweep": sweep, "value": value}
        for sweep, values in SWEEPS.items()
        for value in values
        for network in ("capsviz", "literal")
    ]


def measure(network: str, sweep: str, value: int) -> dict:
    """Measure one point; `refused` is the reason if it was not run."""
    sizes = {"batch": BATCH.get(sweep, 128), "size": 28, "classes": 10, "iterations": 3}
    sizes[sweep] = value
    if network == "literal":
        side = (sizes["size"] - 16) // 2
        votes = 4 * sizes["batch"] * 32 * side**2 * sizes["classes"] * 16
        if VOTE_TENSORS * votes > memory.available():
            return {"refused": f"the votes alone are {memory.gib(votes)}"}
    flags = [word for name, x in sizes.items() for word in (f"--{name}", str(x))]
    words = ["-m", "benchmarks.steps", "--network", network, "--rounds", str(ROUNDS)]
    return json.loads(python(*words, *flags))


def fill(name: str, points: Iterable[dict], measure, *, again: bool) -> list[dict]:
    """Measure the points that a result file lacks, and write it after each."""
    result = {"points": []} | ({} if again else read(name))
    known = [{key: line[key] for key in ("network", "sweep", "value")} for line in result["points"]]
    for point in points:
        if point not in known:
            result["points"].append(point | measure(**point))
            write(name, {"about": about(), **result})
            print(result["points"][-1], flush=True)
    return result["points"]


def draw(name: str, lines: list[dict], labels: dict[str, str], rows) -> None:
    """Draw docs/NAME.pdf and .png: a column for each sweep; rows are (key, factor, label)."""
    import matplotlib.pyplot as plt

    from capsviz import results
    from capsviz.results.panels import look

    networks = list(dict.fromkeys(line["network"] for line in lines))
    with results.style():
        figure, axes = plt.subplots(len(rows), len(labels), figsize=(7.16, 3.6), sharey="row")
        for column, (sweep, label) in zip(axes.T, labels.items(), strict=True):
            of_sweep = sorted(
                (line for line in lines if line["sweep"] == sweep), key=lambda line: line["value"]
            )
            values = sorted({line["value"] for line in of_sweep})
            for ax, (key, factor, _) in zip(column, rows, strict=True):
                for k, network in enumerate(networks):
                    chosen = [x for x in of_sweep if x["network"] == network and key in x]
                    place, size = [x["value"] for x in chosen], [x[key] * factor for x in chosen]
                    ax.plot(place, size, **look(k) | {"markersize": 3}, label=network)
                ax.set(xscale="log", yscale="log")
                turned = 30 if values[-1] >= 10000 else 0
                ax.set_xticks(values, [f"{value:,}" for value in values], rotation=turned)
                ax.minorticks_off()
                ax.grid(alpha=0.3)
                ax.tick_params(labelbottom=ax is column[-1])
            column[-1].set_xlabel(label)
        for ax, (_, _, label) in zip(axes[:, 0], rows, strict=True):
            ax.set_ylabel(label)
        figure.align_xlabels()
        lines, names = axes[0, 0].get_legend_handles_labels()
        figure.legend(lines, names, loc="outside upper center", ncols=len(names))
        for kind in ("pdf", "png"):
            results.save_figure(figure, ROOT / "docs" / f"{name}.{kind}")
        plt.close(figure)


def options(text: str | None) -> argparse.Namespace:
    """Read the command line of a series of measurements."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--draw", action="store_true", help="only draw what was measured")
    parser.add_argument("--again", action="store_true", help="measure everything anew")
    return parser.parse_args()


def main() -> None:
    """Measure the missing points, then draw all."""
    given = options(__doc__)
    lines = fill("scaling", [] if given.draw else points(), measure, again=given.again)
    rows = ("median_ms", 1e-3, "time of a step (s)"), ("transient_bytes", 1e-9, "its memory (GB)")
    draw("scaling", lines, LABELS, rows)


if __name__ == "__main__":
    main()
