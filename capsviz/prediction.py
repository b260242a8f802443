"""What a network says of a user's pictures, file by file, and whether it knows their kind."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor, nn

from capsviz import data, detection, ink, pictures
from capsviz.augment import to_float
from capsviz.functional import reconstruction_loss
from capsviz.tracing import images_at_a_time, reconstructs, scores, trace

BATCH = 64  # pictures that are held at a time, at most
SHOWN_PX = 200  # longest side of the steps that are kept to be shown
DISTANCE = "reconstruction_distance"  # name of the threshold in a card


class Prediction(NamedTuple):
    """One image, as a network reads it."""

    classes: list[str]  # names, that of the longest capsule first
    lengths: list[float]  # of their capsules; probabilities, for a network without capsules
    sse: float | None  # to the winning capsule's reconstruction; None without a decoder
    unlike: bool | None  # farther from it than 95 % of validation images; None: not known


class Seen(NamedTuple):
    """One picture of a user."""

    path: Path
    prediction: Prediction
    steps: dict  # name -> (h, w) or (h, w, 3): from the picture to its reconstruction, made small


def predict(
    model: nn.Module, images: Tensor, classes: Sequence[str], *, top: int = 3, limit: float | None
) -> tuple[list[Prediction], Tensor | None]:
    """Classes, lengths and reconstruction error of images (N, C, H, W) in [0, 1].

    Parameters
    ----------
    classes  names of the network's J classes.
    top      how many of them to name for each image, 1 to J.
    limit    L2 distance above which an image is unlike the training data; None: not known.

    Returns
    -------
    N predictions, and the winning capsules' reconstructions (N, C, H, W), None without a decoder.

    Raises
    ------
    ValueError  for a `top` outside 1 to J, and for images that `trace` refuses.
    """
    if not 1 <= top <= len(classes):
        raise ValueError(f"expected 1 to {len(classes)} classes to name, got {top}")
    if reconstructs(model):
        seen = trace(model, images, keep=("lengths", "reconstruction"))
        lengths, made = seen.lengths, seen.reconstruction
        sse = reconstruction_loss(seen.images, made)
        far = detection.distance(seen.images, made)
    else:
        lengths, made = scores(model, images), None
    found = []
    for n, (values, order) in enumerate(zip(*lengths.topk(top, 1), strict=True)):
        found.append(
            Prediction(
                classes=[classes[k] for k in order],
                lengths=values.tolist(),
                sse=None if made is None else float(sse[n]),
                unlike=None if made is None or limit is None else bool(far[n] > limit),
            )
        )
    return found, made


def of_files(
    model: nn.Module,
    paths: Iterable[Path],
    *,
    top: int = 3,
    limit: float | None = None,
    invert: str = "auto",
    centre: bool | None = None,
    failed: Callable[[str], None],
) -> Iterator[Seen]:
    """What a network with a card says of picture files, in their order, a batch at a time.

    Parameters
    ----------
    top, limit  as `predict` takes them.
    invert      "yes", "no" or "auto", as `pictures.prepare` takes it.
    centre      whether ink is scaled and centred as MNIST's; None: if `pictures.Frame.centred`.
    failed      is given one line for each file that cannot be read; the others go on.
    """
    frame = pictures.frame(model)
    numbers = [str(k) for k in range(model.config["classes"])]
    classes = model.card["dataset"].get("classes", numbers)
    size, waiting = min(BATCH, images_at_a_time(model)), []
    for path in paths:
        try:
            prepared = pictures.prepare(path, frame, invert, centre=centre)
            small = {k: ink.average(step, SHOWN_PX) for k, step in prepared.steps.items()}
            waiting.append((path, prepared._replace(steps=small)))
        except ValueError as error:
            failed(" ".join(str(error).split()))
        if len(waiting) == size:
            yield from _batch(model, waiting, classes, top, limit)
            waiting = []
    if waiting:
        yield from _batch(model, waiting, classes, top, limit)


def _batch(model, waiting, classes, top, limit) -> Iterator[Seen]:
    images = torch.cat([prepared.image for _, prepared in waiting])
    found, made = predict(model, images, classes, top=top, limit=limit)
    for n, (path, prepared) in enumerate(waiting):
        steps = dict(prepared.steps)
        if made is not None:
            steps["reconstruction"] = made[n].permute(1, 2, 0).squeeze(2).numpy()
        yield Seen(path, found[n], steps)


def find(given: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Files for the paths, folders and patterns that a user gave.

    A folder stands for all pictures in it and below, by their endings; hidden ones are left out. A
    pattern (`*`, `?`, `[...]`, `**` for any depth) stands for the files and folders that match.

    Returns
    -------
    The files, each once, those of a folder or pattern sorted; and what stands for no file.
    """
    files, nothing = {}, []
    for text in given:
        path = Path(text).expanduser()
        matched = [path]
        if glob.has_magic(text) and not path.exists():
            matched = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]
        here = [file for one in matched for file in (_below(one) if one.is_dir() else [one])]
        files |= dict.fromkeys(here)
        if not here:
            nothing.append(text)
    return list(files), nothing


def _below(folder: Path) -> list[Path]:
    known = Image.registered_extensions()  # PDF among them, which can be written alone
    endings = {ending for ending, kind in known.items() if kind in Image.OPEN}
    below = (p for p in folder.rglob("*") if p.suffix.lower() in endings and p.is_file())
    return sorted(
        p for p in below if not any(n.startswith(".") for n in p.relative_to(folder).parts)
    )


def thresholds(model: nn.Module, validation: data.Dataset, *, progress=iter) -> dict:
    """The part of a card that says which images are unlike the training data.

    Parameters
    ----------
    validation  its split; all of it is looked at.

    Returns
    -------
    Name -> value, percentile of the validation images, and their number. Empty for a network
    without reconstructions, or for images that show several things each.
    """
    if not reconstructs(model) or validation.parts is not None:
        return {}
    far = []
    for batch in progress(validation.images.split(images_at_a_time(model))):
        images = to_float(batch)
        seen = trace(model, images, keep=("reconstruction",))
        far.append(detection.distance(images, seen.reconstruction))
    found = {
        "value": detection.threshold(torch.cat(far).numpy()),
        "percentile": detection.PERCENTILE,
        "split": validation.split,
        "n": len(validation),
    }
    return {DISTANCE: found}


def threshold(model: nn.Module) -> tuple[float | None, str | None]:
    """The distance above which an image is unlike a network's training data.

    From its card; without it there, from the validation images, if they are at hand.

    Returns
    -------
    The distance, or None and the reason why it is not known.
    """
    if not reconstructs(model):
        return None, "this network reconstructs no images"
    stored: Mapping = model.card.get("thresholds", {})
    if DISTANCE not in stored:
        try:
            stored = thresholds(model, data.here(model.card["dataset"], "validation"))
        except (FileNotFoundError, ValueError) as error:
            return None, f"the card has no threshold, and there are no validation images: {error}"
    if DISTANCE not in stored:
        return None, "its images show several things each"
    return float(stored[DISTANCE]["value"]), None
