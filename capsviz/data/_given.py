"""Convert images and labels from common formats to those of a `Dataset`."""

from collections.abc import Iterable, Mapping
from math import isqrt

import numpy as np
import torch
from torch import Tensor

from capsviz.pictures.opening import natural

KEYS = (("image", "img", "pixel_values", "x"), ("label", "target", "y"))  # if items are dicts
COLOURS = (1, 3, 4)  # numbers of channels by which a last axis of channels is recognised


def pairs(source) -> tuple[list, list]:
    """Return images and labels of a torch Dataset or another sequence of (image, label).

    Items may be dicts {"image": ..., "label": ...}, as in data sets of Hugging Face.
    """
    try:
        images, labels = zip(*(_pair(source[k]) for k in range(len(source))), strict=True)
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"a {type(source).__name__} without labels: expected images and labels, or a torch "
            f"Dataset of (image, label) ({error})"
        ) from error
    return list(images), list(labels)


def _pair(item):
    if not isinstance(item, Mapping):
        return item
    found = [[key for key in names if key in item] for names in KEYS]
    if not all(found):
        raise LookupError(f"an item with the keys {', '.join(map(str, item))}")
    return tuple(item[keys[0]] for keys in found)


def pixels(given) -> Tensor:
    """Convert images to uint8 (N, C, H, W).

    Shapes: (N, H, W); (N, C, H, W); (N, H, W, C) with 1, 3 or 4 channels, or with H equal to W but
    not to C; flattened squares (N, H * W). Values: integers from 0 to 255, or all in [0, 1]
    (floats, bool, masks). A uint8 tensor (N, C, H, W) is returned unchanged. ValueError for
    anything else.
    """
    if isinstance(given, Tensor) and given.dtype == torch.uint8 and given.dim() == 4:
        array = given
    else:
        array = torch.from_numpy(_bytes(as_array(given, "images")))
    shape = tuple(array.shape)
    if array.dim() == 2 and isqrt(shape[1]) ** 2 == shape[1]:
        return array.view(len(array), 1, isqrt(shape[1]), -1)
    if array.dim() == 3:
        return array[:, None]
    last = array.dim() == 4 and (shape[3] in COLOURS or shape[1] == shape[2] != shape[3])
    if last and not 1 <= shape[1] <= 4:
        return array.permute(0, 3, 1, 2).contiguous()
    if array.dim() != 4:
        raise ValueError(
            f"images of shape {shape}: expected (N, H, W), (N, C, H, W), (N, H, W, C), or squares "
            "(N, H * W); give the shape of the rows of a table by shape=, such as 8x8x3 or 3x8x8 "
            "(--data-option); data that are no images need Dataset(..., inputs=True)"
        )
    return array


def numbers(given, classes, several: bool = False) -> tuple[Tensor, tuple[str, ...]]:
    """Convert labels to int64 (N,), or (N, K) if `several`; return them and the class names.

    Labels are integers (of any type), bool, class names, (N, 1) or one-hot (N, J). `classes` are
    the names or their number; None: the labels that occur, in natural order. ValueError for
    anything else.
    """
    array = as_array(given, "labels")
    if array.ndim == 2 and not several:
        if array.shape[1] > 1:
            if not (np.isin(array, (0, 1)).all() and (array.sum(1) == 1).all()):
                raise ValueError(
                    f"labels of shape {array.shape}: expected one class per image, (N,), "
                    "(N, 1), or one-hot"
                )
            classes = array.shape[1] if classes is None else classes
            array = array.argmax(1)
        array = array.reshape(-1)
    if array.ndim != 1 + several:
        raise ValueError(f"labels must be (N,), with parts (N, K), got {array.shape}")
    if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.rint(array))).all():
        raise ValueError("labels must be whole numbers or names, got fractions or NaN")
    named = array.dtype.kind not in "biuf"
    if named and not np.char.str_len(array.astype(str)).all():
        raise ValueError("labels must be whole numbers or names, got empty ones")
    array = array.astype(str) if named else array.astype(np.int64)
    if isinstance(classes, np.ndarray):
        classes = classes.astype(str).ravel().tolist() if classes.ndim else classes.item()
    if isinstance(classes, int | np.integer):
        classes = range(classes)
    if classes is None or named:
        occurring, places = np.unique(array, return_inverse=True)
        texts = [str(one) for one in occurring.tolist()]
        ordered = sorted(texts, key=natural) if named else texts  # numbers: np.unique sorted them
        known = ordered if classes is None else list(map(str, classes))
        if classes is not None and (unknown := sorted(set(texts) - set(known))):
            raise ValueError(f"unknown class {', '.join(unknown[:3])}, expected {known[:10]}")
        array = np.array([known.index(text) for text in texts], np.int64)[places]
        classes = known
    names = tuple(map(str, classes))
    if len(set(names)) < len(names):
        raise ValueError(f"expected different names of classes, got {', '.join(names[:10])}")
    if array.size and not 0 <= array.min() <= array.max() < len(names):
        raise ValueError(
            f"labels of {len(names)} classes must be 0 to {len(names) - 1}, got {array.min()} to "
            f"{array.max()}"
        )
    return torch.from_numpy(array), names


def as_array(given, what: str) -> np.ndarray:
    """Convert a tensor, an array or a list of these to one array; ValueError for unequal shapes."""
    if isinstance(given, Tensor):
        given = given.detach().cpu()
        return (given.float() if given.dtype == torch.bfloat16 else given).numpy()
    if isinstance(given, Iterable) and not isinstance(given, np.ndarray):
        each = [_as_one(one, what) for one in given]
        if len(shapes := {one.shape for one in each}) > 1:
            two = " and ".join(map(str, sorted(shapes)[:2]))
            raise ValueError(f"{what} of different shapes, {two}: resize them first")
        given = np.stack(each) if each else np.empty(0)
    array = np.asarray(given)
    if array.dtype == object and all(isinstance(one, str) for one in array.flat):
        array = array.astype(str)
    if array.dtype.kind not in ("biufUS" if what == "labels" else "biuf") or array.ndim == 0:
        raise ValueError(f"{what} must be numbers, got {array.dtype} of shape {array.shape}")
    return array


def _as_one(one, what: str) -> np.ndarray:
    if getattr(one, "mode", None) == "P":  # a PIL image with a palette
        one = one.convert("RGB")
    return as_array(one, what) if isinstance(one, Tensor) else np.asarray(one)


def _bytes(array: np.ndarray) -> np.ndarray:
    """Convert values to uint8; ValueError unless they are integers in 0 ... 255 or in [0, 1]."""
    if array.size == 0:
        return array.astype(np.uint8)
    low, high = array.min(), array.max()
    if 0 <= low <= high <= 1:
        return np.rint(array * np.uint8(255)).astype(np.uint8, order="C")
    if 0 <= low <= high <= 255 and (array.dtype.kind != "f" or (array == np.rint(array)).all()):
        return array.astype(np.uint8, order="C")
    advice = "divide them by their largest possible value (on the command line --range)"
    if low < 0:
        advice = "undo the normalisation, or shift the lowest value to 0; data that are no images "
        advice += "need Dataset(..., inputs=True)"
    raise ValueError(
        f"images of {array.dtype} from {low:g} to {high:g}: expected fractions from 0 to 1, or "
        f"whole numbers from 0 to 255; {advice}"
    )
