"""Detect attacked, rotated and foreign images by their distance to the reconstruction."""

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Default, Fill, Flag, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import within_one

SCORES = ("winning capsule", "another capsule", "another image", "class average", "random")
SHARES = ("misclassified", "flagged", "undetected")


class Result(NamedTuple):
    """N images in each of A sets, unchanged images first, with S = 5 scores; 95 % intervals."""

    sets: list[str]  # A names
    kinds: list[str]  # A, each clean, attack, adaptive, shifted or foreign
    scores: list[str]  # S names: the distance of the winning capsule, then the controls
    values: np.ndarray  # (A, S, N) float32: L2 distances, pixels in [0, 1]; the last one random
    predicted: np.ndarray  # (A, N) class of the longest capsule
    labels: np.ndarray  # (N,) true classes of the test images
    validation: np.ndarray  # (V,) float32 distances of validation images
    threshold: float  # 95th percentile of `validation`
    misclassified: Estimate  # (A,) share of misclassified images; Wilson
    flagged: Estimate  # (A,) share above the threshold; Wilson
    undetected: Estimate  # (A,) share misclassified and not flagged; Wilson
    auroc: Estimate  # (A - 1, S) against the unchanged images; Wilson
    gain: Estimate  # (A - 1, S - 1) AUROC of the winning capsule minus each control's; paired
    missing: list[str]  # sets that are left out, and why
    eps: list[float]
    steps: int
    classes: list[str]
    dataset: str
    n: int
    examples: np.ndarray | None = None  # (A, 2, C, H, W) uint8: first image, reconstruction
    fill: str = "black"  # of `transforms.Fill`

    axes = {
        **dict.fromkeys(SHARES, ("sets",)),
        "auroc": ("sets[1:]", "scores"),
        "gain": ("sets[1:]", "scores[1:]"),
    }
    formats = {**dict.fromkeys(SHARES, ".1%"), "auroc": ".3f", "gain": ".3f"}
    titles = {
        "undetected": "misclassified and not flagged",
        "gain": "AUROC minus control's",
    }
    over_runs = dict.fromkeys(("auroc", "misclassified", "flagged", "undetected"), within_one)


class Detect(Analysis):
    """How well the distance to the reconstruction separates suspect from unchanged images."""

    Result = Result
    needs = ("poses", "decode")
    examples = "capsviz detect --n 100 --eps 0.1 --eps 0.3  # about 3 min"
    usual_n = 200
    figure_set = {"eps": (0.1, 0.3)}
    slow = True
    headline = ("misclassified", "undetected")

    def measure(
        self,
        network,
        images,
        labels,
        *,
        classes,
        dataset,
        inputs,
        progress=iter,
        eps: Annotated[
            tuple[float, ...],
            "L-infinity bound of the attacks, pixels in [0, 1]; may be given several times.",
            Default("0.3"),
        ] = (0.3,),
        steps: Annotated[int, "Steps of APGD and of the adaptive attack."] = 40,
        foreign: Annotated[
            str | None,
            "Data set, or folder of pictures, none of which shows a class.",
            Flag("--foreign", metavar="NAME|FOLDER"),
            Default("fashion_mnist, or mnist for its images; left out if it is not here"),
        ] = None,
        fill: Fill = "black",
        seed: Seed = 0,
    ) -> Result:
        """Attack and rotate N images (N, C, H, W), at least 2, and score their reconstructions.

        The threshold is from validation images of the same data set.
        """
        from capsviz.analyses.detect import measure as by
        from capsviz.statistics import detection
        from capsviz.statistics.intervals import require_two, wilson_each

        images, labels = images.cpu(), labels.cpu()
        n = len(images)
        require_two(n)
        validation, others, missing = by.beside(inputs, n, foreign)
        validation, others = validation.cpu(), {k: other.cpu() for k, other in others.items()}
        sets = by.sets(network, images, labels, others, eps, steps, fill, seed)
        distances, averages = by.of_validation(network, validation)
        threshold = detection.threshold(distances)
        scored = [by.score(network, make(), averages, seed) for _, make in progress(sets.values())]
        scores, predicted, examples = map(np.stack, zip(*scored, strict=True))
        chance = np.random.default_rng([seed, 1]).random((len(sets), 1, n), dtype=np.float32)
        values = np.concatenate([scores, chance], 1, dtype=np.float32)
        outside = np.array([name in others for name in sets])
        wrong = (predicted != labels.numpy()) | outside[:, None]
        far = values[:, 0] > threshold
        shares = {
            name: Estimate(some.mean(1), wilson_each(some.sum(1), n), n)
            for name, some in zip(SHARES, (wrong, far, wrong & ~far), strict=True)
        }
        auroc, gain = by.areas(values, outside, seed)
        return Result(
            sets=list(sets),
            kinds=[kind for kind, _ in sets.values()],
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
            missing=missing,
            eps=[float(one) for one in eps],
            steps=steps,
            fill=fill,
            classes=list(classes),
            dataset=dataset,
            n=n,
        )

    def check(self, *, eps, steps, **_) -> None:
        from capsviz.experiments import attacks

        attacks.check(eps, steps)

    def in_figure_set(self, n, inputs, digit):
        """Return at most 50 images, since each is attacked many times."""
        return min(max(n, 2), 50, len(inputs.dataset))

    def verdict(self, result) -> str:
        gains = zip(result.sets[1:], result.gain.low.min(1), strict=True)
        better = ", ".join(name for name, low in gains if low > 0) or "no set"
        text = f"The reconstruction distance detects {better} clearly better than every control."
        return " ".join([text, *(f"{missing}." for missing in result.missing)])
