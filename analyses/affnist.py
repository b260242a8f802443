"""Generalise from shifted digits to affine ones: CapsNet against fair CNNs.

Method: the protocol of Sabour, Frosst & Hinton 2017 (arXiv:1710.09829, section 5.1), as
`capsviz.generalisation` runs it. Every network is trained on MNIST digits placed at random on
40x40, stopped at the same held-out accuracy ("matched") and, in a full series, trained to its end
("full"). It is scored on `affnist_like`: test digits rotated, sheared, scaled and moved, by
affNIST's description; and on affNIST itself where its files are. The gap to CapsNet is paired: the
same images, the same seeds; its 95 % interval is over the original digits, at these seeds (normal
approximation), and does not cover what other seeds would do: the range over seeds shows that.

A reader should see which networks lose least on maps that they were not trained on, at equal
accuracy on what they were trained on: whether it is equal the shifted test images tell, for the
held-out accuracy of matched weights is the first of many checks above a line. Do not conclude
anything from a gap between networks of unlike test accuracy, nor from one seed about a kind of
network; and affnist_like is not affNIST: published numbers on affNIST are not comparable with
these.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from analyses._words import with_interval
from capsviz import options

REFERENCE = "capsnet"
VARIANTS = 16  # of one original, in the picture
TITLES = {
    "capsnet": "CapsNet, 3 iterations",
    "capsnet-1": "CapsNet, 1 iteration",
    "cnn": "CNN of the paper, 5×5",
    "cnn-9": "CNN, 9×9, unpadded",
    "average": "ConvNet, average pooling",
    "resnet": "ResNet-20",
}


class Result(NamedTuple):
    """M rows: a network in a state, over its seeds. Intervals are 95 %; NaN where there is none."""

    networks: list[str]  # of the rows
    states: list[str]  # "matched" or "full"
    seeds: list[list[int]]
    parameters: np.ndarray  # (M,)
    held_out: np.ndarray  # (M,) mean accuracy over seeds of shifted validation images
    test: np.ndarray  # (M,) mean accuracy of shifted test images
    affine: np.ndarray  # (M,) mean accuracy of affnist_like
    affine_range: np.ndarray  # (M, 2) lowest and highest over seeds
    affine_ci95: np.ndarray  # (M, 2) of the mean, over original digits
    gap: np.ndarray  # (M,) affine accuracy less CapsNet's, over the seeds that both have
    gap_ci95: np.ndarray  # (M, 2) paired, over original digits
    affnist: np.ndarray  # (M,) mean accuracy of affNIST itself, if all seeds were scored on it
    target: float  # held-out accuracy at which training was stopped
    n: int  # images of affnist_like


class Variants(NamedTuple):
    """One digit of each class and its variants."""

    images: np.ndarray  # (J, 1 + V, 1, 40, 40) uint8, the padded original first
    classes: list[str]
    dataset: str


def compute(results: list[dict]) -> Result:
    """The table of a series from its results, as `generalisation.read` gives them.

    Raises
    ------
    ValueError  for no results, or results of different targets or numbers of images.
    """
    if not results:
        raise ValueError("there are no results yet: make some by capsviz affnist --run")
    _check(results)
    groups = {}
    for r in results:
        groups.setdefault((r["network"], r["state"]), {})[r["seed"]] = r
    rows = sorted(groups, key=lambda key: key[1] != "matched")  # else in the order of networks
    parts = [_row(groups[key], groups.get((REFERENCE, key[1]), {})) for key in rows]
    columns = {name: np.array([part[name] for part in parts]) for name in parts[0]}
    return Result(
        networks=[key[0] for key in rows],
        states=[key[1] for key in rows],
        seeds=[sorted(groups[key]) for key in rows],
        target=results[0]["terms"]["target"],
        n=results[0]["affnist_like"]["n"],
        **columns,
    )


def _check(results: list[dict]) -> None:
    """ValueError for results that were not made on the same terms."""
    n = {"images of affnist_like": {r["affnist_like"]["n"] for r in results}}
    shared = ("target", "checks", "batch_size", "ema", "train_limit", "precision")
    found = n | {name: {r["terms"].get(name) for r in results} for name in shared}
    full = {r["terms"]["epochs"] for r in results if r["state"] == "full"}
    for name, values in found.items():
        if len(values) > 1:
            raise ValueError(f"the results differ in {name}: {', '.join(sorted(map(str, values)))}")
    if len(full) > 1:
        raise ValueError(f"the full results differ in epochs: {', '.join(map(str, sorted(full)))}")


def _row(runs: dict[int, dict], reference: dict[int, dict]) -> dict:
    accuracy = [run["affnist_like"]["accuracy"] for run in runs.values()]
    real = [run["affnist"] for run in runs.values()]
    comparable = None not in real and len({found["n"] for found in real}) == 1
    mean, interval = _over_originals([_hits(run) for run in runs.values()])
    common = sorted(set(runs) & set(reference))
    gap, gap_ci95 = np.nan, [np.nan, np.nan]
    if common and runs is not reference:
        pairs = [_hits(runs[s]) - _hits(reference[s]) for s in common]
        gap, gap_ci95 = _over_originals(pairs)
    return {
        "parameters": next(iter(runs.values()))["parameters"],
        "held_out": np.mean([run["held_out"]["accuracy"] for run in runs.values()]),
        "test": np.mean([run["test"]["accuracy"] for run in runs.values()]),
        "affine": mean,
        "affine_range": [min(accuracy), max(accuracy)],
        "affine_ci95": interval,
        "gap": gap,
        "gap_ci95": gap_ci95,
        "affnist": np.mean([found["accuracy"] for found in real]) if comparable else np.nan,
    }


def _hits(run: dict) -> np.ndarray:
    from capsviz.affine_scores import unpack

    found = run["affnist_like"]
    return unpack(found["right"], found["n"]).astype(float)


def _over_originals(values: list[np.ndarray]) -> tuple[float, list[float]]:
    """Mean and its interval of values (n,) by seed; variants of one digit are not independent."""
    from capsviz.affine_scores import ORIGINALS
    from capsviz.intervals import mean_interval

    mean = np.mean(values, 0)
    original = np.arange(len(mean)) % ORIGINALS
    # a digit's deviations from the mean add up: the variance of a mean of clusters
    sums = np.bincount(original, mean - mean.mean())
    _, (low, high) = mean_interval(sums)
    half = (high - low) / 2 * len(sums) / len(mean)
    return float(mean.mean()), [float(mean.mean() - half), float(mean.mean() + half)]


def variants(dataset, *, seed=0) -> Variants:
    """The first digit of each class of MNIST, padded, and 16 variants, drawn as those scored."""
    from capsviz.data import affnist_like

    index = [int((dataset.labels == k).nonzero()[0]) for k in range(len(dataset.classes))]
    part = dataset.take(index)
    made = [affnist_like.make(part, v, seed=seed)[0].images for v in range(VARIANTS)]
    images = [part.pad(affnist_like.PAD_PX).images, *made]
    stacked = np.stack([image.numpy() for image in images], 1)
    return Variants(stacked, list(dataset.classes), dataset.name)


def plot(result: Result | Variants, *, width=7.16):
    """Accuracy and gap of every row, or the digits with their variants."""
    from analyses import _affnist_drawing as drawing

    return (drawing.variants if isinstance(result, Variants) else drawing.table)(result, width)


def table(result: Result | Variants):
    """Header, rows and caption of the table beside the figure; None for the picture."""
    from analyses._affnist_table import HEADER, cells

    return None if isinstance(result, Variants) else (HEADER, cells(result), caption(result))


@click.command(help=__doc__.split("\n")[0])
@click.option(
    "--run", "make", is_flag=True, help="Train and score what is missing; hours on a CPU."
)
@click.option("--networks", multiple=True, metavar="NAME", help="Of these alone; several times.")
@click.option("--seeds", type=int, default=3, show_default=True, help="Seeds 0, 1, ... of each.")
@click.option(
    "--match-accuracy", "target", default=0.9923, show_default=True, help="Held-out, to stop at."
)
@click.option("--full/--matched-only", default=True, show_default=True, help="Train on after that.")
@click.option("--epochs", default=50, show_default=True, help="Of a full training, at most.")
@click.option("--batch-size", default=128, show_default=True, help="Images in a training step.")
@click.option(
    "--ema", type=float, metavar="DECAY", help="Average the weights; see train. [default: no]"
)
@click.option("--limit", type=int, metavar="N", help="Images of affnist_like. [default: 320,000]")
@click.option("--train-limit", type=int, metavar="N", help="Training images, for trials.")
@click.option("--picture", is_flag=True, help="Only the picture of digits and their variants.")
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False),
    help="Of the results. [default: runs/affnist; without --run, the shipped ones if it is empty]",
)  # fmt: skip
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder that holds the data.")
@options.device
@options.figure
@options.as_json
def command(make, networks, seeds, folder, picture, data_dir, device, figure, as_json, **plan):
    """Run the series, or show what there is: figure, tables and their numbers."""
    from analyses import _affnist_command as series

    series.run(make, networks, seeds, folder, picture, data_dir, device, figure, as_json, plan)


def findings(result: Result | Variants) -> str:
    """What the numbers say, a line for each state."""
    if isinstance(result, Variants):
        return f"{result.images.shape[1] - 1} variants of {len(result.images)} digits"
    lines = []
    for state in dict.fromkeys(result.states):
        parts = []
        for i, (name, its) in enumerate(zip(result.networks, result.states, strict=True)):
            if its != state:
                continue
            text = with_interval(result.affine[i], result.affine_ci95[i], ".1%")
            parts.append(
                f"{name} {text} ({len(result.seeds[i])} seeds)".replace("(1 seeds", "(1 seed")
            )
        head = f"accuracy of {result.n:,} affnist_like images, {state}"
        if state == "matched":
            head += f" at {100 * result.target:g} % held-out accuracy"
        lines.append(f"{head}: {', '.join(parts)}")
    return "\n".join(lines)


def paper(subject, settings):
    """For `capsviz figures`: digits with their variants, and the shipped series, for MNIST."""
    from analyses import _affnist_command as series

    if subject.dataset.name != "mnist":
        return
    yield "affnist-like-variants", variants(subject.dataset, seed=settings.seed)
    if shipped := series.shipped():
        yield "affnist", compute(shipped)


def caption(result: Result | Variants) -> str:
    """What the figure shows, with its numbers."""
    if isinstance(result, Variants):
        return (
            "Left: one MNIST digit of each class, padded to 40×40. Right of it: variants of "
            "affnist_like, drawn by affNIST's description."
        )
    return (
        "Accuracy on affine digits after training on shifted ones alone, bars: 95 % intervals over "
        f"digits; open: on shifted test digits. In numbers, {findings(result)}."
    )
