"""Rotate a digit through a full circle: which class is predicted at each angle?"""

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Fill, Flag, Range

Start = Annotated[float, Flag("--from"), "First angle, degrees."]
Stop = Annotated[float, Flag("--to"), "Last angle, degrees."]
Step = Annotated[float, "Step between angles, degrees."]


class Result(NamedTuple):
    """Hold the predictions for one image at A angles."""

    angles_deg: np.ndarray  # (A,) counter-clockwise
    lengths: np.ndarray  # (A, J) score of each class; `score` names the quantity
    predicted: np.ndarray  # (A,) class of the longest capsule
    inputs: np.ndarray  # (A, C, H, W) uint8
    reconstructions: np.ndarray | None  # (A, C, H, W) uint8, from the winning capsule
    sse: np.ndarray | None  # (A,) sum of squared differences, pixels in [0, 1]
    classes: list[str]
    label: int | None  # true class, if it is known
    score: str = "capsule length"  # or "activation", or "probability" without capsules
    fill: str = "black"  # outside the rotated image: see `transforms.Fill`


class Rotate(Analysis):
    """One image, rotated step by step."""

    Result = Result
    examples = "capsviz rotate --digit 4 --step 10  # 8 s"

    def measure(
        self, network, image, label=None, *, classes, start: Start = 0.0, stop: Stop = 360.0,
        step: Step = 4.0, size: Annotated[int, Range(200, 2000), "Width of the GIF, pixels."] = 720,
        fps: Annotated[float, Range(1, 50), "Frames per second of the GIF."] = 15,
        fill: Fill = "black",
    ) -> Result:  # fmt: skip
        """Rotate one image (1, C, H, W) and classify it at every angle.

        Reconstructions and SSE are None if the network has no decoder.
        """
        import torch

        from capsviz.nn.functional import predict, reconstruction_loss
        from capsviz.tracing import abilities, score_name, scores, trace
        from capsviz.transforms.augment import to_uint8
        from capsviz.transforms.warps import rotate, sizes

        degrees, decoded = sizes("rotation", start, stop, step), None
        rotated = rotate(image.cpu().float(), torch.from_numpy(degrees), fill).clamp(0, 1)
        if abilities(network).decodes:
            traced = trace(network, rotated, keep=("lengths", "reconstruction"))
            lengths = traced.require("lengths")
            decoded = traced.require("reconstruction").float()
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
            fill=fill,
        )

    def extra_files(self, result, path, *, size, fps, **others):
        return [animation(result, path.with_suffix(".gif"), size=size, fps=fps)]

    def verdict(self, result) -> str:
        (angle, name), *later = changes(result)
        text = f"Predicted as {name} at {angle:g}°"
        if not later:
            return f"{text}, and at every angle up to {result.angles_deg[-1]:g}°."
        return text + "".join(f", as {name} from {angle:g}°" for angle, name in later) + "."


def changes(result: Result) -> list[tuple[float, str]]:
    """Return (angle, class) at the first angle and at each angle where the prediction changes."""
    starts = [0, *np.flatnonzero(np.diff(result.predicted)) + 1]
    return [(float(result.angles_deg[i]), result.classes[result.predicted[i]]) for i in starts]


def animation(result: Result, path, *, size: int = 720, fps: float = 15):
    """Write a result as a GIF, `size` pixels wide, with at most 180 frames."""
    from capsviz.analyses.rotate.draw import frames
    from capsviz.results import animate

    return animate(frames(result, size), path, fps=fps)
