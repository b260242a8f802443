"""The networks that can be chosen on the page, and the pair that a visitor explores."""

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from capsviz import checkpoint as checkpoints
from capsviz import data, pictures, tracing
from capsviz.explorer import look
from capsviz.inputs import opening
from capsviz.inputs.opening import Inputs
from capsviz.statistics.detection import Limits
from capsviz.tracing import needs
from capsviz.training import thresholds
from capsviz.transforms.augment import to_float

BESIDE = "mnist-resnet", "digits-self-attention"  # preferred second networks, by training data
NEEDS = ("votes", "couplings", "poses")  # required of the first network
DIMENSIONS = 16  # of a class capsule's pose in most networks


class About(NamedTuple):
    """The settings that a capsule network offers."""

    iterations: int  # of routing
    types: int  # number of capsule types that can be switched off
    dimensions: int  # E, of a class capsule's pose
    starts_uniform: bool  # one iteration is the same as uniform couplings


@dataclass(frozen=True)
class Networks:
    """A pair of networks, shared by all visitors who chose it."""

    model: Any  # a capsule network, with its card
    other: Any  # any network for the same images, with its card
    dataset: data.Dataset  # test images to choose from
    names: tuple[str, str]  # of both networks on the page
    limits: Limits | None = None  # beyond which an image is flagged as unlike the training data
    data_dir: str | Path | None = None  # folder of the data set

    @property
    def inputs(self) -> Inputs:
        """The first network with the test images, as input of an analysis."""
        name = self.names[0]
        return Inputs(self.model, self.dataset, name, data_dir=self.data_dir, alias=name)

    @property
    def frame(self) -> pictures.Frame:
        """The image format of both networks."""
        return pictures.frame(self.model)

    @functools.cached_property
    def about(self) -> About:
        """The settings that the first network offers; found by passing one image through it."""
        model, image = self.model, self.test_image(0, 0)
        trace, same = look.look(model, image), look.starts_uniform(model, image)
        return About(len(trace.couplings), look.types_of(model), trace.poses.shape[1], same)

    def test_image(self, label: int, index: int) -> Tensor:
        """Return the index-th test image of a class, (1, C, H, W) in [0, 1].

        ValueError for an image that does not exist.
        """
        return to_float(self.dataset.nth_of_class(int(label), int(index))[0])


class Choice:
    """Networks for the same images and classes, by name; each is opened when first chosen.

    All visitors share one object. The page starts with the networks named `first` and `beside`.
    """

    def __init__(self, inputs: Inputs):
        self.dataset, self.notice = inputs.dataset.single(), inputs.notice
        self.device, self.data_dir = inputs.device, inputs.data_dir
        self.first = self.beside = ""
        self.capsule_names: list[str] = []  # of the networks with capsules
        self.dimensions = DIMENSIONS  # E, the largest of any network
        self._sources: dict[str, Any] = {}  # open networks, or names of shipped ones
        self._pairs: dict[tuple[str, str], Networks] = {}
        self._limits = functools.cache(thresholds.limits)  # may take seconds
        self._lock = threading.Lock()

    @property
    def names(self) -> list[str]:
        """Names of all networks, in the order in which they were added."""
        return list(self._sources)

    def add(self, model, name: str) -> str:
        """Add an open network, and return its name on the page.

        ValueError for a network for other images or classes.
        """
        opening.check_fit(model, self.dataset)
        free, number = name, 2
        while free in self._sources:
            free, number = f"{name} ({number})", number + 1
        if tracing.abilities(model).has_capsules:
            needs.require(model, NEEDS, "capsviz explore")
            poses = look.look(model, to_float(self.dataset.images[:1])).poses
            self.dimensions = max(self.dimensions, poses.shape[1])
            self.capsule_names.append(free)
        self._sources[free] = model
        return free

    def add_shipped(self) -> None:
        """Add the shipped networks for the same images and classes, unopened."""
        classes = list(self.dataset.classes)
        wanted = self.dataset.image_shape, len(classes), classes
        for name in checkpoints.shipped():
            card = checkpoints.read_card(checkpoints.find(name))
            config, named = card["model"]["config"], card["dataset"].get("classes", classes)
            takes = tuple(config["image_shape"]), config["classes"], named
            if takes == wanted and name not in self._sources:
                self._sources[name] = name
                self.dimensions = max(self.dimensions, config.get("class_dimensions", 0))
                self.capsule_names += [name] if "routing" in config else []

    def pair(self, first: str, beside: str) -> Networks:
        """Return two networks by their names.

        ValueError for an unknown name, or a first network without capsules.
        """
        names = first, beside
        for name in names:
            if name not in self._sources:
                raise ValueError(f"there is no network '{name}' here: {', '.join(self.names)}")
        if first not in self.capsule_names:
            raise ValueError(f"'{first}' has no capsules: choose it as the second network")
        with self._lock:
            if names not in self._pairs:
                model, other = map(self._open, names)
                limits = self._limits(model)[0]
                self._pairs[names] = Networks(
                    model, other, self.dataset, names, limits, self.data_dir
                )
            return self._pairs[names]

    def _open(self, name: str):
        source = self._sources[name]
        if isinstance(source, str):
            source = checkpoints.load(source, device=self.device)
            opening.check_fit(source, self.dataset)
            self._sources[name] = source
        return source


def open_choice(
    checkpoint: str | None = None,
    compare: str | None = None,
    *,
    network: Sequence[str] = (),
    weights: Sequence[str | Path] = (),
    dataset: str | None = None,
    data_dir: str | Path | None = None,
    device: str = "auto",
) -> Choice:
    """Open the named networks, and offer all shipped ones for the same images.

    The first network is `checkpoint`, otherwise the first of `network`, otherwise the default of
    all commands. The second is `compare`, otherwise the next of `network`, otherwise a shipped one
    that was trained on the same data (those in `BESIDE` come first), otherwise any that fits. Test
    images are those of the checkpoint, or of `dataset` for user-defined networks.

    Raises
    ------
    ValueError         if the first network has no capsules, or another one is for other images or
                       classes.
    FileNotFoundError  if there are no test images that fit.
    """
    if len(weights) > len(network):
        raise ValueError("--weights are those of --network FILE.py:FUNCTION: name one for each")
    if dataset is not None and (checkpoint is not None or not network):
        raise ValueError("--dataset: only where the first network is your own, by --network")
    own = list(zip_longest(network, weights))
    spec, file = own.pop(0) if own and checkpoint is None else (None, None)
    named: dict[str, Any] = {"checkpoint": checkpoint, "network": spec, "weights": file}
    try:
        inputs = opening.open_inputs(**named, dataset=dataset, data_dir=data_dir, device=device)
    except FileNotFoundError as error:
        if checkpoint is None or data_dir is not None:
            raise
        inputs = opening.open_inputs(**named, dataset=data.FALLBACK, device=device)
        inputs = replace(inputs, notice=f"Test images are the embedded '{data.FALLBACK}': {error}")
    if not tracing.abilities(inputs.model).has_capsules:
        raise ValueError(
            f"'{checkpoint}' has no capsules to explore: expected a capsule network, and the other "
            "one by --compare"
        )
    choice = Choice(inputs)
    opened = [(inputs.model, checkpoint or inputs.name)]
    if compare is not None:
        opened.append((checkpoints.load(compare, device=inputs.device), compare))
    for spec, file in own:
        model = opening.own_network(spec, file, choice.dataset, device=inputs.device)
        opened.append((model, model.card["name"]))
    models, sources = zip(*opened, strict=True)
    cards = [model.card.get("name", "unnamed") for model in models]
    names = opening.apart_from_shipped(cards, sources)
    added = [choice.add(model, name) for model, name in zip(models, names, strict=True)]
    choice.add_shipped()
    others = [name for name in (*BESIDE, *choice.names) if name in choice.names[1:]]
    others.sort(key=lambda name: not name.startswith(inputs.model.card["dataset"]["name"]))
    choice.first, choice.beside = added[0], [*added[1:], *others, added[0]][0]
    return choice
