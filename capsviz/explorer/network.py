"""What the page looks at: a capsule network, another network beside it, and test images."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor, nn

from capsviz import checkpoint, data, pictures
from capsviz.cli.inputs import Inputs, check_fit, choose_device
from capsviz.statistics.detection import Limits
from capsviz.training import thresholds
from capsviz.transforms.augment import to_float

CHECKPOINTS = ("mnist", "mnist-resnet")


@dataclass(frozen=True)
class Networks:
    """Opened once, for everyone who has the page open; nothing in it changes but `effects`."""

    model: nn.Module  # a capsule network
    other: nn.Module  # any network for the same images
    classes: tuple[str, ...]
    dataset: data.Dataset  # test images to choose from
    notice: str | None = None  # what must be said of them
    limits: Limits | None = None  # beyond which an image is unlike the training data
    effects: dict = field(default_factory=dict, repr=False)  # of `files.effects`, by class
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def inputs(self) -> Inputs:
        """The first network with the test images, as a command has them."""
        return Inputs(self.model, self.dataset, self.names[0])

    @property
    def names(self) -> tuple[str, str]:
        """Of the two networks, from their cards."""
        return tuple(one.card.get("name", "unnamed") for one in (self.model, self.other))

    @property
    def frame(self) -> pictures.Frame:
        """What the images are that both take."""
        return pictures.frame(self.model)

    def test_image(self, label: int, index: int) -> Tensor:
        """The index-th test image of a class, (1, C, H, W) in [0, 1]; ValueError for none."""
        return to_float(self.dataset.nth_of_class(int(label), int(index))[0])


def open_networks(
    first: str = CHECKPOINTS[0],
    other: str = CHECKPOINTS[1],
    *,
    data_dir: str | Path | None = None,
    device: str = "auto",
) -> Networks:
    """Open two checkpoints and the test images of the first one's data set.

    Nothing is downloaded. Where the data set is not here, the embedded digits take its place if the
    networks take them.

    Raises
    ------
    ValueError         if the first has no capsules, or the second is for other images or classes.
    FileNotFoundError  if there are no test images that fit.
    """
    place = choose_device(device)
    model, beside = (checkpoint.load(name, device=place) for name in (first, other))
    if not hasattr(model, "look"):
        raise ValueError(
            f"'{first}' has no capsules to explore: expected a capsule network, "
            "and the other one by --compare"
        )
    part, notice = _test_images(model, data_dir)
    for one in (model, beside):
        check_fit(one, part)
    return Networks(model, beside, part.classes, part, notice, thresholds.limits(model)[0])


def _test_images(model: nn.Module, data_dir) -> tuple[data.Dataset, str | None]:
    trained_on = model.card["dataset"]
    try:
        part = data.here(trained_on, "test", data_dir).single()
        return part, part.notice
    except FileNotFoundError as error:
        embedded = data.load(data.FALLBACK, "test")
        if data_dir is not None or embedded.image_shape != tuple(model.config["image_shape"]):
            raise
        return embedded, (
            f"Test images are the embedded '{data.FALLBACK}', not those of "
            f"{trained_on['name']}: {error}"
        )
