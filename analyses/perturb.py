"""What does each dimension of a class capsule draw? Sheets, and effects in numbers.

Method: one dimension of an image's pose is changed, all others held, and the result decoded. A
sheet shows every dimension over a range: -0.25 to 0.25 in steps of 0.05 about the image's own value
(figure 4 of Sabour, Frosst & Hinton 2017, arXiv:1710.09829), or from the 5 % to the 95 % quantile
that the dimension has over images of the class. The effect table measures the decoded images
(`capsviz.moments`: slant, width, height, stroke thickness, place) at +0.1 and -0.1 of a dimension
and gives half the difference, its mean over N images of the class (drawn from the split at random,
always the same ones) with a normal 95 % interval.
"Standardised" is that mean over the standard deviation of the measure among the N undisturbed
reconstructions, so that degrees and pixels compare. The captions beside a sheet are the largest
standardised effect of each dimension. Dimensions count from 0, as in the arrays.

A reader should see smooth changes of shape, and which of them are the same for all images of the
class. Do not conclude: that a dimension means the same in another class (each capsule has its own),
or has one meaning (one dimension often moves several measures); that "no clear effect" is no change
(effects that differ in sign between images cancel, see the mean pixel change, and shape has more to
it than six measures); that "moves" is a shift (place is the centre of mass, a fading end moves it);
that a range of 0.25 is natural (compare the quantiles). The intervals are not corrected for their
number: of a hundred, five leave out a true zero.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import click
import numpy as np

from analyses._perturb_effects import DELTA, Statistics, captions, evaluate
from capsviz import options

N = 200  # images of the class, where there are as many: for a sheet and in the figure set


class Result(NamedTuple):
    """One image's pose of one class, E dimensions at K values each."""

    values: np.ndarray  # (E, K) of the changed dimension, ascending
    own: np.ndarray  # (E,) which column holds the image's own value
    images: np.ndarray  # (E, K, C, H, W) uint8, decoded
    input: np.ndarray  # (C, H, W) uint8
    reconstruction: np.ndarray  # (C, H, W) uint8, from the undisturbed pose
    capsule: int  # class whose pose was changed
    length: float  # of that pose
    label: int | None  # true class, if it is known
    predicted: int
    captions: list[str]  # (E,) from the effects on n images of the class `capsule`
    n: int
    span: str  # "paper" or "data"
    classes: list[str]


def choose(model, image, label=None, *, pose="winning") -> int:
    """The class whose pose of an image (1, C, H, W) to change: the "winning" or the "true" one.

    Raises
    ------
    ValueError  for the "true" one where `label` is None.
    """
    from capsviz.functional import predict
    from capsviz.tracing import trace

    if pose == "winning":
        return int(predict(trace(model, image.cpu(), keep=("lengths",)).lengths))
    if label is None:
        raise ValueError("the true class of this image is not known: use the winning pose")
    return int(label)


def compute(model, image, label=None, *, statistics, span="paper") -> Result:
    """Change each dimension of one image's pose and decode.

    Parameters
    ----------
    image       (1, C, H, W).
    label       true class, if it is known.
    statistics  of `evaluate`: its class is the one whose pose is changed.
    span        "paper": 11 values, +-0.25 in steps of 0.05 about the image's own; "data": 10 values
                from the 5 % to the 95 % quantile over the images of `statistics`, and its own.

    Raises
    ------
    ValueError  for an unknown span; from the network, if it has no decoder.
    """
    import torch

    from capsviz.augment import to_uint8
    from capsviz.functional import predict
    from capsviz.tracing import decode, trace

    if span not in ("paper", "data"):
        raise ValueError(f"unknown range '{span}', expected one of: paper, data")
    image, k = image.cpu(), statistics.capsule
    seen = trace(model, image, keep=("poses", "lengths"))
    poses = seen.poses[-1]
    base = poses[0, k].double().numpy()
    if span == "paper":
        values = base[:, None] + np.linspace(-0.25, 0.25, 11)
    else:
        values = np.linspace(*statistics.quantiles.T, 10, axis=1)
        values = np.sort(np.concatenate([values, base[:, None]], 1), 1)
    changed = poses.repeat(values.size, 1, 1)
    rows = torch.arange(values.size)
    changed[rows, k, rows // values.shape[1]] = torch.from_numpy(values).flatten().to(poses)
    made = decode(model, changed, torch.full((values.size,), k))
    itself = decode(model, poses, torch.tensor([k]))[0]
    return Result(
        values=values,
        own=np.abs(values - base[:, None]).argmin(1),
        images=to_uint8(made.unflatten(0, values.shape)),
        input=to_uint8(image[0]),
        reconstruction=to_uint8(itself),
        capsule=k,
        length=float(seen.lengths[0, k]),
        label=label,
        predicted=int(predict(seen.lengths)),
        captions=captions(statistics),
        n=statistics.n,
        span=span,
        classes=statistics.classes,
    )


def plot(result: Result | Statistics, *, width=7.16):
    """The sheet of one image, or the effect table."""
    from analyses import _perturb_drawing as drawing

    if isinstance(result, Statistics):
        return drawing.table(result, width)
    return drawing.sheet(result, width)


@click.command(help=__doc__.split("\n")[0])
@options.subject
@options.picture
@click.option(
    "--pose",
    type=click.Choice(["winning", "true"]),
    default="winning",
    show_default=True,
    help="Whose pose of the image to change.",
)
@click.option(
    "--range",
    "span",
    type=click.Choice(["paper", "data"]),
    default="paper",
    show_default=True,
    help="+-0.25 about the image's own value, or the 5 to 95 % quantiles of its class.",
)
@click.option(
    "--evaluate", "n", type=int, metavar="N", help="Effect table over N images of the class."
)
@options.figure
@options.as_json
def command(pose, span, n, as_json, figure, picture, subject):
    """Write the sheet of one image, or the effect table of a class."""
    options.refuse_with_evaluate(n, "index", "image", "pose", "span")
    opened = options.open_subject(subject)
    measure = functools.partial(measure_class, opened, progress=options.progress("perturbing"))
    if n is not None:
        result = measure(picture["digit"], n)
        stem = f"perturb-{result.dataset}-{result.capsule}-{result.n}-images"
    else:
        shown = options.open_picture(opened, picture)
        statistics = measure(choose(opened.model, shown.image, shown.label, pose=pose))
        result = compute(opened.model, shown.image, shown.label, statistics=statistics, span=span)
        stem = f"perturb-{shown.name}"
    paths = options.save(stem, "perturb", result, opened, figure)
    options.report(result, findings(result), paths, as_json)


def findings(result: Result | Statistics) -> str:
    """What the numbers say, one line for each dimension."""
    texts = captions(result) if isinstance(result, Statistics) else result.captions
    head = (
        f"class {result.classes[result.capsule]}, {result.n} images, per +{DELTA} of a dimension, "
        "mean ±95 %:"
    )
    return "\n".join([head, *(f"dim {d}: {text}" for d, text in enumerate(texts))])


def paper(subject, settings):
    """For `capsviz figures`: the sheet of one image, and the effect table of its class."""
    from capsviz.subject import open_picture

    shown = open_picture(subject, digit=settings.digit, index=settings.index)
    capsule = choose(subject.model, shown.image)
    there = int((subject.dataset.labels == capsule).sum())
    n = min(N, settings.n, there)
    statistics = measure_class(subject, capsule, n, progress=settings.progress("perturbing"))
    yield (
        f"perturb-{shown.name}",
        compute(subject.model, shown.image, shown.label, statistics=statistics),
    )
    yield f"perturb-{statistics.dataset}-{capsule}-{statistics.n}-images", statistics


def caption(result: Result | Statistics) -> str:
    """What the figure shows, with its numbers."""
    text = "; ".join(findings(result).split("\n")[1:])
    name = result.classes[result.capsule]
    if isinstance(result, Statistics):
        head = f"Effect of +{DELTA} of each pose dimension of class {name} on the decoded image. "
    else:
        head = f"One image's pose of class {name}, one dimension changed at a time and decoded. "
    return (
        f"{head}Largest standardised effect of +{DELTA} of each dimension, mean ±95 % interval "
        f"over {result.n} images of the class, not corrected for the number of intervals: {text}."
    )


def measure_class(subject, capsule: int, n: int | None = None, progress=iter) -> Statistics:
    """Statistics of n images of a class, always the same; for None `N` of them, or all if fewer."""
    import torch

    from capsviz.augment import to_float

    data = subject.dataset
    data.nth_of_class(capsule, 0)  # refuses a class that is not there
    places = (data.labels == capsule).nonzero().flatten()
    if n is not None and not 2 <= n <= len(places):
        there = f"{data.name} {data.split} has {len(places)} images of class {capsule}"
        raise ValueError(f"{there}: expected 2 to {len(places)}, got {n}")
    draw = torch.randperm(len(places), generator=torch.Generator().manual_seed(0))
    chosen = places[draw[: N if n is None else n].sort().values]
    images = to_float(data.take(chosen).images)
    names = {"classes": data.classes, "dataset": data.name}
    return evaluate(subject.model, images, capsule=capsule, **names, progress=progress)
