"""What the page looks at: a capsule network, another network beside it, and test images."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from capsviz import data, pictures, tracing
from capsviz.explorer import look
from capsviz.inputs.opening import Inputs
from capsviz.statistics.detection import Limits
from capsviz.transforms.augment import to_float


@functools.lru_cache(maxsize=8)
def scale(model) -> str:
    """What the scores of a network are, e.g. "capsule length"."""
    return tracing.score_name(model)


class About(NamedTuple):
    """What can be set in a capsule network."""

    iterations: int  # of routing
    types: int  # of capsules, that can be switched off; 0: they lie at no places
    dimensions: int  # E, of a class's pose


@dataclass(frozen=True)
class Networks:
    """Two side by side, for everyone who has the page open; nothing in it changes but `effects`."""

    model: Any  # a capsule network, with its card
    other: Any  # any network for the same images, likewise
    classes: tuple[str, ...]
    dataset: data.Dataset  # test images to choose from
    names: tuple[str, str]  # of both, as they are chosen by
    notice: str | None = None  # what must be said of them
    limits: Limits | None = None  # beyond which an image is unlike the training data
    effects: dict = field(default_factory=dict, repr=False)  # of `files.effects`, by class
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def inputs(self) -> Inputs:
        """The first network with the test images, as a command has them."""
        return Inputs(self.model, self.dataset, self.names[0], alias=self.names[0])

    @property
    def frame(self) -> pictures.Frame:
        """What the images are that both take."""
        return pictures.frame(self.model)

    @functools.cached_property
    def about(self) -> About:
        """What controls must know of the first network; looked at once."""
        trace = look.look(self.model, self.test_image(0, 0))
        return About(len(trace.couplings), look.types_of(self.model), trace.poses.shape[1])

    def test_image(self, label: int, index: int) -> Tensor:
        """The index-th test image of a class, (1, C, H, W) in [0, 1]; ValueError for none."""
        return to_float(self.dataset.nth_of_class(int(label), int(index))[0])


def test_images(model, data_dir) -> tuple[data.Dataset, str | None]:
    """Test images of what a network was trained on, or the embedded digits; and what to say."""
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
