"""Generalise from shifted digits to affine ones: CapsNet against CNNs, matched.

`capsviz affnist --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from capsviz.analyses.affnist.words import caption, findings, table_caption
from capsviz.cli import options, tasks, writing
from capsviz.statistics.estimate import Estimate

EXAMPLES = """
capsviz affnist  # 10 s, from the shipped results
capsviz affnist --run --networks capsnet --seeds 1  # hours, want a GPU
"""

NEEDS = ()  # of a network: its scores

__all__ = ["Result", "Variants", "caption", "command", "compute", "findings", "paper", "plot"]

VARIANTS = 16  # of one original, in the picture


AXES = dict.fromkeys(("lost", "lost_share"), ("networks", "factors"))
AXES |= dict.fromkeys(("affine", "within", "beyond"), ("networks",))


class Result(NamedTuple):
    """M rows: a network in a state, over its seeds. Intervals: 95 %, over digits and seeds.

    A difference is less CapsNet's, paired, over the seeds that both have. NaN where there is none;
    what rests on the transforms of the images is None where these are not known.
    """

    networks: list[str]  # of the rows
    states: list[str]  # "matched" or "full"
    seeds: list[list[int]]
    parameters: np.ndarray  # (M,)
    held_out: np.ndarray  # (M,) mean accuracy over seeds of shifted validation images
    test: np.ndarray  # (M,) mean accuracy of shifted test images
    affine: Estimate  # (M,) mean accuracy of affnist_like
    affine_range: np.ndarray  # (M, 2) lowest and highest over seeds
    affnist: np.ndarray  # (M,) mean accuracy of affNIST itself, if all seeds were scored on it
    target: float  # held-out accuracy at which training was stopped
    n: int  # images of affnist_like
    reconstruction_weight: list[float | None] | None = None  # of the rows; None without a decoder
    within: Estimate | None = None  # (M,) accuracy of images within the trained places
    beyond: Estimate | None = None  # (M,) of those beyond
    share_beyond: float = float("nan")  # of the images
    factors: list[str] | None = None  # F, with their units
    levels: np.ndarray | None = None  # (F, B) mean of each factor in each of its bins
    by_factor: Estimate | None = None  # (M, F, B) accuracy; but for the shift, within the places
    upright: np.ndarray | None = None  # (M,) accuracy of unchanged digits, by the logistic fit
    lost: Estimate | None = None  # (M, F) accuracy that each factor takes from that, Shapley's
    lost_share: Estimate | None = None  # (M, F) of all that is lost


class Variants(NamedTuple):
    """One digit of each class and its variants."""

    images: np.ndarray  # (J, 1 + V, 1, 40, 40) uint8, the padded original first
    classes: list[str]
    dataset: str


def compute(results: list[dict], transforms: dict | None = None) -> Result:
    """The table of a series from its results, as `capsviz.experiments.affnist.read` gives them.

    Parameters
    ----------
    transforms  the numbers behind the images, each (n,), by the names of `affnist_like.Transforms`.

    Raises
    ------
    ValueError  for no results, or results of different targets or numbers of images.
    """
    from capsviz.analyses.affnist import measure

    if not results:
        raise ValueError("there are no results yet: make some by capsviz affnist --run")
    measure.check(results)
    groups = {}
    for r in results:
        groups.setdefault((r["network"], r["state"]), {})[r["seed"]] = r
    rows = sorted(groups, key=lambda key: key[1] != "matched")  # else in the order of networks
    pairs = [(groups[key], groups.get((measure.REFERENCE, key[1]), {})) for key in rows]
    columns = measure.join([measure.row(*pair) for pair in pairs])
    if transforms is not None:
        columns |= measure.join([measure.by_place(*pair, transforms) for pair in pairs])
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
    """The first digit of each class of MNIST, padded, and 16 variants, drawn as those scored."""
    from capsviz.data import affnist_like

    index = [int((dataset.labels == k).nonzero()[0]) for k in range(len(dataset.classes))]
    part = dataset.take(index)
    drawn = [affnist_like.make(part, v, seed=seed)[0].images for v in range(VARIANTS)]
    images = [part.pad(affnist_like.PAD_PX).images, *drawn]
    stacked = np.stack([image.numpy() for image in images], 1)
    return Variants(stacked, list(dataset.classes), dataset.name)


def parts(result: Result | Variants) -> tuple[str, ...]:
    """Names of its pictures; what is told by factor, where the images' places are known."""
    known = isinstance(result, Result) and result.by_factor is not None
    return ("", "factors") if known else ("",)


def plot(result: Result | Variants, *, width=7.16, part=""):
    """Accuracy and gap of every row, or those by "factors"; or the digits with their variants."""
    from capsviz.analyses.affnist import draw

    if isinstance(result, Variants):
        return draw.variants(result, width)
    return (draw.factors if part == "factors" else draw.table)(result, width)


def table(result: Result | Variants):
    """Header, rows and caption of the table beside the figure; None for the picture."""
    from capsviz.analyses.affnist.draw import cells

    return None if isinstance(result, Variants) else (*cells(result), table_caption(result))


@click.command(help=__doc__.split("\n")[0])
@click.option(
    "--run", "make", is_flag=True, help="Train and score what is missing; hours on a CPU."
)
@click.option("--networks", multiple=True, metavar="NAME", help="Only this network; several times.")
@click.option("--seeds", type=int, default=3, show_default=True, help="Seeds 0, 1, ... of each.")
@tasks.option("networks times seeds")
@click.option(
    "--match-accuracy",
    "target",
    default=0.9923,
    show_default=True,
    help="Held-out accuracy to stop at.",
)
@click.option("--full/--matched-only", default=True, show_default=True, help="Train on after that.")
@click.option("--epochs", default=50, show_default=True, help="Epochs of a full training, at most.")
@click.option("--batch-size", default=128, show_default=True, help="Images in a training step.")
@click.option(
    "--ema", type=float, metavar="DECAY", help="Average the weights; see train. [default: no]"
)
@options.number("Images of affnist_like. [default: 320,000]", "--limit", name="limit")
@click.option("--train-limit", type=int, metavar="N", help="Training images, for trials.")
@click.option("--picture", is_flag=True, help="Only the picture of digits and their variants.")
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False),
    help="Where the results lie. [default: runs/affnist; without --run, the shipped if empty]",
)  # fmt: skip
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder that holds the data.")
@options.device
@writing.figure
@writing.as_json
def command(make, networks, folder, picture, data_dir, device, figure, as_json, **plan):
    """Run the series, or show what there is: figure, tables and their numbers."""
    _run(make, networks, folder, picture, data_dir, device, figure, as_json, plan)


def shipped() -> Result | None:
    """The table of the results that come with capsviz; None if there are none."""
    from capsviz.analyses.affnist import series

    results = series.experiment.read(series.SHIPPED)
    return _tabulate(results, series.SHIPPED) if results else None


def _tabulate(results: list[dict], folder: Path, root=None) -> Result:
    """`compute` with the transforms of the images, if these are stored or can be drawn."""
    from capsviz.experiments.affnist import transforms

    n = max((r["affnist_like"]["n"] for r in results), default=0)
    return compute(results, transforms.read(folder, n, root) if n else None)


def _run(make, networks, folder, picture, data_dir, device, figure, as_json, plan) -> None:
    """The command, with its options."""
    from capsviz import data
    from capsviz.analyses.affnist import series

    seeds, task = plan.pop("seeds"), plan.pop("task")
    series.check(make, networks, seeds, picture)
    path = writing.target("affnist-like-variants" if picture else "affnist", figure)
    if picture:
        result = variants(data.load("mnist", "test", data_dir))
    else:
        if make:
            series.run(networks, seeds, folder, plan, data_dir, device, task)
        if task != (1, 1):
            return  # the others' results are gathered without --run
        result = _tabulate(*series.read(networks, folder, make), data_dir)
    paths = writing.write(path, "affnist", result, figure)
    writing.report(result, findings(result), paths, as_json)


def paper(inputs, settings):
    """For `capsviz figures`: digits with their variants, and the shipped series, for MNIST."""
    if inputs.dataset.name != "mnist":
        return
    yield "affnist-like-variants", variants(inputs.dataset, seed=settings.seed)
    if result := shipped():
        yield "affnist", result
