"""What does each dimension of a class capsule draw? Sheets, and effects in numbers."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import numpy as np

from capsviz.analyses.perturb.measure import (
    N,
    Statistics,
    captions,
    ground,
    measure_class,
    ninety_percent,
    strongest,
)
from capsviz.analysis import Analysis, Default, Flag

__all__ = ["Effects", "Result", "Sheet", "Statistics", "captions", "change_each", "measure_class"]
STRONGEST = 6  # dimensions of a sheet


class Result(NamedTuple):
    """One image's pose of one class, E of its dimensions at K values each."""

    values: np.ndarray  # (E, K) of the changed dimension, ascending
    own: np.ndarray  # (E,) which column holds the image's own value
    images: np.ndarray  # (E, K, C, H, W) uint8, decoded
    input: np.ndarray  # (C, H, W) uint8
    reconstruction: np.ndarray  # (C, H, W) uint8, from the unchanged pose
    capsule: int  # class whose pose was changed
    length: float  # of that pose, or activation, as `score` says
    label: int | None  # true class, if it is known
    predicted: int
    captions: list[str]  # (E,) from the effects on n images of the class `capsule`
    n: int
    span: str  # "paper" or "data"
    classes: list[str]
    dimensions: list[int]  # E, which ones of the pose
    count: int  # type: ignore[assignment]  # of dimensions in the pose; a field, not the method
    tests: int  # that the captions are corrected for
    score: str  # "capsule length" or "activation"
    width: float  # median over dimensions from the 5 % to the 95 % quantile
    step: float  # of a dimension, that the captions are of


class Sheet(Analysis):
    """One image's pose, one dimension changed at a time and decoded."""

    Result = Result
    needs = ("poses", "decode")
    examples = """
    capsviz perturb --digit 4 --all  # 15 s
    capsviz perturb --digit 4 --n 200  # 10 s
    """

    def measure(
        self, network, *, picture, inputs, progress=iter,
        span: Annotated[
            Literal["paper", "data"] | None,
            Flag("--range"),
            Default("paper; data where poses are not squashed to an activation"),
            "+-0.25 about the image's own value, or the 5 to 95 % quantiles of its class.",
        ] = None,
        every: Annotated[
            bool, Flag("--all"), "All dimensions, not the six strongest alone."
        ] = False,
    ) -> Result:  # fmt: skip
        """Change each dimension of the predicted class's pose; describe it by its effects."""
        from capsviz.nn.functional import predict
        from capsviz.tracing import scores

        capsule = int(predict(scores(network, picture.image.cpu())))
        statistics = measure_class(inputs, capsule, progress=progress)
        return change_each(
            network, picture.image, picture.label, statistics=statistics, span=span, every=every
        )

    def verdict(self, result) -> str:
        return _effects(
            f"The pose of class {result.classes[result.capsule]} is changed, one dimension at a "
            "time.", result, zip(result.dimensions, result.captions, strict=True),
        )  # fmt: skip

    def heading(self, result, part="") -> str:
        true = "" if result.label is None else f"true {result.classes[result.label]}, "
        shown = len(result.images)
        most = f"; the {shown} strongest of {result.count}" if shown < result.count else ""
        return (
            f"{true}predicted {result.classes[result.predicted]}; changed: the pose of "
            f"{result.classes[result.capsule]}, {result.score.split()[-1]} {result.length:.2f}"
            f"{most}; beside each row: effects of +{result.step:g}, ±: 95 %{ground(result.images)}"
        )

    def caption(self, result, part="") -> str:
        most = ", strongest first" if len(result.captions) < result.count else ""
        return (
            f"One image's pose of class {result.classes[result.capsule]}, with one dimension "
            f"changed at a time, decoded{most}. The words beside a row are the largest effects of "
            f"+{result.step:g} of the dimension, relative to the class's spread, among those "
            f"that differ from zero (Holm's method, {result.tests} tests){ground(result.images)}. "
            f"±: 95 % intervals of the mean (Student's t) over {result.n:,} images of the class."
        )


class Effects(Analysis):
    """The effect of each dimension of one class's pose, over N images of the class."""

    Result = Statistics
    panels = "draw:MANY"
    needs = ("poses", "decode")
    headline = ()  # the words hold what matters

    def measure(self, network, *, inputs, digit, n, progress=iter) -> Statistics:
        """Measure n images of the class `digit`, always the same ones."""
        return measure_class(inputs, digit, n, progress=progress)

    def in_figure_set(self, n, inputs, digit):
        return min(n, N, int((inputs.dataset.labels == digit).sum()))

    def stem(self, base, result):
        return f"perturb-{result.dataset}-{result.capsule}-{result.n}-images"

    def verdict(self, result) -> str:
        return _effects(
            f"Dimension {strongest(result, 1)[0]} of the pose of class "
            f"{result.classes[result.capsule]} changes the decoded image most.",
            result, enumerate(captions(result)),
        )  # fmt: skip

    def heading(self, result, part="") -> str:
        return (
            f"effect of +{result.step:g} of a dimension, class {result.classes[result.capsule]}; "
            f"{result.n} images of {result.dataset}; ±: 95 %; ·: no clear effect{ground(result)}"
        )

    def caption(self, result, part="") -> str:
        return (
            f"Effect of +{result.step:g} of each pose dimension of class "
            f"{result.classes[result.capsule]} on measures of the decoded image. Numbers are shown "
            "where the effect differs from zero (t-test, Holm's correction for the whole table). "
            f"Intervals and bars: 95 % of the mean (Student's t) over {result.n:,} images of the "
            f"class, not corrected{ground(result)}."
        )


def _effects(first: str, result, texts) -> str:
    """Return a sentence, and a line for each dimension."""
    dark = ground(getattr(result, "images", result))
    head = f"{first} Effects of +{result.step:g} of each over the class{dark}:"
    return "\n".join([head, *(f"  dim {d}: {text}" for d, text in texts)])


def change_each(
    model, image, label=None, *, statistics: Statistics, span=None, every=False
) -> Result:
    """Change each dimension of the pose of an image (1, C, H, W), of the class of the statistics.

    The span "paper" has 11 values, +-0.25 in steps of 0.05 about the image's own; "data" has 10
    from the 5 % to the 95 % quantile over the images of the statistics, and its own. None is
    "paper" where a pose's length is the activation, else "data".
    """
    import torch

    from capsviz.nn.functional import predict
    from capsviz.tracing import LENGTH, decode, score_name, trace
    from capsviz.transforms.augment import to_uint8

    image, k = image.cpu(), statistics.capsule
    score = score_name(model, image)
    span = span or ("paper" if score == LENGTH else "data")
    traced = trace(model, image, keep=("poses", "lengths"))
    poses, lengths = traced.require("poses")[-1], traced.require("lengths")
    E = poses.shape[2]
    dimensions = np.arange(E) if every or E <= STRONGEST else strongest(statistics, STRONGEST)
    base = poses[0, k].double().numpy()[dimensions]
    if span == "paper":
        values = base[:, None] + np.linspace(-0.25, 0.25, 11)
    else:
        low, high = statistics.quantiles[dimensions].T
        values = np.linspace(low, high, 10, axis=1)
        values = np.sort(np.concatenate([values, base[:, None]], 1), 1)
    changed = poses.repeat(values.size, 1, 1)
    rows = torch.arange(values.size)
    which = torch.from_numpy(dimensions)[rows // values.shape[1]]
    changed[rows, k, which] = torch.from_numpy(values).flatten().to(poses)
    decoded = decode(model, changed, torch.full((values.size,), k))
    itself = decode(model, poses, torch.tensor([k]))[0]
    texts = captions(statistics)
    return Result(
        values=values,
        own=np.abs(values - base[:, None]).argmin(1),
        images=to_uint8(decoded.float().unflatten(0, values.shape)),
        input=to_uint8(image[0]),
        reconstruction=to_uint8(itself.float()),
        capsule=k,
        length=float(lengths[0, k]),
        label=label,
        predicted=int(predict(lengths)),
        captions=[texts[d] for d in dimensions],
        n=statistics.n,
        span=span,
        classes=statistics.classes,
        dimensions=dimensions.tolist(),
        count=E,
        tests=statistics.effect.value.size,
        score=score,
        width=ninety_percent(statistics.quantiles),
        step=statistics.step,
    )
