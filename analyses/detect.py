"""Does a far reconstruction give away attacked and foreign images?

Method (Frosst, Sabour & Hinton 2018, arXiv:1811.06969): an image is flagged if its L2 distance to
the winning capsule's reconstruction is above the 95th percentile of validation images. Suspects:
the same test images attacked within an L-infinity ball by FGSM and PGD (foolbox, white box, lengths
as logits) and by R-PGD, which knows the detector (after Qin et al. 2020, arXiv:1907.02957, made
stronger, see `capsviz.attacks`); the same images rotated; and images of another data set, of which
every reading counts as misread; an attacked image counts if the clean one was misread too. AUROC of
distances against those of the unchanged test images; 95 % intervals by percentile bootstrap over
images, one draw for both sides where they are paired (where nothing overlaps no resample differs,
and it is Wilson's of n out of n), Wilson for shares. Those of the flagged and undetected shares
take the threshold as known, although it is a percentile of at most 1,000 validation images: they
are too narrow by what another validation set would change. Controls, on the same draws: the
reconstruction of a random other capsule, that of the next image's winning capsule, the average
validation image that is read as the same class, and random scores.

A reader should see how far the winning capsule's distance separates better than the controls do:
where another image's reconstruction does as well, the pixels alone give the image away and no
capsule is needed; where the class's average does, one picture per class serves and no pose is
needed. The share that is undetected, misread and not flagged, is what counts.

Do not conclude that detection is robustness: the network is misread all the same, and against FGSM
and PGD the attacker ignores the detector. R-PGD bounds it from one side only: a stronger attack can
only raise the undetected share. An image that R-PGD leaves undetected may also have become one of
the other class to the eye, and a 6 turned by 180° is a 9.
"""

from __future__ import annotations

from typing import NamedTuple

import click
import numpy as np

from analyses import _detect_sets as parts
from analyses._words import number, with_interval
from capsviz import options

SCORES = ("winning capsule", "another capsule", "another image", "class average", "random")
PIECE = 64  # images at a time, at most
N = 200


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
    misread: np.ndarray  # (A,) share of images read as another class, success of an attack
    misread_ci95: np.ndarray  # (A, 2) Wilson
    flagged: np.ndarray  # (A,) share above the threshold
    flagged_ci95: np.ndarray  # (A, 2) Wilson
    undetected: np.ndarray  # (A,) share misread and not flagged
    undetected_ci95: np.ndarray  # (A, 2) Wilson
    auroc: np.ndarray  # (A - 1, S) against the unchanged images
    auroc_ci95: np.ndarray  # (A - 1, S, 2) bootstrap
    gain: np.ndarray  # (A - 1, S - 1) AUROC of the winning capsule less that of each control
    gain_ci95: np.ndarray  # (A - 1, S - 1, 2) bootstrap, paired
    examples: np.ndarray  # (A, 2, C, H, W) uint8: the first image of each set, its reconstruction
    missing: list[str]  # sets that were left out, and why
    eps: list[float]
    steps: int
    classes: list[str]
    dataset: str
    n: int


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

    from capsviz import detection
    from capsviz.intervals import require_two, wilson_each

    images, labels = images.cpu(), labels.cpu()
    others = {name: other.cpu() for name, other in (others or {}).items()}
    n = len(images)
    require_two(n)
    makers = parts.makers(model, others, eps, steps, seed, images.shape)
    limit_on, averages = parts.held_out(model, validation.cpu())
    limit = detection.threshold(limit_on)
    pieces = torch.arange(n).tensor_split(-(-n // PIECE))
    chance = np.random.default_rng([seed, 1]).random((len(makers), 1, n), dtype=np.float32)
    values, predicted, examples = parts.score_all(
        model, makers, averages, images, labels, pieces, seed, progress
    )
    values = np.concatenate([values, chance], 1)
    foreign = np.array([name in others for name in makers])
    wrong = (predicted != labels.numpy()) | foreign[:, None]
    far = values[:, 0] > limit
    shares = {}
    for name, these in (("misread", wrong), ("flagged", far), ("undetected", wrong & ~far)):
        shares |= {name: these.mean(1), f"{name}_ci95": wilson_each(these.sum(1), n)}
    areas = [
        (
            detection.auroc(values[0], values[a]),
            detection.auroc_resampled(values[0], values[a], paired=not foreign[a], seed=seed),
        )
        for a in range(1, len(makers))
    ]
    gains = [drawn[:, :1] - drawn[:, 1:] for _, drawn in areas]
    auroc = np.stack([area for area, _ in areas])
    return Result(
        sets=list(makers),
        kinds=[kind for kind, _ in makers.values()],
        scores=list(SCORES),
        values=values,
        predicted=predicted,
        labels=labels.numpy(),
        validation=limit_on,
        threshold=limit,
        **shares,
        auroc=auroc,
        auroc_ci95=np.stack([_apart(_ends(drawn), n) for _, drawn in areas]),
        gain=auroc[:, :1] - auroc[:, 1:],
        gain_ci95=np.stack([_ends(gain) for gain in gains]),
        examples=examples,
        missing=list(missing),
        eps=[float(one) for one in eps],
        steps=steps,
        classes=list(classes),
        dataset=dataset,
        n=n,
    )


def plot(result: Result, *, width=7.16):
    """Distances, AUROC with its controls, shares, and one example of every set."""
    from analyses import _detect_drawing as drawing

    return drawing.sheet(result, width)


@click.command(help=__doc__.split("\n")[0])
@options.subject
@click.option("--n", default=N, show_default=True, help="Test images to attack and to turn.")
@click.option(
    "--eps",
    type=float,
    multiple=True,
    default=(0.3,),
    show_default=True,
    help="L-infinity bound of the attacks, pixels in [0, 1]; may be given several times.",
)
@click.option("--steps", default=40, show_default=True, help="Of PGD and of R-PGD.")
@options.seed
@options.figure
@options.as_json
def command(n, eps, steps, seed, as_json, figure, subject):
    """Score clean, attacked and foreign images; write the figure and its numbers."""
    from capsviz import attacks

    attacks.check(eps, steps)
    opened = options.open_subject(subject)
    attack = {"eps": eps, "steps": steps, "seed": seed}
    progress = options.progress("attacking")
    result = compute(**parts.of_subject(opened, n), **attack, progress=progress)
    for text in result.missing:
        click.echo(text, err=True)
    paths = options.save(f"detect-{result.dataset}-{n}-images", "detect", result, opened, figure)
    options.report(result, findings(result), paths, as_json)


def findings(result: Result) -> str:
    """What the numbers say: of every set its AUROC and undetected share."""
    head = (
        f"{result.n} {result.dataset} images, threshold {result.threshold:.2f} from "
        f"{len(result.validation)} validation images, with 95 % intervals: "
        f"{with_interval(result.flagged[0], result.flagged_ci95[0], '.1%')} of unchanged flagged"
    )
    lines = [head]
    for a, name in enumerate(result.sets[1:], 1):
        area = with_interval(result.auroc[a - 1, 0], result.auroc_ci95[a - 1, 0], ".3f")
        controls = zip(result.scores[1:], result.auroc[a - 1, 1:], strict=True)
        lines.append(
            f"{name}: misread {number(result.misread[a], '.1%')}, undetected "
            f"{with_interval(result.undetected[a], result.undetected_ci95[a], '.1%')}, "
            f"AUROC {area} ({', '.join(f'{what} {value:.3f}' for what, value in controls)})"
        )
    return "\n".join(lines)


def paper(subject, settings):
    """For `capsviz figures`: at most 100 images, because attacks take long."""
    n = min(settings.n, 100)
    progress = settings.progress("attacking")
    attack = {"eps": (0.1, 0.3), "steps": 15, "seed": settings.seed}
    result = compute(**parts.of_subject(subject, n), **attack, progress=progress)
    yield f"detect-{result.dataset}-{n}-images", result


def caption(result: Result) -> str:
    """What the figure shows, with its numbers."""
    left_out = "".join(f" {text}." for text in result.missing)
    return (
        "Distance of images to the winning capsule's reconstruction, AUROC against the unchanged "
        "images with its controls, and the share that is misread and not flagged; PGD and R-PGD "
        f"of {result.steps} steps. {'; '.join(findings(result).splitlines())}.{left_out}"
    )


def _ends(drawn: np.ndarray) -> np.ndarray:
    """95 % interval (..., 2) of values drawn along the first axis."""
    return np.moveaxis(np.percentile(drawn, (2.5, 97.5), axis=0), 0, -1)


def _apart(ends: np.ndarray, n: int) -> np.ndarray:
    """Intervals of AUROC, of whose resamples none differs because nothing overlaps: Wilson's."""
    from capsviz.intervals import wilson

    for k, area in enumerate(ends[:, 0]):
        if np.ptp(ends[k]) == 0 and area in (0, 1):
            ends[k] = wilson(int(area) * n, n)
    return ends
