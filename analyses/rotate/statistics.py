"""Accuracy over many images at each angle."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Flag
from capsviz.statistics.estimate import Estimate

Start = Annotated[float, Flag("--from"), "First angle, degrees."]
Stop = Annotated[float, Flag("--to"), "Last angle, degrees."]
Step = Annotated[float, "Step between angles, degrees."]


class Statistics(NamedTuple):
    """N test images at A angles; intervals are 95 %."""

    angles_deg: np.ndarray  # (A,)
    accuracy: Estimate  # (A,) Wilson
    true_length: Estimate  # (A,) mean length of the true class's capsule; by t, within 0 and 1
    n: int
    dataset: str
    score: str = "capsule length"  # or "activation" or "probability", what `true_length` is of

    axes = {"accuracy": ("angles_deg",), "true_length": ("angles_deg",)}
    formats = {"accuracy": ".1%", "true_length": ".3f"}


class RotateMany(Analysis):
    """N images, rotated step by step."""

    Result = Statistics
    figure_set = {"start": -90.0, "stop": 90.0, "step": 10.0}
    slow = True
    headline = ("accuracy",)

    def measure(
        self, network, images, labels, *, dataset, progress=iter, start: Start = 0.0,
        stop: Stop = 360.0, step: Step = 4.0,
    ) -> Statistics:  # fmt: skip
        """Measure N images (N, C, H, W), at least 2, at every angle, counter-clockwise.

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
            lengths = scores(network, rotate(images, float(degree)).clamp(0, 1))
            right.append(int((predict(lengths) == labels).sum()))
            true_lengths.append(lengths.gather(1, labels[:, None])[:, 0].double().numpy())
        mean, interval = mean_interval(np.stack(true_lengths, 1))
        return Statistics(
            angles_deg=degrees,
            accuracy=Estimate(np.array(right) / n, wilson_each(right, n), n),
            true_length=Estimate(mean, interval.clip(0, 1), n),
            n=n,
            dataset=dataset,
            score=score_name(network, images),
        )

    def check(self, *, start, stop, step):
        angles(start, stop, step)

    def draw(self, result, *, width=7.16, part=""):
        from capsviz.analyses.rotate import draw

        return draw.curves(result, width)

    def verdict(self, result) -> str:
        accuracy, degrees = result.accuracy.value, result.angles_deg
        high, low = accuracy.argmax(), accuracy.argmin()
        return (
            f"Accuracy on {result.n:,} {result.dataset} images is highest at {degrees[high]:g}° "
            f"and lowest at {degrees[low]:g}°."
        )

    def caption(self, result, part="") -> str:
        return (
            f"Accuracy on rotated images of {result.dataset}, and the mean {result.score} of the "
            f"true class. Bands: 95 % intervals over {result.n:,} images (Wilson; Student's t)."
        )


def angles(start: float, stop: float, step: float) -> np.ndarray:
    """Return angles from start to stop, both included where the step allows.

    Raises
    ------
    ValueError  for a step that is not positive, or gives more than 3600 angles.
    """
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
