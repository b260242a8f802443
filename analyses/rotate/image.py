"""One image at each angle: the scores of all classes, and the reconstruction."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analyses.rotate.statistics import Start, Step, Stop, angles
from capsviz.analysis import Analysis, Range


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


class Rotate(Analysis):
    """One image, rotated step by step."""

    Result = Result
    examples = """
    capsviz rotate --digit 4 --step 10  # 8 s
    capsviz rotate --n 1000 --step 10 --venue icml  # about 40 s
    """

    def measure(
        self, network, image, label=None, *, classes, start: Start = 0.0, stop: Stop = 360.0,
        step: Step = 4.0, size: Annotated[int, Range(200, 2000), "Size of the GIF, pixels."] = 720,
        fps: Annotated[float, Range(1, 50), "Frames a second of the GIF."] = 15,
    ) -> Result:  # fmt: skip
        """Rotate one image (1, C, H, W); networks without a decoder have no reconstructions.

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
        rotated = rotate(image.cpu().float(), torch.from_numpy(degrees)).clamp(0, 1)
        if reconstructs(network):
            traced = trace(network, rotated, keep=("lengths", "reconstruction"))
            lengths, decoded = traced.lengths, traced.reconstruction.float()
        else:
            lengths = scores(network, rotated)
        return Result(
            angles_deg=degrees,
            lengths=lengths.float().numpy(),
            predicted=predict(lengths).numpy(),
            inputs=to_uint8(rotated),
            reconstructions=None if decoded is None else to_uint8(decoded),
            sse=None if decoded is None else reconstruction_loss(rotated, decoded).numpy(),
            classes=list(classes),
            label=label,
            score=score_name(network, rotated),
        )

    def check(self, *, start, stop, step, **others):
        angles(start, stop, step)

    def draw(self, result, *, width=7.16, part=""):
        from capsviz.analyses.rotate import draw

        return draw.film_strip(result, width)

    def extra_files(self, result, path, *, size, fps, **others):
        return [animation(result, path.with_suffix(".gif"), size=size, fps=fps)]

    def verdict(self, result) -> str:
        (angle, name), *later = changes(result)
        text = f"Predicted as {name} at {angle:g}°"
        if not later:
            return f"{text}, and at every angle up to {result.angles_deg[-1]:g}°."
        return text + "".join(f", as {name} from {angle:g}°" for angle, name in later) + "."

    def caption(self, result, part="") -> str:
        decoded = "" if result.reconstructions is None else ", its reconstructions"
        return (
            f"One image, rotated counter-clockwise{decoded} and the class that is predicted. "
            f"Below, the {result.score} of each class at every angle."
        )


def changes(result: Result) -> list[tuple[float, str]]:
    """Return (angle, class) of the first angle and of each one where the prediction changes."""
    starts = [0, *np.flatnonzero(np.diff(result.predicted)) + 1]
    return [(float(result.angles_deg[i]), result.classes[result.predicted[i]]) for i in starts]


def animation(result: Result, path, *, size: int = 720, fps: float = 15):
    """Write the GIF of a result, `size` pixels wide, of at most 180 frames."""
    from capsviz.analyses.rotate.draw import frames
    from capsviz.results import animate

    return animate(frames(result, size), path, fps=fps)
