"""The decoded image of one pose, with each of its dimensions changed in turn."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import numpy as np

from capsviz.analyses.perturb.measure import (
    DELTA,
    Statistics,
    captions,
    ground,
    is_dark,
    measure_class,
    ninety_percent,
    strongest,
)
from capsviz.analysis import Analysis, Default, Flag

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
    dimensions: list[int] | None = None  # E, which ones of the pose; None: all, in their order
    count: int | None = None  # of dimensions in the pose
    tests: int | None = None  # that the captions are corrected for; None: they are not
    score: str = "capsule length"  # or "activation"
    width: float | None = None  # median over dimensions from the 5 % to the 95 % quantile
    step: float = DELTA  # of a dimension, that the captions are of


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
        pose: Annotated[
            Literal["winning", "true"], "Whose pose of the image to change."
        ] = "winning",
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
        """Change each dimension of the pose, and describe it by its effects over the class.

        Raises
        ------
        ValueError  for the true class's pose where the class is not known.
        """
        capsule = choose(network, picture.image, picture.label, pose=pose)
        statistics = measure_class(inputs, capsule, progress=progress)
        return change_each(
            network, picture.image, picture.label, statistics=statistics, span=span, every=every
        )

    def draw(self, result, *, width=7.16, part=""):
        from capsviz.analyses.perturb import draw

        return draw.sheet(result, width)

    def verdict(self, result) -> str:
        which = result.dimensions or range(len(result.captions))
        warning = ground(is_dark(result.images))
        return "\n".join([
            f"The pose of class {result.classes[result.capsule]} is changed, one dimension at a "
            f"time. Effects of +{result.step:g} of each over the class{warning}:",
            *(f"  dim {d}: {text}" for d, text in zip(which, result.captions, strict=True)),
        ])  # fmt: skip

    def caption(self, result, part="") -> str:
        fewer = result.count is not None and len(result.captions) < result.count
        most = ", strongest first" if fewer else ""
        clear = "" if result.tests is None else " among those that differ from zero (Holm's method)"
        return (
            f"One image's pose of class {result.classes[result.capsule]}, with one dimension "
            f"changed at a time, decoded{most}. The words beside a row are the largest effects of "
            f"+{result.step:g} of the dimension{clear}{ground(is_dark(result.images))}. "
            f"±: 95 % intervals of the mean (Student's t) over {result.n:,} images of the class."
        )


def choose(model, image, label=None, *, pose="winning") -> int:
    """Return the class whose pose of an image (1, C, H, W) to change.

    Raises
    ------
    ValueError  for the "true" one where `label` is None.
    """
    from capsviz.nn.functional import predict
    from capsviz.tracing import scores

    if pose == "winning":
        return int(predict(scores(model, image.cpu())))
    if label is None:
        raise ValueError("the true class of this image is not known: use the winning pose")
    return int(label)


def change_each(
    model, image, label=None, *, statistics: Statistics, span=None, every=False
) -> Result:
    """Change each dimension of one image's pose and decode.

    Parameters
    ----------
    image       (1, C, H, W).
    label       true class, if it is known.
    statistics  of `measure_class`: its class is the one whose pose is changed.
    span        "paper": 11 values, +-0.25 in steps of 0.05 about the image's own; "data": 10 values
                from the 5 % to the 95 % quantile over the images of `statistics`, and its own;
                None: "paper" where a pose's length is the activation, else "data".
    every       all dimensions in their order, in place of the six strongest.
    """
    import torch

    from capsviz.nn.functional import predict
    from capsviz.tracing import LENGTH, decode, score_name, trace
    from capsviz.transforms.augment import to_uint8

    image = image.cpu()
    score = score_name(model, image)
    span = span or ("paper" if score == LENGTH else "data")
    if span not in ("paper", "data"):
        raise ValueError(f"unknown range '{span}', expected one of: paper, data")
    k = statistics.capsule
    traced = trace(model, image, keep=("poses", "lengths"))
    poses = traced.poses[-1]
    E = poses.shape[2]
    dimensions = np.arange(E) if every or E <= STRONGEST else strongest(statistics, STRONGEST)
    base = poses[0, k].double().numpy()[dimensions]
    if span == "paper":
        values = base[:, None] + np.linspace(-0.25, 0.25, 11)
    else:
        values = np.linspace(*statistics.quantiles[dimensions].T, 10, axis=1)
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
        length=float(traced.lengths[0, k]),
        label=label,
        predicted=int(predict(traced.lengths)),
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
