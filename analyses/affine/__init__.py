"""Measure accuracy on affine variants of images, inside and outside the training shifts."""

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Default, Fill, Flag, Range, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import within_one

SMALL = 0.98  # mean scale below which the verdict mentions it
PLACES = ("untransformed", "inside", "outside")  # of the training shift range
FRAME_IMAGES = 200  # at most so many are tested for an empty border
BORDER = "most images have foreground pixels at their border"
NO_RECIPE = "the network's recipe does not record how far training images were shifted"


class Result(NamedTuple):
    """K networks on N images and their affine variants; 95 % intervals, see explain.md.

    Differences are to the first network, paired over the images.
    """

    networks: list[str]
    accuracy: Estimate  # (K, 3) on untransformed images, and on variants inside and outside
    gap: Estimate  # (K, 2) accuracy on untransformed images minus that inside, and outside
    trained_px: float  # largest shift inside the training shift range
    share_inside: float  # share of the variants inside the training shift range
    examples: np.ndarray | None  # (E, C, H, W) uint8: an original image, and variants of it
    shifts_px: np.ndarray  # (E,) larger of the two shifts of each; 0 for the original
    variants: int  # per image
    n: int
    dataset: str
    mean_scale: float = float("nan")  # of the variants; below 1 if large ones do not fit
    fill: str = "black"  # of `transforms.Fill`

    axes = {"accuracy": ("networks", PLACES), "gap": ("networks", PLACES[1:])}
    formats = {"accuracy": ".1%", "gap": ".1%"}
    over_runs = {"accuracy": within_one}


class Affine(Analysis):
    """Accuracy of networks on original images and on affine variants of them."""

    Result = Result
    examples = "capsviz affine --checkpoint mnist --checkpoint mnist-resnet --n 1000  # about 15 s"
    slow = True

    def measure(
        self,
        networks,
        images,
        labels,
        *,
        dataset,
        inputs=None,
        progress=iter,
        variants: Annotated[int, Range(1), "Affine variants of each image."] = 4,
        trained_px: Annotated[
            float | None,
            Range(0),
            "Largest shift inside the training range.",
            Default("that of the first network's recipe"),
            Flag("--within", metavar="PX"),
        ] = None,
        fill: Fill = "black",
        seed: Seed = 0,
    ) -> Result:
        """Classify N images (N, C, H, W) in [0, 1] and affine variants of each with K networks."""
        from capsviz.analyses.affine import measure
        from capsviz.data.affnist_like import apply
        from capsviz.statistics.comparison import draw_resamples
        from capsviz.tracing import right
        from capsviz.transforms.augment import to_float

        trained_px = _trained_px(inputs) if trained_px is None else trained_px
        if trained_px is None:
            raise ValueError(f"{NO_RECIPE}: add --within PX")
        images, labels = measure.whole(images), labels.cpu()
        if fill == "black" and not measure.framed(images):
            raise ValueError(f"{BORDER}, which a variant would lose: choose --fill edge or mean")
        counts = draw_resamples(len(images), seed=seed)
        drawn = [measure.draw(images, v, seed=seed, fill=fill) for v in range(variants)]
        within = np.stack([measure.shift_px(one) <= trained_px for one in drawn])
        measure.check(within, trained_px)
        models = list(networks.values())
        hits = [
            right(models, to_float(apply(images, one, fill)), labels) for one in progress(drawn)
        ]
        plain = right(models, to_float(images), labels)
        examples, shifts_px = measure.examples(images, drawn, within, fill)
        return Result(
            networks=list(networks),
            **measure.statistics(plain, np.stack(hits, 1), within, counts),
            trained_px=float(trained_px),
            share_inside=float(within.mean()),
            examples=examples,
            shifts_px=shifts_px,
            variants=variants,
            n=len(images),
            dataset=dataset,
            mean_scale=measure.mean_scale(drawn),
            fill=fill,
        )

    def left_out(self, inputs) -> str:
        from capsviz.analyses.affine import measure

        if not _trained_px(inputs):
            return NO_RECIPE
        images, _ = inputs.images(min(FRAME_IMAGES, len(inputs.dataset)))
        return "" if measure.framed(images) else BORDER

    def verdict(self, result) -> str:
        text = (
            f"Of the variants, {100 * result.share_inside:.0f} % are shifted by at most "
            f"{result.trained_px:g} px (inside the training shift range)."
        )
        if result.mean_scale < SMALL:
            text += (
                f" Variants that lose foreground pixels are drawn again, so the mean scale is "
                f"{result.mean_scale:.2f}, not 1."
            )
        return text

    def table(self, result):
        header = ["network", *PLACES, "gap inside", "gap outside"]
        rows = [
            [name, *(f"{100 * one:.1f}" for one in (*result.accuracy[k], *result.gap[k]))]
            for k, name in enumerate(result.networks)
        ]
        text = (
            f"Accuracy in percent on {result.n} {result.dataset} images, and on {result.variants} "
            f"affine variants of each, shifted by up to {result.trained_px:g} px (inside the "
            f"training shift range, {100 * result.share_inside:.0f} % of the variants) or further "
            "(outside). Gap: accuracy on the original images minus that on variants, in points. "
            f"{self.intervals(result)}."
        )
        return header, rows, text


def _trained_px(inputs) -> float | None:
    """Return how far a network's training images were shifted, by its card; None: unknown."""
    from capsviz.tracing import abilities

    card = {} if inputs is None else abilities(inputs.model).card
    return card.get("recipe", {}).get("shift_px")
