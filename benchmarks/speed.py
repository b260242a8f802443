"""Compare speed and memory of capsviz with the floor and a literal transcription of the paper.

`make bench` measures everything and writes results/speed.json; `--only PART` repeats one part. The
floor is CapsNet's two convolutions with a squash: forward, backward and Adam. It is measured with
the convolutions of capsviz and ("plain") with `nn.Conv2d`. Contenders are timed in turn in one
process (benchmarks/steps.py, benchmarks/clock.py). The README's table is made from the file.
"""

import argparse
import csv
import json
import shlex
import statistics
import tempfile
from functools import partial
from pathlib import Path

from benchmarks import RESULTS, read, write
from benchmarks.clock import about, interleaved, python

B = 128
COMMANDS = {
    "import torch": "-c 'import torch'",
    "capsviz --help": "-m capsviz --help",
    "capsviz rotate --digit 2": "-m capsviz rotate --digit 2 --force --output runs/bench",
    "capsviz routing --digit 2": "-m capsviz routing --digit 2 --force --output runs/bench",
}


def steps(rounds: int) -> dict:
    """Time training and evaluation, with the system's allocator and with freed memory kept."""
    run = ("-m", "benchmarks.steps", "--rounds", str(rounds))
    return {"stock": json.loads(python(*run)), "kept": json.loads(python(*run, "--kept"))}


def memory(rounds: int) -> dict:
    """Return transient bytes of a training step of 128 images, 28 and 40 pixels wide."""

    def megabytes(*flags: str) -> float:
        """Return the median of three processes, because the allocator's overhead varies."""
        run = ("-m", "benchmarks.steps", "--rounds", "0", *flags)
        return statistics.median(json.loads(python(*run))["transient_bytes"] for _ in range(3))

    names = ("floor", "plain floor", "capsviz", "literal")
    result = {
        str(size): {name: megabytes("--network", name, "--size", str(size)) for name in names}
        for size in (28, 40)
    }
    return result | {"28 kept": megabytes("--network", "capsviz", "--kept")}


def data_path(rounds: int) -> dict:
    """Return images per second with shifts of 2 px, in memory and by a DataLoader of pictures."""
    import torch
    from PIL import Image
    from torchvision import transforms

    from capsviz.transforms.augment import shift, to_float

    images = torch.randint(0, 256, (20 * B, 1, 28, 28), dtype=torch.uint8)
    pictures = [Image.fromarray(image[0].numpy()) for image in images]
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

    def theirs():
        for _ in loader:
            pass

    times = interleaved({"loader": theirs, "capsviz": ours}, rounds)
    return {
        "images_per_second": {k: 1e3 * len(images) / v["median_ms"] for k, v in times.items()},
        "ratio": 1 / times["capsviz"]["ratio"],
    }


def commands(rounds: int) -> dict:
    """Time whole commands, each from a cold start."""
    runs = {name: partial(python, *shlex.split(words)) for name, words in COMMANDS.items()}
    return interleaved(runs, min(rounds, 5), warm=1)


def epoch(rounds: int) -> dict:
    """Return seconds of one epoch of the shipped recipe on MNIST, with validation."""
    with tempfile.TemporaryDirectory() as folder:
        python("-m", "capsviz", "train", "mnist", "--epochs", "1", "--output", folder)
        card = json.loads((Path(folder) / "mnist.json").read_text())
        (line,) = csv.DictReader((Path(folder) / "epochs.csv").read_text().splitlines())
    seconds, images = float(line["seconds"]), card["training"]["images"]
    return {"seconds": seconds, "images": images, "images_per_second": images / seconds}


PARTS = {f.__name__: f for f in (steps, memory, data_path, commands, epoch)}


def main() -> None:
    """Measure the chosen parts, and write the result."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--only", action="append", choices=list(PARTS), help="again and again")
    arguments = options.parse_args()
    result = read("speed") if arguments.only else {}
    for name in arguments.only or PARTS:
        print(f"{name} ...", flush=True)
        result[name] = PARTS[name](arguments.rounds)
        commits = result.get("about", {}).get("commits", {})
        here = about()
        result["about"] = here | {"commits": commits | {name: here["provenance"]["commit"]}}
        write("speed", result)
    print(f"wrote {RESULTS}/speed.json; `make readme` makes the table")


if __name__ == "__main__":
    main()
