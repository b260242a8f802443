"""Speed and memory of capsviz against the floor and a literal CapsNet, interleaved in one process.

`make bench` writes benchmarks/speed.json: for each measurement the median and the spread over
rounds, and the ratio to the floor, round by round. Every contender runs once in every round, so a
machine that drifts drifts for all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from capsviz import allocator

RESULT = Path(__file__).with_suffix(".json")
B = 128
TUNED = "--tuned" in sys.argv  # a process of its own: the allocator is set before torch is loaded
if TUNED:
    allocator.keep_freed_memory()

import torch  # noqa: E402

from benchmarks.networks import Floor, Literal  # noqa: E402
from capsviz import data, models, pipeline  # noqa: E402
from capsviz.augment import shift, to_float  # noqa: E402
from capsviz.provenance import provenance  # noqa: E402

NETWORKS = {
    "floor": Floor,
    "capsviz": lambda: models.build("capsnet", (1, 28, 28), 10),
    "literal": Literal,
}


def loss_of(network, images, labels):
    """The training loss of any contender."""
    if hasattr(network, "loss"):
        return network.loss(images, labels)
    return network.objective(network(images), images, labels).loss


def trainer(name: str, bf16: bool) -> Callable[[], None]:
    """One training step of a contender: forward, backward, Adam."""
    torch.manual_seed(0)
    network = NETWORKS[name]()
    optimiser = torch.optim.Adam(network.parameters(), 1e-3, fused=True)
    images, labels = torch.rand(B, 1, 28, 28), torch.randint(0, 10, (B,))

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = loss_of(network, images, labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()

    return step


def evaluator(name: str, batch: int) -> Callable[[], None]:
    """One evaluation of a batch."""
    torch.manual_seed(0)
    network = NETWORKS[name]().eval()
    images = torch.rand(batch, 1, 28, 28)

    def step():
        with torch.inference_mode():
            network(images)

    return step


def interleaved(contenders: dict[str, Callable], rounds: int, warm: int = 2) -> dict:
    """Seconds of every contender in every round, and their ratios to the first of them."""
    taken = {name: [] for name in contenders}
    for turn in range(warm + rounds):
        for name, step in contenders.items():
            start = time.perf_counter()
            step()
            if turn >= warm:
                taken[name].append(time.perf_counter() - start)
    first = next(iter(taken.values()))
    return {
        name: {
            "median_ms": 1e3 * statistics.median(values),
            "min_ms": 1e3 * min(values),
            "max_ms": 1e3 * max(values),
            "ratio": statistics.median(a / b for a, b in zip(values, first, strict=True)),
        }
        for name, values in taken.items()
    }


def data_path(rounds: int) -> dict:
    """Images per second with random shifts of 2 px: in memory, and by a DataLoader of pictures."""
    from PIL import Image
    from torchvision import transforms

    images = torch.randint(0, 256, (10_000, 1, 28, 28), dtype=torch.uint8)
    pictures = [Image.fromarray(image[0].numpy()) for image in images[:2_000]]
    change = transforms.Compose([transforms.RandomCrop(28, padding=2), transforms.ToTensor()])

    class Pictures(torch.utils.data.Dataset):
        def __len__(self):
            return len(pictures)

        def __getitem__(self, index):
            return change(pictures[index])

    loader = torch.utils.data.DataLoader(Pictures(), batch_size=B)

    def ours():
        for part in images.split(B):
            to_float(shift(part, 2))

    times = interleaved({"loader": lambda: [None for _ in loader], "ours": ours}, rounds)
    speeds = {
        "loader": len(pictures) / times["loader"]["median_ms"] * 1e3,
        "ours": len(images) / times["ours"]["median_ms"] * 1e3,
    }
    return {"images_per_second": speeds, "ratio": speeds["ours"] / speeds["loader"]}


def memory(name: str) -> int:
    """Bytes that a training step takes beyond weights and optimiser: run in its own process."""
    step = trainer(name, False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def python(*words: str, **more) -> str:
    """Standard output of a fresh interpreter."""
    return subprocess.check_output([sys.executable, *words], text=True, **more)


def whole_commands(rounds: int) -> dict:
    """Seconds of whole commands from a cold start."""
    commands = {
        "import torch": ["-c", "import torch"],
        "capsviz --help": ["-m", "capsviz", "--help"],
        "capsviz rotate --digit 2": ["-m", "capsviz", "rotate", "--output", "runs/bench"],
        "capsviz routing --digit 2": ["-m", "capsviz", "routing", "--output", "runs/bench"],
    }
    runs = {
        name: (lambda words=words: python(*words, stderr=subprocess.DEVNULL))
        for name, words in commands.items()
    }
    return interleaved(runs, rounds, warm=1)


def epoch() -> dict:
    """Seconds of one epoch of the shipped recipe on MNIST, validation included."""
    import tempfile
    from dataclasses import replace

    from capsviz.train import fit

    _, recipe = pipeline.prepare("mnist", {})
    parts = [data.load("mnist", split) for split in ("train", "validation")]
    marks = []
    with tempfile.TemporaryDirectory() as folder:
        _, history = fit(
            replace(recipe, epochs=1),
            *parts,
            Path(folder),
            on_step=lambda *_: marks.append(time.perf_counter()),
        )
    total = history[0].seconds
    steps = len(marks) / (len(marks) - 1) * (marks[-1] - marks[0])
    return {"seconds": total, "validation_share": max(0.0, 1 - steps / total)}


def timings(rounds: int) -> dict:
    """Everything that is timed inside this process."""
    found = {}
    for bf16 in (False, True):
        kind = "bf16" if bf16 else "fp32"
        steps = {name: trainer(name, bf16) for name in NETWORKS if not (bf16 and name == "literal")}
        found[f"train {kind}"] = interleaved(steps, rounds)
    both = {"fp32": trainer("capsviz", False), "bf16": trainer("capsviz", True)}
    found["capsviz bf16 / fp32"] = interleaved(both, rounds)
    for batch in (1, B):
        steps = {name: evaluator(name, batch) for name in NETWORKS}
        found[f"evaluate {batch}"] = interleaved(steps, rounds if batch == B else 10 * rounds)
    return found


def main() -> None:
    """Run everything and write the JSON; parts run this file again in a process of their own."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--part", choices=["timings", "memory"], help=argparse.SUPPRESS)
    options.add_argument("--network", choices=list(NETWORKS), help=argparse.SUPPRESS)
    options.add_argument("--tuned", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--no-epoch", action="store_true", help="leave out the whole epoch")
    given = options.parse_args()
    if given.part == "timings":
        print(json.dumps(timings(given.rounds)))
        return
    if given.part == "memory":
        print(memory(given.network))
        return
    me = ("-m", "benchmarks.speed", "--rounds", str(given.rounds), "--part")
    found = {
        "stock allocator": json.loads(python(*me, "timings")),
        "freed memory kept": json.loads(python(*me, "timings", "--tuned")),
        "memory_bytes": {n: int(python(*me, "memory", "--network", n)) for n in NETWORKS},
        "data path": data_path(given.rounds),
        "commands": whole_commands(3),
    }
    found["memory_ratio"] = {
        name: size / found["memory_bytes"]["floor"] for name, size in found["memory_bytes"].items()
    }
    if not given.no_epoch:
        tuned = "from capsviz import allocator; allocator.keep_freed_memory();"
        code = tuned + "import json; from benchmarks.speed import epoch; print(json.dumps(epoch()))"
        found["epoch"] = json.loads(python("-c", code))
    found["about"] = {
        "provenance": provenance(None, "cpu"),
        "hardware": pipeline.hardware(torch.device("cpu")),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "batch": B,
        "rounds": given.rounds,
    }
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    print(f"wrote {RESULT}")


if __name__ == "__main__":
    main()
