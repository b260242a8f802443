"""Measure time and memory of training and evaluation steps of every contender.

benchmarks.speed and benchmarks.scaling run it in separate processes, because the allocator must be
set before torch is loaded, and memory is counted from a clean start.
"""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial

from capsviz.nn import allocator

if "--kept" in sys.argv:
    allocator.keep_freed_memory()

import torch

from benchmarks.clock import interleaved, peak_bytes
from benchmarks.networks import Floor, literal
from capsviz.nn.computation import in_bfloat16
from capsviz.nn.models.capsnet import CapsNet
from capsviz.training.distributed import Team
from capsviz.training.gradients import Gradients

NETWORKS = ("floor", "plain floor", "capsviz", "literal")
WARM = 8  # rounds until freed memory is reused


def build(name: str, size: int = 28, classes: int = 10, iterations: int = 3):
    """Return a contender for square images with one channel."""
    torch.manual_seed(0)
    if name.endswith("floor"):
        return Floor((1, size, size), plain=name == "plain floor")
    network = CapsNet((1, size, size), classes, iterations=iterations)
    return literal(network) if name == "literal" else network


def trainer(
    network,
    *,
    batch: int = 128,
    bf16: bool = False,
    device: torch.device | str = "cpu",
    graph: bool = False,
) -> Callable[[], None]:
    """Move a network to a device, and return its training step: forward, backward, Adam.

    With `graph`, for networks of capsviz, forward and backward run as in `capsviz train`: on a GPU
    as one CUDA graph.
    """
    device = torch.device(device)
    network.to(device)
    optimiser = torch.optim.Adam(network.parameters(), 1e-3, fused=True)
    floor = isinstance(network, Floor)
    shape = network.image_shape if floor else network.settings.image_shape
    images = torch.rand(batch, *shape, device=device)
    labels = torch.randint(0, 10, (batch,), device=device)

    def loss():
        if floor:
            return network.loss(images)
        return network.objective(network(images), images, labels).loss

    def learn():
        with in_bfloat16(device, bf16):
            value = loss()
        value.backward()

    if graph:
        gradients = Gradients(network, network, Team(), part=batch, batch=batch, bf16=bf16)
        learn = partial(gradients, images, images, labels, 1.0, {})

    def step():
        optimiser.zero_grad(set_to_none=True)
        learn()
        optimiser.step()

    return step


def evaluator(network, batch: int) -> Callable[[], None]:
    """Return a function that evaluates a batch once."""
    images = torch.rand(batch, 1, 28, 28)

    def step():
        with torch.inference_mode():
            network.eval()(images)

    return step


def timings(rounds: int) -> dict:
    """Time training steps of 128 images, and evaluation of 128 and of 1.

    The literal network runs separately afterwards, because the memory that it allocates and frees
    slows down the next contender.
    """
    ours = ("floor", "plain floor", "capsviz")
    result = {
        "train fp32": interleaved({n: trainer(build(n)) for n in ours}, rounds, WARM),
        "train bf16": interleaved(
            {
                **{n: trainer(build(n), bf16=True) for n in ours},
                "capsviz fp32": trainer(build("capsviz")),
            },
            rounds,
            WARM,
        ),
    }
    for batch, more in ((128, 2), (1, 20)):
        steps = {n: evaluator(build(n), batch) for n in ours}
        result[f"evaluate {batch}"] = interleaved(steps, more * rounds, WARM)
    alone = {
        "train fp32": (trainer(build("literal")), rounds),
        "evaluate 128": (evaluator(build("literal"), 128), rounds),
        "evaluate 1": (evaluator(build("literal"), 1), 20 * rounds),
    }
    for what, (step, times) in alone.items():
        line = interleaved({"literal": step}, times, WARM)["literal"]
        result[what]["literal"] = {k: v for k, v in line.items() if k != "ratio"}
    return result


def point(name: str, batch: int, size: int, classes: int, iterations: int, rounds: int) -> dict:
    """Return time and memory of a training step, without weights, gradients and Adam's state."""
    network = build(name, size, classes, iterations)
    parameters = sum(p.numel() for p in network.parameters())
    step = trainer(network, batch=batch)
    step()  # makes the gradients and Adam's state
    result = {"transient_bytes": peak_bytes(step), "parameters": parameters}
    if hasattr(network, "training_bytes"):
        result["estimate_bytes"] = network.training_bytes(batch)
    if rounds:
        result |= interleaved({name: step}, rounds, warm=1)[name]
        del result["ratio"]
    return result


def main() -> None:
    """Print one measurement as JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kept", action="store_true", help="the allocator keeps freed memory")
    options.add_argument("--network", choices=NETWORKS, help="one point; else all timings")
    options.add_argument("--rounds", type=int, default=7)
    for name, value in (("batch", 128), ("size", 28), ("classes", 10), ("iterations", 3)):
        options.add_argument(f"--{name}", type=int, default=value)
    settings = vars(options.parse_args())
    del settings["kept"]
    name = settings.pop("network")
    print(json.dumps(point(name, **settings) if name else timings(settings["rounds"])))


if __name__ == "__main__":
    main()
