"""Does a far reconstruction give away attacked and foreign images?

`capsviz detect --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from typing import NamedTuple

import click
import numpy as np

from capsviz.analyses.detect import measure
from capsviz.cli import options
from capsviz.cli.analysis import analysis
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import within_one
from capsviz.statistics.words import number, sentence

EXAMPLES = """
capsviz detect --n 100 --eps 0.1 --eps 0.3 --steps 15  # about 30 s
"""

OVER_RUNS = {"auroc": within_one}
NEEDS = ("poses", "decode")  # of a network, see tracing.needs

SCORES = ("winning capsule", "another capsule", "another image", "class average", "random")
PIECE = 64  # images at a time, at most
N = 200


# What the axes of estimates are: fields with their names, or the names; None: numbered from 1.
AXES = dict.fromkeys(("misread", "flagged", "undetected"), ("sets",))


class Result(NamedTuple):
    """N test images in A sets, the unchanged ones first, by S = 5 scores; intervals are 95 %."""

    sets: list[str]  # A names
    kinds: list[str]  # A of: clean, attack, adaptive, shifted, foreign
    scores: list[str]  # S names, the winning capsule's distance first, then the controls
    values: np.ndarray  # (A, S, N) float32: L2 distances, pixels in [0, 1]; the last one random
    predicted: np.ndarray  # (A, N) class of the longest capsule
    labels: np.ndarray  # (N,) true classes of the test images
    validation: np.ndarray  # (V,) float32 distances of validation images
    threshold: float  # 95th percentile of these
    misread: Estimate  # (A,) share of images read as another class, success of an attack; Wilson
    flagged: Estimate  # (A,) share above the threshold; Wilson
    undetected: Estimate  # (A,) share misread and not flagged; Wilson
    auroc: Estimate  # (A - 1, S) against the unchanged images; Wilson
    gain: Estimate  # (A - 1, S - 1) AUROC of the winning capsule less that of each control; paired
    missing: list[str]  # sets that were left out, and why
    eps: list[float]
    steps: int
    classes: list[str]
    dataset: str
    n: int
    examples: np.ndarray | None = None  # (A, 2, C, H, W) uint8: the first image of each set, drawn


def compute(
    model, images, labels, validation, *, classes, dataset, others=None, missing=(),
    eps=(0.3,), steps=40, seed=0, progress=iter,
) -> Result:  # fmt: skip
    """Attack and turn N images (N, C, H, W), at least 2, and score them by reconstruction.

    Parameters
    ----------
    labels      (N,) true classes.
    validation  (V, C, H, W) images that the threshold is set on.
    classes     names of the classes.
    dataset     its name, for the record.
    others      name -> (N, C, H, W) images of another data set.
    missing     sets that were left out and why, for the record.
    eps         L-infinity bounds of the attacks, pixels in [0, 1].
    steps       of PGD and R-PGD.
    seed        of random starts, angles and controls.
    progress    wraps the pieces of images, for a progress bar.

    Raises
    ------
    ValueError   for fewer than 2 images, an eps outside (0, 1], a network without capsules or
                 decoder.
    ImportError  without foolbox.
    """
    import torch

    from capsviz.statistics import detection
    from capsviz.statistics.intervals import require_two, wilson_each

    images, labels = images.cpu(), labels.cpu()
    others = {name: other.cpu() for name, other in (others or {}).items()}
    n = len(images)
    require_two(n)
    makers = measure.makers(model, others, eps, steps, seed, images.shape)
    distances, averages = measure.held_out(model, validation.cpu())
    threshold = detection.threshold(distances)
    pieces = torch.arange(n).tensor_split(-(-n // PIECE))
    chance = np.random.default_rng([seed, 1]).random((len(makers), 1, n), dtype=np.float32)
    values, predicted, examples = measure.score_all(
        model, makers, averages, images, labels, pieces, seed, progress
    )
    values = np.concatenate([values, chance], 1)
    foreign = np.array([name in others for name in makers])
    wrong = (predicted != labels.numpy()) | foreign[:, None]
    far = values[:, 0] > threshold
    shares = {
        name: Estimate(images.mean(1), wilson_each(images.sum(1), n), n)
        for name, images in (("misread", wrong), ("flagged", far), ("undetected", wrong & ~far))
    }
    auroc, gain = measure.areas(values, foreign, seed)
    return Result(
        sets=list(makers),
        kinds=[kind for kind, _ in makers.values()],
        scores=list(SCORES),
        values=values,
        predicted=predicted,
        labels=labels.numpy(),
        validation=distances,
        threshold=threshold,
        **shares,
        auroc=auroc,
        gain=gain,
        examples=examples,
        missing=list(missing),
        eps=[float(one) for one in eps],
        steps=steps,
        classes=list(classes),
        dataset=dataset,
        n=n,
    )


def parts(result: Result) -> tuple[str, ...]:
    """Names of its pictures."""
    return ("", "distances") if result.examples is None else ("", "distances", "examples")


def plot(result: Result, *, width=7.16, part=""):
    """AUROC with its controls and shares; "distances"; or "examples", one of every set."""
    from capsviz.analyses.detect import draw as drawing

    draw = {"": drawing.sheet, "distances": drawing.distances, "examples": drawing.examples}
    return draw[part](result, width)


@analysis(__doc__)
@options.number(f"Test images to attack and to turn. [default: {N}, or all if fewer]")
@click.option(
    "--eps",
    type=float,
    multiple=True,
    default=(0.3,),
    show_default=True,
    help="L-infinity bound of the attacks, pixels in [0, 1]; may be given several times.",
)
@click.option("--steps", default=40, show_default=True, help="Steps of PGD and R-PGD.")
@options.seed
def command(run, n, eps, steps, seed):
    """Score clean, attacked and foreign images; write the figure and its numbers."""
    from capsviz.experiments import attacks

    attacks.check(eps, steps)
    n = min(N, len(run.inputs.dataset)) if n is None else n
    attack = {"eps": eps, "steps": steps, "seed": seed}
    result = compute(
        **measure.of_inputs(run.inputs, n), **attack, progress=run.progress("attacking")
    )
    for text in result.missing:
        click.echo(text, err=True)
    yield f"detect-{result.dataset}-{n}-images", result


def findings(result: Result) -> str:
    """What the numbers say: of every set its AUROC and undetected share."""
    head = (
        f"{result.n} {result.dataset} images, threshold {result.threshold:.2f} from "
        f"{len(result.validation)} validation images, with 95 % intervals: "
        f"{result.flagged[0]:.1%} of unchanged flagged"
    )
    lines = [head]
    for a, name in enumerate(result.sets[1:], 1):
        controls = zip(result.scores[1:], result.auroc.value[a - 1, 1:], strict=True)
        lines.append(
            f"{name}: misread {number(result.misread.value[a], '.1%')}, undetected "
            f"{result.undetected[a]:.1%}, AUROC {result.auroc[a - 1, 0]:.3f} "
            f"({', '.join(f'{what} {value:.3f}' for what, value in controls)})"
        )
    return "\n".join(lines)


def paper(inputs, settings):
    """For `capsviz figures`: at most 100 images, because attacks take long."""
    n = min(settings.few, 100)
    progress = settings.progress("attacking")
    attack = {"eps": (0.1, 0.3), "steps": 15, "seed": settings.seed}
    result = compute(**measure.of_inputs(inputs, n), **attack, progress=progress)
    yield f"detect-{result.dataset}-{n}-images", result


def caption(result: Result, part: str = "") -> str:
    """What a picture shows, with its numbers."""
    left_out = "".join(f" {text}." for text in result.missing)
    if part == "distances":
        return (
            "Distance of every image to the winning capsule's reconstruction, with the median and "
            f"the quartiles of each set, {result.n:,} {result.dataset} images. The "
            f"threshold of {result.threshold:.2f} is the 95th percentile of "
            f"{len(result.validation)} validation images.{left_out}"
        )
    if part == "examples":
        return (
            "The first image of each set, and the winning capsule's reconstruction of it. Below: "
            "the class that it is read as, and its distance. A star: flagged, for the distance is "
            f"above {result.threshold:.2f}."
        )
    head, *rows = findings(result).splitlines()
    return (
        "AUROC of the distance to the winning capsule's reconstruction against the unchanged "
        "images with its controls, and the share that is misread and not flagged. PGD and R-PGD "
        f"take {result.steps} steps. {sentence(head)} {sentence('; '.join(rows))}{left_out}"
    )
