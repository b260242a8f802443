"""The effect of each pose dimension on the decoded images of a class."""

from __future__ import annotations

from capsviz.analyses.perturb.measure import (
    N,
    Statistics,
    captions,
    ground,
    measure_class,
    strongest,
)
from capsviz.analysis import Analysis


class Effects(Analysis):
    """The effect of each dimension of one class's pose, over N images of the class."""

    Result = Statistics
    needs = ("poses", "decode")
    headline = ()  # the words hold what matters

    def measure(self, network, *, inputs, digit, n, progress=iter) -> Statistics:
        """Measure n images of the class `digit`, always the same ones.

        Raises
        ------
        ValueError  for more images than the class has, or fewer than 2.
        """
        return measure_class(inputs, digit, n, progress=progress)

    def at_hand(self, inputs, digit):
        return min(N, int((inputs.dataset.labels == digit).sum()))

    def stem(self, base, result):
        return f"perturb-{result.dataset}-{result.capsule}-{result.n}-images"

    def draw(self, result, *, width=7.16, part=""):
        from capsviz.analyses.perturb import draw

        return draw.table(result, width)

    def verdict(self, result) -> str:
        texts = captions(result)
        first = strongest(result, 1)[0]
        name = result.classes[result.capsule]
        return "\n".join([
            f"Dimension {first} of the pose of class {name} changes the decoded image most. "
            f"Effects of +{result.step:g} of each dimension{ground(result.dark)}:",
            *(f"  dim {d}: {text}" for d, text in enumerate(texts)),
        ])  # fmt: skip

    def caption(self, result, part="") -> str:
        return (
            f"Effect of +{result.step:g} of each pose dimension of class "
            f"{result.classes[result.capsule]} on measures of the decoded image. Numbers are shown "
            "where the effect differs from zero (t-test, Holm's correction over the whole table). "
            f"Intervals and bars: 95 % of the mean (Student's t) over {result.n:,} images of the "
            f"class, not corrected{ground(result.dark)}."
        )
