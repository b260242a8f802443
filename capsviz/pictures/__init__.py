"""Prepare a user's own picture in the same way as a network's training data."""

import os
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from capsviz.pictures import strokes
from capsviz.pictures.opening import cover, load
from capsviz.tracing import abilities
from capsviz.tracing.needs import require

OWN = ("folder", "arrays")  # loaders of users' own data
LONGEST = 800  # pixels; longer pictures are downsampled to less than twice this


class Frame(NamedTuple):
    """How a network's input is made of a whole picture: size, padding and centre crop."""

    whole: tuple[int, int, int]  # (C, H, W)
    pad_px: int = 0  # rows and columns of zeros on each side
    crop_px: int | None = None  # side of the centre square; None: no crop
    folders: bool = False  # whether it was trained on a user's own data, see `opening.cover`
    top: float = 0  # largest value of grey pictures of more than 8 bits; 0: that of their type
    digits: bool = True  # whether its classes are digits or unknown

    @property
    def centred(self) -> bool:
        """Return whether strokes are scaled and centred, as for MNIST's digits."""
        return self.whole == (1, 28, 28) and self.digits and not self.folders

    def apply(self, whole: np.ndarray) -> np.ndarray:
        """Pad and crop a whole picture (H, W) or (H, W, C)."""
        px = self.pad_px
        padded = np.pad(whole, ((px, px), (px, px), *((0, 0),) * (whole.ndim - 2)))
        if self.crop_px is None:
            return padded
        top, left = ((side - self.crop_px) // 2 for side in padded.shape[:2])
        return padded[top : top + self.crop_px, left : left + self.crop_px]


def frame(model) -> Frame:
    """Return the frame of a network from its card, or else from its image shape."""
    able = abilities(model)
    require(model, ("images",), "a picture")
    if able.image_shape is None:
        raise ValueError(
            f"a {type(model).__name__} does not say the shape of its images: wrap it by "
            "capsviz.wrap(network, image_shape, classes)"
        )
    about = able.card.get("dataset", {})
    own, (C, H, W) = about.get("options", {}), about.get("whole", able.image_shape)
    px = own.get("pad_px", 0)
    folders = about.get("name") in OWN
    whole = (C, H - 2 * px, W - 2 * px)
    digits = {name.partition(" ")[0] for name in able.class_names or ()} <= set("0123456789")
    return Frame(whole, px, own.get("crop_px"), folders, own.get("range", 0), digits)


def open_image(
    path: str | os.PathLike[str], model: nn.Module | None = None, *, invert: str = "auto"
) -> Tensor:
    """Open your own picture as input for a network: (1, C, H, W) float32 in [0, 1].

    Parameters
    ----------
    path    a drawing, scan or photograph, in any format that Pillow reads.
    model   the network that it is for; None: one for MNIST's digits, (1, 28, 28).
    invert  whether to invert grey values: "yes", "no", or "auto" to invert dark strokes on a light
            background; for networks of grey images only.

    Raises
    ------
    ValueError  if the file is not a picture, or too small, too large or empty, or if the network's
                image shape is unknown.
    TypeError   for an array.
    """
    own = Frame((1, 28, 28)) if model is None else frame(model)
    return prepare(path, own, invert).image


class Prepared(NamedTuple):
    """A picture prepared as network input, and the steps of its preparation."""

    image: Tensor  # (1, C, H, W) float32 in [0, 1]
    steps: dict[str, np.ndarray]  # by name, (h, w) or (h, w, 3) in [0, 1]; the network's input last


def prepare(
    path: str | os.PathLike, frame: Frame, invert: str = "auto", *, centre: bool | None = None
) -> Prepared:
    """Read a picture and prepare it in the same way as a network's training data.

    Networks of digits get strokes in MNIST's style (`pictures.strokes`). Networks trained on users'
    own data get the picture as `opening.cover` makes it. For others it is resized to `frame.whole`;
    a transparent background becomes black behind bright strokes and white behind dark ones.

    Parameters
    ----------
    invert  as for `open_image`; "auto" never inverts for networks trained on users' own data.
    centre  whether to find, scale and centre the strokes of grey pictures; None: `frame.centred`.

    ValueError for files that are not pictures, and too small, too large or empty ones.
    """
    channels, height, width = frame.whole
    size = (height, width)
    if channels not in (1, 3):
        raise ValueError(f"the network takes {channels} channels, a picture has 1 or 3")
    if channels == 3 and (invert == "yes" or centre):
        raise ValueError("invert and centre are for networks of grey images: leave them out")
    as_folders = frame.folders and not (centre and channels == 1)
    longest = None if as_folders else LONGEST
    pixels = load(path, longest, alike=as_folders, top=frame.top)
    try:
        if as_folders:
            steps = _folder_steps(pixels, cover(pixels, size, channels), invert)
        elif channels == 3:
            steps = {"original": pixels, "input": _resize(pixels, *size)}
        elif frame.centred if centre is None else centre:
            steps = strokes.mnist_style(pixels, invert=invert, size=size)
        else:
            grey = strokes.to_grey(pixels)
            bright = 1 - grey if strokes.is_dark_on_light(grey, invert) else grey
            resized = _resize(bright[..., None], *size)[..., 0]
            steps = {"grey": grey, "inverted": bright, "input": resized}
    except ValueError as error:
        raise ValueError(f"'{path}': {error}") from error
    steps["input"] = frame.apply(steps["input"])
    planes = np.atleast_3d(steps["input"]).transpose(2, 0, 1)
    image = torch.from_numpy(np.ascontiguousarray(planes, np.float32))
    return Prepared(image[None].clamp(0, 1), steps)


def _folder_steps(pixels: np.ndarray, covered: Tensor, invert: str) -> dict[str, np.ndarray]:
    """Return the steps of `prepare` for `covered`, the result of `cover` (C, H, W) uint8."""
    planes = covered.permute(1, 2, 0).numpy() / np.float32(255)
    if len(covered) == 3:
        return {"original": pixels, "input": planes}
    grey, plane = strokes.to_grey(pixels), planes[..., 0]
    if invert == "auto" or not strokes.is_dark_on_light(grey, invert):
        return {"grey": grey, "input": plane}
    return {"grey": grey, "inverted": 1 - grey, "input": 1 - plane}


def _resize(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resize (h, w, C) to (height, width, C), with antialiasing."""
    planes = torch.from_numpy(np.ascontiguousarray(pixels, np.float32)).permute(2, 0, 1)[None]
    small = interpolate(planes, (height, width), mode="bilinear", antialias=True)
    return small[0].permute(1, 2, 0).numpy()
