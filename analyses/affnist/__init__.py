"""Compare generalisation from shifted digits to affine ones: CapsNet and matched CNNs."""

from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from capsviz.analysis import Analysis, Seed
from capsviz.cli import options, writing
from capsviz.statistics.estimate import Estimate

VARIANTS = 16  # variants of each original in the picture
PAPER_WEIGHT = 0.0005  # of the reconstruction loss, Sabour, Frosst & Hinton 2017, section 4.1


class Result(NamedTuple):
    """M rows: a network in a state, over its seeds. Intervals: 95 %, over digits and seeds.

    Differences are to CapsNet, paired, over the seeds that both have; NaN if there are none.
    """

    networks: list[str]  # of the rows
    states: list[str]  # "matched" or "full"
    seeds: list[list[int]]
    parameters: np.ndarray  # (M,)
    held_out: np.ndarray  # (M,) mean accuracy over seeds on shifted validation images
    test: np.ndarray  # (M,) mean accuracy on shifted test images
    affine: Estimate  # (M,) mean accuracy on affnist_like
    affine_range: np.ndarray  # (M, 2) lowest and highest over seeds
    affnist: np.ndarray  # (M,) mean accuracy on affNIST itself; NaN unless all seeds have one
    target: float  # held-out accuracy at which training was stopped
    n: int  # images of affnist_like
    reconstruction_weight: list[float | None]  # of the rows; None without a decoder
    inside: Estimate  # (M,) accuracy on images inside the training shift range
    outside: Estimate  # (M,) accuracy on images outside it
    share_outside: float  # share of images outside the training shift range
    factors: list[str]  # F names with units
    levels: np.ndarray  # (F, B) mean of each factor in each of its bins
    by_factor: Estimate  # (M, F, B) accuracy; except for the shift, only inside the range
    upright: np.ndarray | None = None  # (M,) accuracy on unchanged digits, by the logistic fit
    lost: Estimate | None = None  # (M, F) accuracy lost to each factor, Shapley values
    lost_share: Estimate | None = None  # (M, F) share of the whole loss

    axes = {
        **dict.fromkeys(("affine", "inside", "outside"), ("networks, states",)),
        **dict.fromkeys(("lost", "lost_share"), ("networks, states", "factors")),
        "by_factor": ("networks, states", "factors", "bin {1}"),
    }
    formats = dict.fromkeys(("affine", "inside", "outside", "lost", "lost_share"), ".1%")
    titles = {
        "affine": "accuracy on affnist_like",
        "inside": "inside the training shift range",
        "outside": "outside the training shift range",
        "lost": "accuracy lost",
        "lost_share": "share of all that is lost",
    }


class Variants(NamedTuple):
    """One digit of each class and its variants."""

    images: np.ndarray  # (J, 1 + V, 1, 40, 40) uint8, the padded original first
    classes: list[str]
    dataset: str


class Series(Analysis):
    """Accuracy of networks trained on shifted digits alone, on affine digits."""

    Result = Result
    examples = """
    capsviz affnist  # 10 s, from the shipped results
    capsviz affnist --run --networks capsnet --seeds 1  # hours; use a GPU
    """
    headline = ("affine", "inside", "outside")

    def measure(self, inputs) -> Result:
        """Return the table of the shipped results; the inputs are not used."""
        return shipped()

    def left_out(self, inputs) -> str:
        if inputs.dataset.name != "mnist":
            return "it is for MNIST only"
        from capsviz.analyses.affnist import series

        return "" if any(series.SHIPPED.glob("*.json")) else "no results come with capsviz"

    def verdict(self, result) -> str:
        return " ".join(apart(result, state) for state in dict.fromkeys(result.states)).strip()

    def table(self, result):
        from capsviz.analyses.affnist import draw

        text = f"Accuracy on {result.n:,} images of affnist_like after training on shifted digits"
        if "matched" in result.states:
            text += f"; matched weights: the first at {100 * result.target:g} % held-out accuracy"
        text += (
            ". Gap: difference from CapsNet in points, paired, over the seeds that both have. "
            "Inside, outside: images shifted by at most the 6 px of training along both axes, and "
            "the others. Lost: points that each factor takes, Shapley values of a logistic fit of "
            "correct answers."
        )
        weights = sorted({w for w in result.reconstruction_weight if w is not None})
        if weights and weights != [PAPER_WEIGHT]:
            several = " and ".join(f"{weight:g}" for weight in weights)
            text += (
                f" CapsNets weight their reconstruction by {several} (the paper: {PAPER_WEIGHT})."
            )
        return *draw.cells(result), f"{text} Intervals: 95 %, over {_sources(result)}."

    def intervals(self, result) -> str:
        return f"95 % intervals over {_sources(result)}"

    def stem(self, base, result) -> str:
        return "affnist"


class Picture(Analysis):
    """Digits and their affine variants."""

    Result = Variants
    panels = "draw:VARIANTS"

    def measure(self, inputs, *, seed: Seed = 0) -> Variants:
        """Return the first digit of each class, padded, and 16 variants of it."""
        return variants(inputs.dataset, seed=seed)

    def left_out(self, inputs) -> str:
        return "" if inputs.dataset.name == "mnist" else "it is for MNIST only"

    def verdict(self, result) -> str:
        return f"{result.images.shape[1] - 1} variants of {len(result.images)} digits"

    def stem(self, base, result) -> str:
        return "affnist-like-variants"


def tabulate(results: list[dict], transforms: dict) -> Result:
    """Return the table of the results of `capsviz.experiments.affnist.read`.

    `transforms` are the parameters of the images, each (n,), by the names of
    `affnist_like.Transforms`. Raises ValueError for no results, or results with different settings.
    """
    from capsviz.analyses.affnist import measure

    if not results:
        raise ValueError("there are no results yet: make some by capsviz affnist --run")
    measure.check(results)
    groups: dict[tuple, dict] = {}
    for r in results:
        groups.setdefault((r["network"], r["state"]), {})[r["seed"]] = r
    rows = sorted(groups, key=lambda key: key[1] != "matched")  # else in the order of networks
    pairs = [(groups[key], groups.get((measure.REFERENCE, key[1]), {})) for key in rows]
    columns = measure.join([measure.row(*pair, transforms) for pair in pairs])
    columns |= measure.images(transforms)
    return Result(
        networks=[key[0] for key in rows],
        states=[key[1] for key in rows],
        seeds=[sorted(groups[key]) for key in rows],
        target=results[0]["terms"]["target"],
        n=results[0]["affnist_like"]["n"],
        **columns,
    )


def variants(dataset, *, seed=0) -> Variants:
    """Return the first digit of each class, padded, and 16 variants, drawn as in the scores."""
    from capsviz.data import affnist_like

    part = dataset.take([int((dataset.labels == k).nonzero()[0]) for k in range(10)])
    drawn = [affnist_like.make(part, v, seed=seed)[0].images for v in range(VARIANTS)]
    images = [part.pad(affnist_like.PAD_PX).images, *drawn]
    stacked = np.stack([image.numpy() for image in images], 1)
    return Variants(stacked, list(dataset.classes), dataset.name)


def shipped() -> Result:
    """Return the table of the shipped results; ValueError if there are none."""
    from capsviz.analyses.affnist import series
    from capsviz.experiments import affnist

    return with_transforms(affnist.read(series.SHIPPED))


def with_transforms(results: list[dict], root=None) -> Result:
    """Return `tabulate` with the transforms of the images, which are shipped or drawn."""
    from capsviz.experiments.affnist import transforms

    n = max((r["affnist_like"]["n"] for r in results), default=0)
    return tabulate(results, transforms(n, root) if n else {})


def apart(result: Result, state: str) -> str:
    """Return a sentence on the gaps of a state to CapsNet, inside and outside the shift range."""
    rows = [i for i in range(len(result.states)) if result.states[i] == state]
    ranges = []
    for estimate in (result.inside, result.outside):
        gaps: Any = estimate.difference
        points = 100 * gaps.value[rows]
        if np.isnan(points).all():
            return ""
        low, high = (f"{end:+.1f}" for end in (np.nanmin(points), np.nanmax(points)))
        ranges.append(low if low == high else f"{low} to {high}")
    return (
        f"Accuracy differs from CapsNet's by {ranges[0]} points inside the training shift range, "
        f"and by {ranges[1]} points outside."
    )


def _sources(result) -> str:
    """Return the units that the intervals are over."""
    counts = {len(seeds) for seeds in result.seeds}
    if max(counts) == 1:
        return "digits, not over seeds"
    return "digits and seeds" if min(counts) > 1 else "digits and, where there are several, seeds"


@click.command(help=__doc__)
@click.option(
    "--run", "make", is_flag=True, help="Train and score what is missing; hours on a CPU."
)
@click.option(
    "--networks",
    multiple=True,
    metavar="NAME",
    help="Only this network; may be given several times.",
)
@click.option(
    "--seeds", type=int, default=3, show_default=True, help="Number of seeds per network."
)
@options.task("networks times seeds")
@click.option(
    "--match-accuracy",
    "target",
    default=0.9923,
    show_default=True,
    help="Held-out accuracy to stop at.",
)
@click.option(
    "--full/--matched-only", default=True, show_default=True, help="Continue training after that."
)
@click.option("--epochs", default=50, show_default=True, help="Largest number of epochs.")
@click.option("--batch-size", default=128, show_default=True, help="Images in a training step.")
@click.option(
    "--ema", type=float, metavar="DECAY", help="Average the weights; see train. [default: no]"
)
@options.number("Images of affnist_like. [default: 320,000]", name="limit")
@click.option(
    "--train-limit", type=int, metavar="N", help="Train on the first N images only, for trials."
)
@click.option("--picture", is_flag=True, help="Draw only digits and their variants.")
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the results. [default: runs/affnist; without --run, the shipped ones if empty]",
)  # fmt: skip
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder that holds the data.")
@options.device
@writing.figure
@writing.as_json
def command(
    make, networks, folder, picture, data_dir, device, figure, as_json, seeds, task, **plan
):
    """Run the series, or show what there is: figure, tables and their numbers."""
    from capsviz import data
    from capsviz.analyses.affnist import series

    series.check(make, networks, seeds, picture)
    analysis = Picture() if picture else Series()
    path = writing.target(analysis.stem("", None), figure)
    if picture:
        result = variants(data.load("mnist", "test", data_dir))
    else:
        if make:
            series.run(networks, seeds, folder, plan, data_dir, device, task)
        if task != (1, 1):
            return  # a later call without --run gathers the results of all tasks
        result = with_transforms(series.read(networks, folder, make), data_dir)
    paths = writing.write(path, "affnist", result, figure)
    writing.report(result, analysis.findings(result), paths, as_json)
