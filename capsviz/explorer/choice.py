"""The networks that a visitor can choose from, each opened when it is first chosen."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from capsviz import checkpoint as checkpoints
from capsviz import data, tracing
from capsviz.explorer.network import Networks, test_images
from capsviz.inputs.fit import check_fit
from capsviz.inputs.networks import apart_from_shipped
from capsviz.inputs.opening import choose_device, open_inputs, own_network
from capsviz.tracing import needs
from capsviz.training import thresholds
from capsviz.transforms.augment import to_float

FIRST, BESIDE = "mnist", "mnist-resnet"
NEEDS = ("votes", "couplings", "poses")  # of the first network
DIMENSIONS = 16  # of a class's pose, in most networks


class Choice:
    """Networks for the same images and classes, by name; shared by all visitors.

    `first` and `beside` are the names of those that the page begins with.
    """

    def __init__(self, part: data.Dataset, notice: str | None, device):
        self.dataset, self.notice, self.device = part, notice, device
        self.first = self.beside = ""
        self._sources: dict[str, Any] = {}  # networks, or names to open
        self._capsules: dict[str, bool] = {}
        self._dimensions = [DIMENSIONS]
        self._pairs: dict[tuple[str, str], Networks] = {}
        self._firsts: dict[str, dict] = {}
        self._lock = threading.Lock()

    @property
    def names(self) -> list[str]:
        """Of all networks, in the order they were added."""
        return list(self._sources)

    @property
    def capsule_names(self) -> list[str]:
        """Of those with capsules, which can be looked into."""
        return [name for name in self._sources if self._capsules[name]]

    @property
    def dimensions(self) -> int:
        """E, of the largest pose of a class in any network, as far as is known."""
        return max(self._dimensions)

    def add(self, model, name: str | None = None) -> str:
        """Add a network that is open, by its card's name where none is given; its name here.

        ValueError for other images or classes.
        """
        check_fit(model, self.dataset)
        name = self._free(name or model.card.get("name", "unnamed"))
        capsules = tracing.abilities(model).has_capsules
        self._sources[name], self._capsules[name] = model, capsules
        if capsules:
            needs.require(model, NEEDS, "capsviz explore")
            image = to_float(self.dataset.images[:1])
            poses = tracing.trace(model, image, keep=("poses",)).poses
            assert poses is not None  # they are needed
            self._dimensions.append(poses.shape[-1])
        return name

    def add_shipped(self) -> None:
        """Add the shipped networks for the same images and classes, unopened."""
        for name in checkpoints.shipped():
            card = checkpoints.read_card(checkpoints.find(name))
            config = card["model"]["config"]
            shape, count = tuple(config["image_shape"]), config["classes"]
            named = card["dataset"].get("classes", list(self.dataset.classes))
            fits = shape == self.dataset.image_shape and count == len(self.dataset.classes)
            if fits and named == list(self.dataset.classes) and name not in self._sources:
                self._sources[name], self._capsules[name] = name, "routing" in config
                self._dimensions.append(config.get("class_dimensions", 0))

    def pair(self, first: str, beside: str) -> Networks:
        """Two networks side by side; ValueError for a name that is not here, or no capsules."""
        for name in (first, beside):
            if name not in self._sources:
                raise ValueError(f"there is no network '{name}' here: {', '.join(self.names)}")
        if not self._capsules[first]:
            raise ValueError(
                f"'{first}' has no capsules to look into: choose it beside, as the second network"
            )
        with self._lock:
            if (first, beside) not in self._pairs:
                model = self._open(first)
                if first not in self._firsts:
                    limits = thresholds.limits(model)[0]
                    self._firsts[first] = {
                        "limits": limits, "effects": {}, "lock": threading.Lock()
                    }  # fmt: skip
                self._pairs[first, beside] = Networks(
                    model, self._open(beside), self.dataset.classes, self.dataset, (first, beside),
                    self.notice, **self._firsts[first],
                )  # fmt: skip
            return self._pairs[first, beside]

    def _open(self, name: str):
        source = self._sources[name]
        if isinstance(source, str):
            source = checkpoints.load(source, device=self.device)
            check_fit(source, self.dataset)
            self._sources[name] = source
        return source

    def _free(self, name: str) -> str:
        names, number, free = set(self._sources), 2, name
        while free in names:
            free, number = f"{name} ({number})", number + 1
        return free


def _names(opened: Sequence[tuple[Any, str | None]]) -> list[str]:
    """Of networks, with the sources of those that were loaded: no run is called as the shipped."""
    names = [model.card.get("name", "unnamed") for model, _ in opened]
    loaded = {k: source for k, (_, source) in enumerate(opened) if source is not None}
    apart = apart_from_shipped([names[k] for k in loaded], list(loaded.values()))
    for k, name in zip(loaded, apart, strict=True):
        names[k] = name
    return names


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
    """The networks named, those of one's own, and all shipped ones for the same images.

    Without a checkpoint the page begins with the first network of one's own, or else `FIRST`;
    without one to compare, with the second of one's own, or `BESIDE`, or whatever else fits. Test
    images are those of the first checkpoint's data set, or of `dataset` for networks of one's own;
    nothing is downloaded.

    Raises
    ------
    ValueError         if the first has no capsules, or another is for other images or classes.
    FileNotFoundError  if there are no test images that fit.
    """
    if len(weights) > len(network):
        raise ValueError("--weights are those of --network FILE.py:FUNCTION: name one for each")
    if dataset is not None and (checkpoint is not None or not network):
        raise ValueError("--dataset: only where the first network is your own, by --network")
    place = choose_device(device)
    own = list(zip_longest(network, weights))
    opened: list[tuple[Any, str | None]] = []  # each with its source, if it was loaded
    if own and checkpoint is None:
        spec, file = own.pop(0)
        inputs = open_inputs(
            network=spec, weights=file, dataset=dataset, data_dir=data_dir, device=device
        )
        opened.append((inputs.model, None))
        choice = Choice(inputs.dataset.single(), inputs.notice, place)
    else:
        model = checkpoints.load(checkpoint or FIRST, device=place)
        if not tracing.abilities(model).has_capsules:
            raise ValueError(
                f"'{checkpoint}' has no capsules to explore: expected a capsule network, "
                "and the other one by --compare"
            )
        opened.append((model, checkpoint or FIRST))
        choice = Choice(*test_images(model, data_dir), place)
    if compare is not None:
        opened.append((checkpoints.load(compare, device=place), compare))
    opened += [(own_network(spec, f, choice.dataset, device=place), None) for spec, f in own]
    added = [
        choice.add(model, name) for (model, _), name in zip(opened, _names(opened), strict=True)
    ]
    choice.add_shipped()
    usual = [name for name in (BESIDE, *choice.names) if name in choice.names]
    choice.first = added[0]
    choice.beside = added[1] if len(added) > 1 else next(
        (name for name in usual if name != added[0]), added[0]
    )  # fmt: skip
    return choice
