"""Measure time and memory of one capsule layer for every routing, fused and literal.

    python -m benchmarks.layers

The layer is that of the paper's network on MNIST: 1,152 primary capsules of 8 numbers, 10 class
capsules of 16, and a matrix for each pair. A step is forward and backward of 128 images, with three
iterations if a routing iterates. Contenders are timed in turn in one process; memory is measured in
a new process each. "Literal" keeps the votes in memory, and everything that autograd needs in each
iteration, as public code does.
"""

from __future__ import annotations

import json
import statistics
from contextlib import nullcontext

import click
import torch

from benchmarks import write
from benchmarks.clock import about, interleaved, peak_bytes, python
from capsviz.nn import routing
from capsviz.nn.capsule_layer import CapsuleLayer
from capsviz.nn.computation import literal

B, I, J, D, E = 128, 1152, 10, 8, 16
MEASURED = 7  # memory is the median over so many steps
FIRST = "dynamic"  # the routing that the others are compared with
# Freed memory returns to the system at once: otherwise memory kept by the allocator is counted.
TRIMMED = dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), "131072")


def step(name: str, *, by_votes: bool = False):
    """Return a function that runs the layer forward and backward."""
    torch.manual_seed(0)
    layer = CapsuleLayer((I, 1, 1), J, child_pose=(D,), parent_pose=(E,), routing=name)
    children = (0.3 * torch.randn(B, I, D)).requires_grad_()
    toward = torch.randn(B, J, E)

    def run() -> None:
        with literal() if by_votes else nullcontext():
            parents = layer.couple(children)
        ((parents.poses - toward).square().mean() + parents.activations.mean()).backward()
        layer.zero_grad()
        children.grad = None

    return run


def names() -> list[str]:
    """Return all routings, with the one for comparison first."""
    return [FIRST, *(name for name in routing.available() if name != FIRST)]


def memory(name: str, *flags: str) -> float:
    """Return the median bytes that a step needs beyond layer and inputs, in a new process."""
    return json.loads(python("-m", "benchmarks.layers", "--memory", name, *flags, **TRIMMED))


@click.command(help=__doc__.partition("\n")[0])
@click.option("--rounds", default=9, show_default=True)
@click.option("--memory", "alone", help="Print the bytes that a step by this routing takes.")
@click.option("--literal", "by_votes", is_flag=True)
def command(rounds, alone, by_votes):
    """Measure time and memory, and write the result file."""
    if alone:
        run = step(alone, by_votes=by_votes)
        run()
        print(json.dumps(statistics.median(peak_bytes(run) for _ in range(MEASURED))))
        return
    steps, peaks = {}, {}
    for name in names():
        steps[name], steps[f"{name}, literal"] = step(name), step(name, by_votes=True)
        peaks[name], peaks[f"{name}, literal"] = memory(name), memory(name, "--literal")
    result = {
        "names": names(),
        "times": interleaved(steps, rounds),
        "bytes": peaks,
        "rounds": rounds,
        "about": about(),
    }
    write("layers", result)
    click.echo(json.dumps(result["times"], indent=1))


if __name__ == "__main__":
    command()
