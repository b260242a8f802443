"""What `probes` is shown: pictures, images to measure and to fit on, networks to compare with."""

from __future__ import annotations

from capsviz.inputs.samples import beside

LEAST = 8  # images of a class to fit on
NO_DECODER = "this network has no decoder: cycle and paths are left out"


def require_drawings(model) -> None:
    """ValueError for a network whose poses cannot be drawn."""
    from capsviz.tracing import reconstructs

    if not reconstructs(model):
        raise ValueError(
            "this network has no decoder, so no path can be drawn: --n N probes its poses"
        )


def check(dataset, n: int, *, fit: int, shift_px: int, seeds: int) -> None:
    """ValueError for numbers that make no sense, before anything is computed."""
    if n < 2:
        raise ValueError(f"expected at least 2 images for an interval, got --n {n}")
    if fit < LEAST:
        raise ValueError(f"expected at least {LEAST} images of a class to fit on, got --fit {fit}")
    side = min(dataset.image_shape[1:])
    if not 0 <= shift_px < side:
        raise ValueError(f"expected a shift of 0 to {side - 1} px, got --shift-px {shift_px}")
    if seeds < 0:
        raise ValueError(f"expected 0 seeds of fresh networks or more, got --seeds {seeds}")


def pair(inputs, picture, other_index: int | None, *, index: int | None = None):
    """A picture and another image of its class: their file stem, images and labels.

    Parameters
    ----------
    other_index  which image of the class; None: the one after `index`, or after the picture's own.
    """
    from capsviz.tracing import scores

    label = picture.label
    if label is None:
        label = int(scores(inputs.model, picture.image).argmax())
    if other_index is None:
        other_index = _next(inputs, picture, index)
    images = beside(inputs, picture, label, other_index, "another one (--other-index)")
    return f"probes-{picture.name}-to-{other_index}", images, (picture.label, label)


def _next(inputs, picture, index: int | None) -> int:
    """The image after a picture of the data set, or before it where that is the last."""
    if picture.label is None:
        return 0
    if index is None:
        index = int(picture.name.rpartition("-")[2])
    return index + 1 if index + 1 < int((inputs.dataset.labels == picture.label).sum()) else 0


def material(inputs, n: int, fit: int) -> dict:
    """What `evaluate` takes of a network and its data: n images, others to fit on, baselines."""
    from capsviz.inputs.networks import with_baselines
    from capsviz.inputs.samples import training_images

    images, _ = inputs.images(n)
    others = with_baselines(inputs)[1:]
    return {
        "images": images,
        "name": inputs.name,
        "dataset": inputs.dataset.name,
        "baselines": {one.name: one.model for one in others},
        "fit": fit,
        **training_images(inputs, fit),
    }
