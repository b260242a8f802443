"""Separate two overlapping digits by the reconstructions from the two longest capsules."""

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Flag, Range, Seed
from capsviz.statistics.comparison import student_means
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import wilson_each
from capsviz.statistics.replicates import within_one

DRAWN = ("predicted classes", "true classes", "exchanged", "absent class", "nothing drawn")
DIVIDED = (*DRAWN[:4], "all foreground to both", "digits themselves")


class Result(NamedTuple):
    """Hold P examples, of which the last F are misclassified, and measures of N images."""

    inputs: np.ndarray  # (P, C, H, W) uint8
    parts: np.ndarray  # (P, 2, C, H, W) uint8, each digit alone
    drawn: np.ndarray  # (P, 2, C, H, W) uint8, from the two longest capsules
    wrong_pair: np.ndarray  # (P, 2, C, H, W) uint8, from the first label and the absent class
    labels: np.ndarray  # (P, 2)
    predicted: np.ndarray  # (P, 2) a correct class has the position of its label
    lengths: np.ndarray  # (P, 2) of the predicted capsules
    absent: np.ndarray  # (P,) class of the wrong pair, neither true nor predicted
    first: int  # index in the split of the first example; the first P - F are consecutive
    failures: int  # F
    right: Estimate  # share of the N images with both digits correct; Wilson
    one_right: Estimate  # share with at least one digit correct; Wilson
    drawings: list[str]  # M names, the prediction first
    sse: Estimate  # (M,) mean for one digit; difference: from the prediction
    divisions: list[str]  # L names, the prediction first
    iou: Estimate  # (L,) mean for one digit; difference: from the prediction
    n: int
    classes: list[str]
    dataset: str

    axes = {"sse": ("drawings",), "iou": ("divisions",)}
    formats = {"right": ".1%", "one_right": ".1%", "sse": ".2f", "iou": ".2f"}
    over_runs = dict.fromkeys(("right", "one_right", "iou"), within_one)
    titles = {
        "right": "both digits correct",
        "one_right": "at least one digit correct",
        "sse": "SSE of a digit",
        "iou": "IoU with a digit",
    }


class Segment(Analysis):
    """Reconstructions of two overlapping digits, one from each of the two longest capsules."""

    Result = Result
    needs = ("poses", "decode")
    dataset = "multimnist"
    several_objects = True
    examples = "capsviz segment --n 1000  # 10 s"

    def measure(
        self,
        network,
        inputs,
        n,
        *,
        progress=iter,
        index: Annotated[int, Range(0), "First image to show."] = 0,
        count: Annotated[
            int, Range(1, 24), "How many to show, from that one on.", Flag("--images")
        ] = 6,
        failures: Annotated[
            int, Range(0, 24), "Misclassified images to show beside them, at most."
        ] = 4,
        seed: Seed = 0,
    ) -> Result:
        """Classify, decode and measure n images of two objects; the seed draws absent classes."""
        import torch

        from capsviz.analyses.segment import measure as measures
        from capsviz.tracing import CHUNK_IMAGES, require_decoder
        from capsviz.transforms.augment import to_uint8

        part = inputs.dataset
        measures.require_pairs(part)
        require_decoder(network)
        if index + count > len(part):
            raise ValueError(
                f"{part.name} {part.split} has {len(part)} images: expected an index from 0 to "
                f"{len(part) - count} for {count} of them, got {index}"
            )
        measured = inputs.dataset.sample(n)
        draw, found = measures.draws(measured, seed), []
        for rows in progress(torch.arange(len(measured)).split(CHUNK_IMAGES)):
            drawn = measures.look(network, measured.take(rows), draw[rows])
            right = drawn.predicted == drawn.labels
            wrong = drawn.lengths.masked_fill(right, -1).amax(1)  # -1 if both are correct
            found.append((right.sum(1), measures.errors(drawn), measures.overlaps(drawn), wrong))
        correct, sse, iou, longest = map(torch.cat, zip(*found, strict=True))
        worst = longest.argsort(descending=True, stable=True)[:failures]
        worst = worst[longest[worst] >= 0]
        examples = part.take(slice(index, index + count))
        looks = [measures.look(network, examples, measures.draws(examples, seed))]
        if len(worst):
            looks.append(measures.look(network, measured.take(worst), draw[worst]))
        pairs = measures.Drawn(*map(torch.cat, zip(*looks, strict=True)))
        n = len(measured)
        counts = np.array([int((correct >= count).sum()) for count in (2, 1)])
        shares = Estimate(counts / n, wilson_each(counts, n), n)
        wrong_pair = torch.stack([pairs.from_labels[:, 0], pairs.from_absent], 1)
        return Result(
            inputs=to_uint8(pairs.images),
            parts=to_uint8(pairs.parts),
            drawn=to_uint8(pairs.drawn),
            wrong_pair=to_uint8(wrong_pair),
            labels=pairs.labels.numpy(),
            predicted=pairs.predicted.numpy(),
            lengths=pairs.lengths.numpy(),
            absent=pairs.absent.numpy(),
            first=index,
            failures=len(worst),
            right=shares[0],
            one_right=shares[1],
            sse=student_means(sse.numpy()),
            iou=student_means(iou.numpy()),
            drawings=list(DRAWN),
            divisions=list(DIVIDED),
            n=n,
            classes=list(measured.classes),
            dataset=measured.name,
        )

    def left_out(self, inputs) -> str:
        alone = inputs.dataset.parts is None
        return f"{inputs.dataset.name} shows one object in each image" if alone else ""

    def verdict(self, result) -> str:
        pairs = zip(result.drawings[1:], result.sse.difference[1:], strict=True)
        worse = ", ".join(name for name, one in pairs if one.low > 0) or "none"
        return f"Controls with a larger SSE than the predicted classes' reconstructions: {worse}."

    def stem(self, base, result) -> str:
        return f"segment-{result.dataset}-{result.first}-{result.n}-images"
