"""Turn a digit through a full circle: what do the capsules say at each angle?

Method: every angle is one warp of the original image (kornia, bilinear, zeros outside), all angles
go through the network as one batch, and the winning capsule is decoded. Over a test set
(`--evaluate`): accuracy and mean length of the true class's capsule at every angle. The animation
has at most 180 frames: of more angles, every second, third, ... is shown.

A reader should see over which range of angles the true class stays the longest, and what the
network takes the digit for outside it. One digit proves nothing about robustness: the test-set
curve is the evidence. CapsNet is trained on upright digits, so failure far from 0° is no defect of
this picture; and 6 and 9 swap at 180° for people too.
"""

from __future__ import annotations

from typing import NamedTuple

import click
import numpy as np

from analyses._words import with_interval
from capsviz import options

NAMED_DEG = (-90, -60, -30, 0, 30, 60, 90, 180)  # the angles that findings name


class Result(NamedTuple):
    """One image at A angles."""

    angles_deg: np.ndarray  # (A,) counter-clockwise
    lengths: np.ndarray  # (A, J)
    predicted: np.ndarray  # (A,) class of the longest capsule
    inputs: np.ndarray  # (A, C, H, W) uint8
    reconstructions: np.ndarray  # (A, C, H, W) uint8, from the winning capsule
    sse: np.ndarray  # (A,) sum of squared differences, pixels in [0, 1]
    classes: list[str]
    label: int | None  # true class, if it is known


class Statistics(NamedTuple):
    """N test images at A angles; intervals are 95 %."""

    angles_deg: np.ndarray  # (A,)
    accuracy: np.ndarray  # (A,)
    accuracy_ci95: np.ndarray  # (A, 2) Wilson
    true_length: np.ndarray  # (A,) mean length of the true class's capsule
    true_length_ci95: np.ndarray  # (A, 2) normal approximation, within 0 and 1
    n: int
    dataset: str


def angles(start: float, stop: float, step: float) -> np.ndarray:
    """Angles from start to stop, both included where the step allows; ValueError for a bad step."""
    if not np.isfinite([start, stop, step]).all():
        raise ValueError(f"expected finite angles, got {start:g} to {stop:g} by {step:g}")
    if not step > 0:
        raise ValueError(f"the step must be a positive number of degrees, got {step:g}")
    if stop < start:
        raise ValueError(f"expected --from below --to, got {start:g} and {stop:g}")
    count = int((stop - start) / step + 1e-9) + 1
    if count > 3600:
        raise ValueError(f"{count} angles are too many, expected at most 3600: use a larger --step")
    return start + step * np.arange(count)


def compute(model, image, label=None, *, classes, start=0.0, stop=360.0, step=4.0) -> Result:
    """Turn one image (1, C, H, W) and look at every angle.

    Parameters
    ----------
    label              true class, if it is known.
    classes            names of the classes.
    start, stop, step  degrees, counter-clockwise.

    Raises
    ------
    ValueError  for a sweep that `angles` refuses, or a network without a decoder.
    """
    from capsviz.augment import to_uint8
    from capsviz.functional import predict, reconstruction_loss
    from capsviz.tracing import trace
    from capsviz.warps import rotate

    degrees = angles(start, stop, step)
    turned = rotate(image.cpu(), _tensor(degrees)).clamp(0, 1)
    seen = trace(model, turned, keep=("lengths", "reconstruction"))
    if seen.reconstruction is None:
        raise ValueError("this network has no decoder, so there is no reconstruction to show")
    return Result(
        angles_deg=degrees,
        lengths=seen.lengths.numpy(),
        predicted=predict(seen.lengths).numpy(),
        inputs=to_uint8(turned),
        reconstructions=to_uint8(seen.reconstruction),
        sse=reconstruction_loss(turned, seen.reconstruction).numpy(),
        classes=list(classes),
        label=label,
    )


def evaluate(
    model, images, labels, *, dataset, start=0.0, stop=360.0, step=4.0, progress=iter
) -> Statistics:
    """Accuracy and true-class length of N images (N, C, H, W), at least 2, at every angle.

    Parameters
    ----------
    labels             (N,).
    dataset            its name, for the record.
    start, stop, step  degrees, counter-clockwise.
    progress           wraps the angles, for a progress bar.

    Raises
    ------
    ValueError  for fewer than 2 images, or a sweep that `angles` refuses.
    """
    from capsviz.functional import predict
    from capsviz.intervals import mean_interval, require_two, wilson_each
    from capsviz.tracing import trace
    from capsviz.warps import rotate

    images, labels = images.cpu(), labels.cpu()
    degrees = angles(start, stop, step)
    n = len(images)
    require_two(n)
    right, lengths = [], []
    for degree in progress(degrees):
        turned = rotate(images, float(degree)).clamp(0, 1)
        found = trace(model, turned, keep=("lengths",)).lengths
        right.append(int((predict(found) == labels).sum()))
        lengths.append(found.gather(1, labels[:, None])[:, 0].double().numpy())
    mean, interval = mean_interval(np.stack(lengths, 1))
    return Statistics(
        angles_deg=degrees,
        accuracy=np.array(right) / n,
        accuracy_ci95=wilson_each(right, n),
        true_length=mean,
        true_length_ci95=interval.clip(0, 1),
        n=n,
        dataset=dataset,
    )


def changes(result: Result) -> list[tuple[float, str]]:
    """(angle, class) at the first angle and wherever the prediction changes."""
    starts = [0, *np.flatnonzero(np.diff(result.predicted)) + 1]
    return [(float(result.angles_deg[i]), result.classes[result.predicted[i]]) for i in starts]


def plot(result: Result | Statistics, *, width=7.16):
    """Film strip and length curve of one image, or the test-set curves."""
    from analyses import _rotate_drawing as drawing

    if isinstance(result, Statistics):
        return drawing.curves(result, width)
    return drawing.film_strip(result, width)


@click.command(help=__doc__.split("\n")[0])
@options.subject
@options.picture
@click.option("--from", "start", default=0.0, show_default=True, help="First angle, degrees.")
@click.option("--to", "stop", default=360.0, show_default=True, help="Last angle, degrees.")
@click.option("--step", default=4.0, show_default=True, help="Between angles, degrees.")
@click.option("--evaluate", "n", type=int, metavar="N", help="Over N test images instead of one.")
@click.option(
    "--size", type=click.IntRange(200, 2000), default=720, show_default=True, help="GIF, pixels."
)
@click.option("--fps", type=click.FloatRange(1, 50), default=15, show_default=True, help="Of GIF.")
@options.figure
@options.as_json
def command(start, stop, step, n, size, fps, as_json, figure, picture, subject):
    """Write the GIF, the print figure and their numbers; say where the prediction changes."""
    sweep = {"start": start, "stop": stop, "step": step}
    angles(**sweep)
    options.refuse_with_evaluate(n, "digit", "index", "image", "size", "fps")
    opened = options.open_subject(subject)
    if n is not None:
        images, labels = opened.images(n)
        progress = options.progress("angles")
        name = opened.dataset.name
        result = evaluate(opened.model, images, labels, dataset=name, **sweep, progress=progress)
        paths = options.save(f"rotate-{name}-{n}-images", "rotate", result, opened, figure)
    else:
        shown = options.open_picture(opened, picture)
        result = compute(
            opened.model, shown.image, shown.label, classes=opened.dataset.classes, **sweep
        )
        paths = options.save(f"rotate-{shown.name}", "rotate", result, opened, figure)
        paths.append(animation(result, paths[-1].with_suffix(".gif"), size=size, fps=fps))
    options.report(result, findings(result), paths, as_json)


def findings(result: Result | Statistics) -> str:
    """What the numbers say, in a line or two."""
    if isinstance(result, Statistics):
        there = result.angles_deg
        named = [a for a in NAMED_DEG if there[0] <= a <= there[-1]]
        if len(named) < 2:
            named = sorted({there[0], *named, there[-1]})
        # the nearest angle that there is; of two, the one nearer to upright
        at = [int(np.lexsort([abs(there), abs(there - a).round(6)])[0]) for a in named]
        parts = [
            with_interval(result.accuracy[i], result.accuracy_ci95[i], ".1%")
            + f" at {result.angles_deg[i]:g}°"
            for i in dict.fromkeys(at)
        ]
        head = f"accuracy on {result.n} {result.dataset} images, with 95 % intervals: "
        return head + ", ".join(parts)
    first, *later = changes(result)
    text = f"predicted {first[1]} at {first[0]:g}°"
    if not later:
        return f"{text}, and at every angle up to {result.angles_deg[-1]:g}°"
    return text + "".join(f", {name} from {angle:g}°" for angle, name in later)


def paper(subject, settings):
    """For `capsviz figures`: one image through a full turn, and the test set."""
    from capsviz.subject import open_picture

    name = subject.dataset.name
    shown = open_picture(subject, digit=settings.digit, index=settings.index)
    classes = subject.dataset.classes
    result = compute(subject.model, shown.image, shown.label, classes=classes)
    yield f"rotate-{shown.name}", result
    images, labels = subject.images(settings.n)
    sweep = {"start": -90.0, "stop": 90.0, "step": 10.0}
    progress = settings.progress("rotating")
    result = evaluate(subject.model, images, labels, dataset=name, **sweep, progress=progress)
    yield f"rotate-{name}-{settings.n}-images", result


def caption(result: Result | Statistics) -> str:
    """What the figure shows, with its numbers."""
    if isinstance(result, Statistics):
        return f"Rotation of the test set, bands: 95 % intervals. {findings(result)}."
    return f"One digit turned counter-clockwise. {findings(result)}."


def animation(result: Result, path, *, size: int = 720, fps: float = 15):
    """The GIF of a result: `size` pixels wide, at most 180 frames."""
    from analyses._rotate_drawing import frames
    from capsviz.animation import animate

    return animate(frames(result, size), path, fps=fps)


def _tensor(values: np.ndarray):
    import torch

    return torch.from_numpy(values)
