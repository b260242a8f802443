"""Sweeps of `rotate`: the angles, and a test set at each of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.statistics.estimate import Estimate

# What the axes of estimates are: fields with their names, or the names; None: numbered from 1.
AXES = dict.fromkeys(("accuracy", "true_length"), ("angles_deg",))


class Statistics(NamedTuple):
    """N test images at A angles; intervals are 95 %."""

    angles_deg: np.ndarray  # (A,)
    accuracy: Estimate  # (A,) Wilson
    true_length: Estimate  # (A,) mean length of the true class's capsule; by t, within 0 and 1
    n: int
    dataset: str
    score: str = "capsule length"  # or "activation" or "probability", what `true_length` is of


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
    from capsviz.nn.functional import predict
    from capsviz.statistics.intervals import mean_interval, require_two, wilson_each
    from capsviz.tracing import score_name, scores
    from capsviz.transforms.warps import rotate

    images, labels = images.cpu(), labels.cpu()
    degrees = angles(start, stop, step)
    n = len(images)
    require_two(n)
    right, true_lengths = [], []
    for degree in progress(degrees):
        turned = rotate(images, float(degree)).clamp(0, 1)
        lengths = scores(model, turned)
        right.append(int((predict(lengths) == labels).sum()))
        true_lengths.append(lengths.gather(1, labels[:, None])[:, 0].double().numpy())
    mean, interval = mean_interval(np.stack(true_lengths, 1))
    return Statistics(
        angles_deg=degrees,
        accuracy=Estimate(np.array(right) / n, wilson_each(right, n), n),
        true_length=Estimate(mean, interval.clip(0, 1), n),
        n=n,
        dataset=dataset,
        score=score_name(model, images),
    )
