"""Turn a digit through a full circle: what do the capsules say at each angle?

`capsviz rotate --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from typing import NamedTuple

import click
import numpy as np

from capsviz.analyses.rotate.measure import Statistics, angles, evaluate
from capsviz.cli import options
from capsviz.cli.analysis import analysis
from capsviz.statistics.words import sentences

EXAMPLES = """
capsviz rotate --digit 4 --step 10  # 8 s
capsviz rotate --n 1000 --step 10 --venue icml  # about 40 s
"""

NEEDS = ()  # of a network: its scores; one that decodes is decoded

NAMED_DEG = (-90, -60, -30, 0, 30, 60, 90, 180)  # the angles that findings name


class Result(NamedTuple):
    """One image at A angles."""

    angles_deg: np.ndarray  # (A,) counter-clockwise
    lengths: np.ndarray  # (A, J), or activations, as `score` says
    predicted: np.ndarray  # (A,) class of the longest capsule
    inputs: np.ndarray  # (A, C, H, W) uint8
    reconstructions: np.ndarray | None  # (A, C, H, W) uint8, from the winning capsule
    sse: np.ndarray | None  # (A,) sum of squared differences, pixels in [0, 1]
    classes: list[str]
    label: int | None  # true class, if it is known
    score: str = "capsule length"  # or "activation", or "probability" without capsules


def compute(model, image, label=None, *, classes, start=0.0, stop=360.0, step=4.0) -> Result:
    """Turn one image (1, C, H, W) and look at every angle.

    Parameters
    ----------
    label              true class, if it is known.
    classes            names of the classes.
    start, stop, step  degrees, counter-clockwise.

    Raises
    ------
    ValueError  for a sweep that `angles` refuses.
    """
    import torch

    from capsviz.nn.functional import predict, reconstruction_loss
    from capsviz.tracing import reconstructs, score_name, scores, trace
    from capsviz.transforms.augment import to_uint8
    from capsviz.transforms.warps import rotate

    degrees, decoded = angles(start, stop, step), None
    turned = rotate(image.cpu().float(), torch.from_numpy(degrees)).clamp(0, 1)
    if reconstructs(model):
        traced = trace(model, turned, keep=("lengths", "reconstruction"))
        lengths, decoded = traced.lengths, traced.reconstruction.float()
    else:
        lengths = scores(model, turned)
    return Result(
        angles_deg=degrees,
        lengths=lengths.float().numpy(),
        predicted=predict(lengths).numpy(),
        inputs=to_uint8(turned),
        reconstructions=None if decoded is None else to_uint8(decoded),
        sse=None if decoded is None else reconstruction_loss(turned, decoded).numpy(),
        classes=list(classes),
        label=label,
        score=score_name(model, turned),
    )


def changes(result: Result) -> list[tuple[float, str]]:
    """(angle, class) at the first angle and wherever the prediction changes."""
    starts = [0, *np.flatnonzero(np.diff(result.predicted)) + 1]
    return [(float(result.angles_deg[i]), result.classes[result.predicted[i]]) for i in starts]


def plot(result: Result | Statistics, *, width=7.16):
    """Film strip and length curve of one image, or the test-set curves."""
    from capsviz.analyses.rotate import draw as drawing

    if isinstance(result, Statistics):
        return drawing.curves(result, width)
    return drawing.film_strip(result, width)


@analysis(__doc__, picture=True)
@click.option("--from", "start", default=0.0, show_default=True, help="First angle, degrees.")
@click.option("--to", "stop", default=360.0, show_default=True, help="Last angle, degrees.")
@click.option("--step", default=4.0, show_default=True, help="Step between angles, degrees.")
@options.number("Over N test images instead of one.", "--evaluate")
@click.option(
    "--size",
    type=click.IntRange(200, 2000),
    default=720,
    show_default=True,
    help="Size of the GIF, pixels.",
)
@click.option(
    "--fps",
    type=click.FloatRange(1, 50),
    default=15,
    show_default=True,
    help="Frames a second of the GIF.",
)
def command(run, start, stop, step, n, size, fps):
    """Write the GIF, the print figure and their numbers; say where the prediction changes."""
    sweep = {"start": start, "stop": stop, "step": step}
    angles(**sweep)
    options.refuse_with_evaluate(n, "digit", "index", "image", "size", "fps")
    if n is not None:
        evaluated = {**sweep, "dataset": run.dataset, "progress": run.progress("angles")}
        result = evaluate(run.model, *run.images(n), **evaluated)
        yield f"rotate-{run.dataset}-{n}-images", result
        return
    image, label, name = run.picture
    result = compute(run.model, image, label, classes=run.classes, **sweep)

    def write(path):
        return animation(result, path.with_suffix(".gif"), size=size, fps=fps)

    yield f"rotate-{name}", result, write


def findings(result: Result | Statistics) -> str:
    """What the numbers say, in a line or two."""
    if isinstance(result, Statistics):
        degrees = result.angles_deg
        named = [a for a in NAMED_DEG if degrees[0] <= a <= degrees[-1]]
        if len(named) < 2:
            named = sorted({degrees[0], *named, degrees[-1]})
        # the nearest angle that there is; of two, the one nearer to upright
        at = [int(np.lexsort([abs(degrees), abs(degrees - a).round(6)])[0]) for a in named]
        parts = [f"{result.accuracy[i]:.1%} at {degrees[i]:g}°" for i in dict.fromkeys(at)]
        head = f"accuracy on {result.n} {result.dataset} images, with 95 % intervals: "
        return head + ", ".join(parts)
    first, *later = changes(result)
    text = f"predicted {first[1]} at {first[0]:g}°"
    if not later:
        return f"{text}, and at every angle up to {result.angles_deg[-1]:g}°"
    return text + "".join(f", {name} from {angle:g}°" for angle, name in later)


def paper(inputs, settings):
    """For `capsviz figures`: one image through a full turn, and the test set."""
    from capsviz.inputs.opening import open_picture

    dataset, classes = inputs.dataset.name, inputs.dataset.classes
    image, label, name = open_picture(inputs, digit=settings.digit, index=settings.index)
    yield f"rotate-{name}", compute(inputs.model, image, label, classes=classes)
    sweep = {"start": -90.0, "stop": 90.0, "step": 10.0, "dataset": dataset}
    progress = settings.progress("rotating")
    result = evaluate(inputs.model, *inputs.images(settings.few), **sweep, progress=progress)
    yield f"rotate-{dataset}-{settings.few}-images", result


def caption(result: Result | Statistics) -> str:
    """What the figure shows, with its numbers."""
    if isinstance(result, Statistics):
        return f"Rotation of the test set, bands: 95 % intervals. {sentences(findings(result))}"
    return f"One digit turned counter-clockwise. {sentences(findings(result))}"


def animation(result: Result, path, *, size: int = 720, fps: float = 15):
    """The GIF of a result: `size` pixels wide, at most 180 frames."""
    from capsviz.analyses.rotate.draw import frames
    from capsviz.results.animation import animate

    return animate(frames(result, size), path, fps=fps)
