"""How time and memory of a training step grow with batch, classes, image size and iterations.

`python -m benchmarks.scaling` measures each point in a process of its own (float32, the system's
allocator) and writes results/scaling.json after every one, so an interrupted series goes on where
it stopped; `--draw` makes docs/scaling.pdf and .png from that file alone. A point that would not
fit into the free memory is left out and says so.
"""

import argparse
import json

from benchmarks import RESULTS
from benchmarks.clock import about, python
from benchmarks.networks import VOTE_TENSORS
from capsviz import discovery, memory
from capsviz.files import write_text

RESULT = RESULTS / "scaling.json"
SWEEPS = {
    "batch": (1, 8, 32, 128, 512),
    "classes": (10, 20, 50, 100, 200),
    "size": (28, 40, 64, 96),
    "iterations": (1, 3, 5, 10),
}
BATCH = {"classes": 32, "size": 16}  # smaller where one image is larger
LABELS = {
    "batch": "batch",
    "classes": "classes (batch 32)",
    "size": "image side, px (batch 16)",
    "iterations": "routing iterations (batch 128)",
}
ROUNDS = 3


def points() -> list[dict]:
    """Every setting of every sweep, for both networks."""
    return [
        {"network": network, "sweep": sweep, "value": value}
        for sweep, values in SWEEPS.items()
        for value in values
        for network in ("capsviz", "literal")
    ]


def measure(network: str, sweep: str, value: int, rounds: int) -> dict:
    """One point; `refused` says why it was not run."""
    sizes = {"batch": BATCH.get(sweep, 128), "size": 28, "classes": 10, "iterations": 3}
    sizes[sweep] = value
    if network == "literal":
        side = (sizes["size"] - 16) // 2
        votes = 4 * sizes["batch"] * 32 * side**2 * sizes["classes"] * 16
        if VOTE_TENSORS * votes > memory.available():
            return {"refused": f"the votes alone are {memory.gib(votes)}"}
    flags = [word for name, x in sizes.items() for word in (f"--{name}", str(x))]
    words = ["-m", "benchmarks.steps", "--network", network, "--rounds", str(rounds)]
    return json.loads(python(*words, *flags))


def draw(lines: list[dict]) -> None:
    """docs/scaling.pdf and .png."""
    import matplotlib.pyplot as plt

    from capsviz import results

    def curve(ax, network, sweep, key, scale, **how):
        chosen = [x for x in lines if x["network"] == network and x["sweep"] == sweep and key in x]
        ax.plot([x["value"] for x in chosen], [x[key] * scale for x in chosen], **how)

    with results.style():
        figure, axes = plt.subplots(2, len(SWEEPS), figsize=(7.16, 3.6), sharey="row")
        for column, sweep in zip(axes.T, SWEEPS, strict=True):
            for colour, network in zip(results.COLOURS[:2], ("capsviz", "literal"), strict=True):
                how = {"color": colour, "marker": "o", "markersize": 3, "label": network}
                curve(column[0], network, sweep, "median_ms", 1e-3, **how)
                curve(column[1], network, sweep, "transient_bytes", 1e-9, **how)
            for ax in column:
                ax.set_xscale("log")
                ax.set_yscale("log")
                ax.set_xticks(SWEEPS[sweep], [str(v) for v in SWEEPS[sweep]])
                ax.minorticks_off()
                ax.grid(alpha=0.3)
            column[0].tick_params(labelbottom=False)
            column[1].set_xlabel(LABELS[sweep])
        axes[0, 0].set_ylabel("time of a step (s)")
        axes[1, 0].set_ylabel("memory of a step (GB)")
        axes[0, 0].legend(loc="upper left")
        for kind in ("pdf", "png"):
            results.save_figure(figure, discovery.root() / "docs" / f"scaling.{kind}")
        plt.close(figure)


def main() -> None:
    """Measure what is missing, then draw."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--draw", action="store_true", help="only draw what was measured")
    options.add_argument("--again", action="store_true", help="measure everything anew")
    arguments = options.parse_args()
    result = {"points": []}
    if RESULT.exists() and not arguments.again:
        result = json.loads(RESULT.read_text())
    if not arguments.draw:
        known = {(x["network"], x["sweep"], x["value"]) for x in result["points"]}
        for point in points():
            if tuple(point.values()) not in known:
                result["points"].append(point | measure(**point, rounds=ROUNDS))
                write_text(RESULT, json.dumps({"about": about(), **result}, indent=1) + "\n")
    draw(result["points"])


if __name__ == "__main__":
    main()
