"""Map many images by what the capsules say of them: t-SNE or PCA, with scores.

`capsviz tsne --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from typing import NamedTuple

import click
import numpy as np

from capsviz.analyses.tsne.measure import (
    ANGLES_DEG,
    METHODS,
    NAMES,
    NEIGHBOURS,
    OF,
    along,
    check,
    embed,
    features,
    scores,
    thumbnails,
    turn,
)
from capsviz.cli import options
from capsviz.cli.analysis import analysis
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.words import sentence

EXAMPLES = """
capsviz tsne --trajectories 3 --n 1000  # 15 s
"""

NEEDS = ("poses",)  # of a network, see tracing.needs

PROGRESS = "looking, then embedding"


class Result(NamedTuple):
    """Maps (0: capsules, 1: pixels) of N images, T thumbnails, K trajectories of A angles."""

    positions: np.ndarray  # (2, N, 2)
    labels: np.ndarray  # (N,) true class
    predicted: np.ndarray  # (N,)
    thumbnails: np.ndarray  # (T,) which images are shown
    thumbnail_images: np.ndarray  # (T, C, H, W) uint8
    paths: np.ndarray  # (2, K, A, 2)
    path_labels: np.ndarray  # (K,) true class
    path_predicted: np.ndarray  # (K, A)
    angles_deg: np.ndarray  # (A,) counter-clockwise
    scores: Estimate  # (2, 5) of the N images, as `score_names`; Wilson for accuracies, else by t
    score_names: list[str]
    dimensions: list[int]  # numbers in a vector
    of: str
    method: str
    n: int
    classes: list[str]
    dataset: str
    below: str = "primary capsules"  # what the children of the classes are called


def compute(
    model,
    images,
    labels,
    *,
    classes,
    dataset,
    of="poses",
    method="tsne",
    trajectories=0,
    perplexity=30.0,
    seed=0,
    progress=iter,
) -> Result:
    """Map N images (N, C, H, W) by their capsules and by their pixels.

    Parameters
    ----------
    labels        (N,) true classes.
    classes       names of the classes.
    dataset       its name, for the record.
    of            "poses", "all-poses", "couplings" or "primary".
    method        "tsne" or "pca".
    trajectories  K: the first image of each of the first K classes is turned and mapped too.
    perplexity    of t-SNE, about the number of neighbours that count.
    seed          of t-SNE and of a randomised PCA.
    progress      wraps the chunks of images, then the two maps, for progress bars.

    Raises
    ------
    ValueError   for too few images or classes, an unknown choice, or vectors all the same.
    MemoryError  if vectors and distances would not fit.
    """
    from capsviz.tracing.network import children_words
    from capsviz.transforms.augment import to_uint8

    images, labels = images.cpu(), labels.cpu().numpy()
    check(labels, of, method, trajectories, perplexity)
    firsts = np.unique(labels, return_index=True)[1][:trajectories]
    vectors, predicted = features(model, images, of, progress)
    both, n = [vectors, images.flatten(1).numpy()], len(images)
    if trajectories:
        turned = turn(images[firsts])
        more, turned_predicted = features(model, turned, of)
        predicted = np.concatenate([predicted, turned_predicted])
        both = [np.concatenate(p) for p in zip(both, (more, turned.flatten(1)), strict=True)]
    maps = np.stack([embed(part, method, perplexity, seed) for part in progress(both)])
    positions = maps[:, :n]
    chosen = thumbnails(positions[0], labels, predicted[:n])
    return Result(
        positions=positions,
        labels=labels,
        predicted=predicted[:n],
        thumbnails=chosen,
        thumbnail_images=to_uint8(images[chosen]),
        paths=np.stack([along(part, firsts, n) for part in maps]),
        path_labels=labels[firsts],
        path_predicted=along(predicted[:, None], firsts, n)[:, :, 0],
        angles_deg=ANGLES_DEG,
        scores=stack(scores(v[:n], p, labels) for v, p in zip(both, positions, strict=True)),
        score_names=list(NAMES),
        dimensions=[part.shape[1] for part in both],
        of=of,
        method=method,
        n=n,
        classes=list(classes),
        dataset=dataset,
        below=children_words(model),
    )


def parts(result: Result) -> tuple[str, ...]:
    """Names of its pictures."""
    return ("", "scores")


def plot(result: Result, *, width=7.16, part=""):
    """Both maps; or their "scores"."""
    from capsviz.analyses.tsne import draw

    return (draw.scores if part == "scores" else draw.maps)(result, width)


@analysis(__doc__)
@click.option(
    "--of", type=click.Choice(OF), default="poses", show_default=True, help="What is mapped."
)
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default="tsne",
    show_default=True,
    help="How it is mapped.",
)
@options.n
@click.option(
    "--trajectories",
    default=0,
    show_default=True,
    metavar="K",
    help="Turn the first image of K classes from -60° to 60° and draw their paths.",
)
@click.option("--perplexity", default=30.0, show_default=True, help="Perplexity of t-SNE.")
@options.seed
def command(run, of, method, n, trajectories, perplexity, seed):
    """Write the maps and their numbers; print the scores."""
    if method != "tsne" and options.typed("perplexity"):
        raise ValueError(f"--method {method} knows no perplexity: drop --perplexity")
    result = compute(
        run.model,
        *run.images(n),
        classes=run.classes,
        dataset=run.dataset,
        of=of,
        method=method,
        trajectories=trajectories,
        perplexity=perplexity,
        seed=seed,
        progress=run.progress(PROGRESS),
    )
    yield f"{method}-{result.dataset}-{of}-{result.n}-images", result


def findings(result: Result) -> str:
    """The scores of both maps, with their intervals."""
    rows = [
        f"{result.n} {result.dataset} images, {result.of} (raw pixels), k = {NEIGHBOURS}, "
        "with 95 % intervals:"
    ]
    for i, name in enumerate(result.score_names):
        rows.append(f"{name}: {result.scores[0, i]:.3f} ({result.scores[1, i]:.3f})")
    return "\n".join(rows)


def paper(inputs, settings):
    """For `capsviz figures`: the poses with trajectories, and what comes before any class."""
    data = inputs.dataset
    images, labels = inputs.images(settings.n)
    for of, trajectories in (("poses", 3), ("primary", 0)):
        result = compute(
            inputs.model,
            images,
            labels,
            classes=data.classes,
            dataset=data.name,
            of=of,
            trajectories=trajectories,
            perplexity=min(30.0, settings.n / 3),
            seed=settings.seed,
            progress=settings.progress(PROGRESS),
        )
        yield f"tsne-{data.name}-{of}-{settings.n}-images", result


def caption(result: Result, part: str = "") -> str:
    """What a picture shows, with its numbers."""
    head, *rows = findings(result).split("\n")
    if part == "scores":
        return (
            "How well the maps and the numbers behind them keep the classes, for capsules and for "
            f"pixels. {sentence(head.rstrip(':'))} {sentence('; '.join(rows))}"
        )
    name = "t-SNE" if result.method == "tsne" else "PCA"
    turned = " Lines: single images turned from -60° to 60°." if len(result.path_labels) else ""
    rings = " Rings: misread images." if (result.labels != result.predicted).any() else ""
    return (
        f"Maps of {result.n:,} images of {result.dataset} by {name}, of their capsules "
        f"({result.of}, {result.dimensions[0]:,} numbers) and of their pixels.{rings}{turned}"
    )
