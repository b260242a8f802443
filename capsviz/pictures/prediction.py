"""Predict the classes of a user's pictures, and flag pictures unlike the training data."""

import glob
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from capsviz import pictures
from capsviz.nn.functional import reconstruction_loss
from capsviz.pictures import opening, strokes
from capsviz.statistics.detection import Limits
from capsviz.tracing import abilities, images_at_a_time, scores, trace
from capsviz.tracing.outputs import distance as distance_of

BATCH = 64  # pictures at a time, at most
STEP_PX = 200  # longest side of a preparation step in a figure


class Prediction(NamedTuple):
    """The prediction for one image."""

    classes: list[str]  # names, the longest capsule's first
    lengths: list[float]  # of their capsules; probabilities for a network without capsules
    sse: float | None  # error of the winning capsule's reconstruction; None without a decoder
    unlike: bool | None  # outside the limits of 95 % of validation images; None: unknown
    reasons: list[str] = []  # of `detection.REASONS`


class Reading(NamedTuple):
    """The prediction for one picture file."""

    path: Path
    prediction: Prediction
    steps: dict  # name -> (h, w) or (h, w, 3): from the picture to its reconstruction, downsized
    pieces: int | None = None  # number of unconnected strokes; None if strokes were not separated


def predict(
    model: nn.Module, images: Tensor, classes: Sequence[str], *, top: int = 3, limits: Limits | None
) -> tuple[list[Prediction], Tensor | None]:
    """Predict classes, lengths and reconstruction errors of images (N, C, H, W) in [0, 1].

    A prediction names the `top` classes of an image. An image outside the `limits` is flagged as
    unlike the training data.

    Returns N predictions, and the winning capsules' reconstructions (N, C, H, W), or None without
    a decoder. NotFiniteError for infinite or NaN lengths.
    """
    if not 1 <= top <= len(classes):
        raise ValueError(f"expected 1 to {len(classes)} classes to name, got {top}")
    decoded = None
    if abilities(model).decodes:
        traced = trace(model, images, keep=("lengths", "reconstruction"))
        lengths, decoded = traced.require("lengths"), traced.require("reconstruction")
        errors = reconstruction_loss(traced.images, decoded).tolist()
        distances = distance_of(traced.images, decoded).tolist()
    else:
        lengths = scores(model, images)
        errors = distances = [None] * len(images)
    predictions = []
    for values, order, sse, distance in zip(*lengths.topk(top, 1), errors, distances, strict=True):
        reasons = [] if limits is None else limits.crossed(float(values[0]), distance)
        unlike, names = None if limits is None else bool(reasons), [classes[k] for k in order]
        predictions.append(Prediction(names, values.tolist(), sse, unlike, reasons))
    return predictions, decoded


def of_files(
    model,
    paths: Iterable[Path],
    *,
    top: int = 3,
    limits: Limits | None = None,
    invert: str = "auto",
    centre: bool | None = None,
    top_value: float | None = None,
    failed: Callable[[str], None],
) -> Iterator[Reading]:
    """Yield predictions for picture files in order, in batches, from a network with a card.

    `top` and `limits` are those of `predict`, `invert` and `centre` those of `pictures.prepare`.
    `top_value` is the largest value of pictures of more than 8 bits; None: that of the training
    data. `failed` is called with one line for each file that cannot be read.
    """
    frame = pictures.frame(model)
    frame = frame._replace(top=top_value or frame.top)
    classes = abilities(model).class_names or [str(k) for k in range(model.config["classes"])]
    size, waiting = min(BATCH, images_at_a_time(model)), []
    for path in paths:
        try:
            prepared = pictures.prepare(path, frame, invert, centre=centre)
            ink = prepared.steps.get("ink")
            pieces = None if ink is None else strokes.pieces(ink)
            small = {k: strokes.average(step, STEP_PX) for k, step in prepared.steps.items()}
            waiting.append((path, prepared.image, small, pieces))
        except ValueError as error:
            failed(" ".join(str(error).split()))
        if len(waiting) == size:
            yield from _batch(model, waiting, classes, top, limits)
            waiting = []
    if waiting:
        yield from _batch(model, waiting, classes, top, limits)


def _batch(model, waiting, classes, top, limits) -> Iterator[Reading]:
    images = torch.cat([image for _, image, *_ in waiting])
    predictions, decoded = predict(model, images, classes, top=top, limits=limits)
    for n, (path, _, steps, pieces) in enumerate(waiting):
        if decoded is not None:
            steps["reconstruction"] = decoded[n].permute(1, 2, 0).squeeze(2).numpy()
        yield Reading(path, predictions[n], steps, pieces)


def find(names: Sequence[str]) -> tuple[list[Path], list[str], Counter]:
    """Find the files for the paths, folders and glob patterns that a user named.

    A folder stands for all pictures in it and below, see `opening.listing`. A pattern (`*`, `?`,
    `[...]`, `**` for any depth) stands for all matching files and folders.

    Returns the files without duplicates, the names without a picture, and the numbers of other
    files in the folders, by suffix.
    """
    files: dict[Path, None] = {}  # in order, each once
    nothing, others = [], Counter[str]()
    for name in names:
        path = Path(name).expanduser()
        matches = [path]
        if glob.has_magic(name) and not path.exists():
            matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]
        own = []
        for match in matches:
            found, rest = opening.listing(match) if match.is_dir() else ([match], Counter())
            own += sorted(found)
            others += rest
        files |= dict.fromkeys(own)
        if not own:
            nothing.append(name)
    return list(files), nothing, others
