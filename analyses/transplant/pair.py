"""Two images, each with the couplings of the other."""

from __future__ import annotations

from capsviz.analyses.transplant.results import Result
from capsviz.inputs.samples import beside


def compute(model, images, labels=(None, None), *, classes, iterations=None, seed=0) -> Result:
    """Exchange the couplings of two images (2, C, H, W).

    Parameters
    ----------
    labels      true classes, where they are known.
    classes     names of the classes.
    iterations  of routing, instead of the network's own.
    seed        of the shuffle.

    Raises
    ------
    ValueError  for another number of images, or a network whose couplings cannot be replaced.
    """
    from capsviz.analyses.transplant import measure
    from capsviz.transforms.augment import to_uint8

    pair = measure.exchange(model, images.cpu(), iterations=iterations, seed=seed)
    return Result(
        images=to_uint8(images.cpu()),
        labels=list(labels),
        read=pair.read.numpy(),
        conditions=list(pair.conditions),
        activations=pair.activations.numpy(),
        decoded=None if pair.decoded is None else to_uint8(pair.decoded),
        means=pair.own.mean(1).numpy(),
        maps=None if pair.maps is None else pair.maps.numpy(),
        coupling_sd=pair.coupling_sd.numpy(),
        even=float(pair.even.mean()),
        classes=list(classes),
        given=measure.given(model),
        iterations=iterations,
    )


def of_two(inputs, picture, donor: int, index: int, seed: int, iterations=None) -> Result:
    """`compute` for a picture and an image of the data set."""
    images = beside(inputs, picture, donor, index, "another one (--donor, --donor-index)")
    labels, classes = (picture.label, donor), inputs.dataset.classes
    chosen = {"iterations": iterations, "seed": seed}
    return compute(inputs.model, images, labels, classes=classes, **chosen)
