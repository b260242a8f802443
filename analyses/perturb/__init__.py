"""What does each dimension of a class capsule draw? Sheets, and effects in numbers.

`capsviz perturb --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import click
import numpy as np

from capsviz.analyses.perturb.measure import (
    DELTA,
    N,
    Statistics,
    captions,
    choose,
    evaluate,
    ground,
    measure_class,
    spread,
    strongest,
)
from capsviz.cli import options
from capsviz.cli.analysis import analysis

EXAMPLES = """
capsviz perturb --digit 4 --all  # 15 s
capsviz perturb --digit 4 --n 200  # 10 s
"""

NEEDS = ("poses", "decode")  # of a network, see tracing.needs
OVER_RUNS = None  # dimensions of a pose are in another order in each run

__all__ = [
    "DELTA", "Result", "Statistics", "caption", "captions", "choose", "command", "compute",
    "evaluate", "findings", "measure_class", "paper", "plot",
]  # fmt: skip

STRONGEST = 6  # dimensions of a sheet


class Result(NamedTuple):
    """One image's pose of one class, E of its dimensions at K values each."""

    values: np.ndarray  # (E, K) of the changed dimension, ascending
    own: np.ndarray  # (E,) which column holds the image's own value
    images: np.ndarray  # (E, K, C, H, W) uint8, decoded
    input: np.ndarray  # (C, H, W) uint8
    reconstruction: np.ndarray  # (C, H, W) uint8, from the undisturbed pose
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


def compute(model, image, label=None, *, statistics, span=None, every=False) -> Result:
    """Change each dimension of one image's pose and decode.

    Parameters
    ----------
    image       (1, C, H, W).
    label       true class, if it is known.
    statistics  of `evaluate`: its class is the one whose pose is changed.
    span        "paper": 11 values, +-0.25 in steps of 0.05 about the image's own; "data": 10 values
                from the 5 % to the 95 % quantile over the images of `statistics`, and its own;
                None: "paper" where a pose's length is the activation, else "data".
    every       all dimensions in their order, in place of the six strongest.

    Raises
    ------
    ValueError  for an unknown span; from the network, if it has no decoder.
    """
    import torch

    from capsviz.nn.functional import predict
    from capsviz.tracing import LENGTH, decode, require_decoder, score_name, trace
    from capsviz.transforms.augment import to_uint8

    image = image.cpu()
    score = score_name(model, image)
    span = span or ("paper" if score == LENGTH else "data")
    if span not in ("paper", "data"):
        raise ValueError(f"unknown range '{span}', expected one of: paper, data")
    require_decoder(model)
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
        width=spread(statistics),
        step=statistics.step,
    )


def plot(result: Result | Statistics, *, width=7.16):
    """The sheet of one image, or the effect table."""
    from capsviz.analyses.perturb import draw as drawing

    return (drawing.table if isinstance(result, Statistics) else drawing.sheet)(result, width)


@analysis(__doc__, picture=True)
@click.option(
    "--pose", type=click.Choice(["winning", "true"]), default="winning", show_default=True,
    help="Whose pose of the image to change.",
)  # fmt: skip
@click.option(
    "--range", "span", type=click.Choice(["paper", "data"]),
    help="+-0.25 about the image's own value, or the 5 to 95 % quantiles of its class. "
    "[default: paper; data where poses are not squashed to an activation]",
)  # fmt: skip
@options.number("Effect table over N images of the class.", "--evaluate")
@click.option("--all", "every", is_flag=True, help="All dimensions, not the six strongest alone.")
def command(run, pose, span, n, every):
    """Write the sheet of one image, or the effect table of a class."""
    options.refuse_with_evaluate(n, "index", "image", "pose", "span", "every")
    measure = functools.partial(measure_class, run.inputs, progress=run.progress("perturbing"))
    if n is not None:
        result = measure(run.digit, n)
        yield f"perturb-{result.dataset}-{result.capsule}-{result.n}-images", result
        return
    image, label, name = run.picture
    statistics = measure(choose(run.model, image, label, pose=pose))
    result = compute(run.model, image, label, statistics=statistics, span=span, every=every)
    yield f"perturb-{name}", result


def findings(result: Result | Statistics) -> str:
    """What the numbers say, one line for each dimension."""
    texts, tests, which = _captions(result)
    of = f"class {result.classes[result.capsule]}, {result.n} images"
    head = f"{of}, per +{result.step:g} of a dimension, mean ±95 %"
    head += "" if tests is None else f", the largest of those clear of zero (Holm, {tests} effects)"
    head += ground(result)
    return "\n".join([f"{head}:", *(f"dim {d}: {t}" for d, t in zip(which, texts, strict=True))])


def _captions(result: Result | Statistics) -> tuple[list[str], int | None, list[int]]:
    """Words for each dimension, what number of tests they are corrected for, the dimensions."""
    if isinstance(result, Statistics):
        texts = captions(result)
        return texts, result.effect.value.size, list(range(len(texts)))
    which = result.dimensions or list(range(len(result.captions)))
    return result.captions, result.tests, which


def paper(inputs, settings):
    """For `capsviz figures`: the sheet of one image, and the effect table of its class."""
    from capsviz.inputs.opening import open_picture

    image, label, name = open_picture(inputs, digit=settings.digit, index=settings.index)
    capsule = choose(inputs.model, image)
    n = min(N, settings.n, int((inputs.dataset.labels == capsule).sum()))
    statistics = measure_class(inputs, capsule, n, progress=settings.progress("perturbing"))
    yield f"perturb-{name}", compute(inputs.model, image, label, statistics=statistics)
    yield f"perturb-{statistics.dataset}-{capsule}-{statistics.n}-images", statistics


def caption(result: Result | Statistics) -> str:
    """What the figure shows, with its numbers."""
    texts, tests, _ = _captions(result)
    text = "; ".join(findings(result).split("\n")[1:])
    name, step = result.classes[result.capsule], f"{result.step:g}"
    if isinstance(result, Statistics):
        head = f"Effect of +{step} of each pose dimension of class {name} on the decoded image. "
    else:
        head = f"One image's pose of class {name}, one dimension changed at a time and decoded"
        fewer = result.count is not None and len(texts) < result.count
        head += (
            f": the {len(texts)} of {result.count} dimensions that change the decoded image most "
            "over the class, strongest first. "
            if fewer
            else ". "
        )
    words = (
        f"Largest standardised effect of +{step} of each dimension, mean ±95 % interval over "
        f"{result.n} images of the class{ground(result)}"
    )
    if tests is None:
        return f"{head}{words}, not corrected for the number of intervals: {text}."
    return (
        f"{head}{words}, among those that differ from zero (t-test, Holm's correction for "
        f"{tests} effects; the intervals themselves are not corrected): {text}."
    )
