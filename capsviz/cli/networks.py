"""Several networks that are compared: the same data for all, and the shipped baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from capsviz import checkpoint as checkpoints
from capsviz.cli.inputs import Inputs, check_fit, images_and_classes, open_inputs, own_network


def open_networks(
    names: Sequence[str],
    *,
    dataset: str | None = None,
    data_dir: str | Path | None = None,
    network: Sequence[str] = (),
    weights: Sequence[str | Path] = (),
    capsules: bool = True,
    **more,
) -> list[Inputs]:
    """Several networks with the same data, each as `open_inputs` opens it; the first one counts.

    Without names, the shipped weights of the data set, and its shipped baselines as by
    `with_baselines`. Networks of one's own come after those of `names`, the first of `weights` for
    the first of them.

    Raises
    ------
    ValueError  for two networks of the same name, or networks of different images or classes.
    """
    own = list(zip_longest(network, weights))
    if len(weights) > len(network):
        raise ValueError("--weights are those of --network FILE.py:FUNCTION: name one for each")
    places: dict[str, Any] = {"dataset": dataset, "data_dir": data_dir, **more}
    if own and not names:
        spec, file = own.pop(0)
        first = open_inputs(network=spec, weights=file, capsules=capsules, **places)
        networks = [first]
    else:
        first = open_inputs(checkpoint=names[0] if names else None, **places)
        networks = [first] if names else with_baselines(first)
    for spec, file in own:
        model = own_network(spec, file, first.dataset, device=first.device, capsules=capsules)
        check_fit(model, first.dataset)
        networks.append(Inputs(model, first.dataset, spec, drawn=first.drawn))
    for name in names[1:]:
        model = checkpoints.load(name, device=first.device)
        check_fit(model, first.dataset)
        networks.append(Inputs(model, first.dataset, str(name), drawn=first.drawn))
    return told_apart(networks)


def told_apart(networks: list[Inputs]) -> list[Inputs]:
    """Networks of one name, as two runs of a recipe, called by their place, too: "digits (mine)".

    ValueError for a network that is named twice.
    """
    own = [one.name for one in networks]
    for whole in (False, True):
        names = [one.name for one in networks]
        if len(set(names)) == len(names):
            return networks
        networks = [
            replace(one, alias=f"{name} ({_place(one.source, name, whole)})")
            if names.count(one.name) > 1 and one.source not in checkpoints.shipped()
            else one
            for one, name in zip(networks, own, strict=True)
        ]
    names = [one.name for one in networks]
    if len(set(names)) < len(names):
        raise ValueError(f"expected different networks, got {', '.join(names)}")
    return networks


def _place(source: str, name: str, whole: bool) -> str:
    """A run by its folder or file; by its whole path where that says no more than the name."""
    stem = Path(source).stem
    return source if whole or stem == name else stem


def with_baselines(inputs: Inputs) -> list[Inputs]:
    """A network, and the shipped networks without capsules for the same data set and images."""
    networks = [inputs]
    for name in checkpoints.shipped():
        if name.startswith(f"{inputs.dataset.name}-"):
            model = checkpoints.load(name, device=inputs.device)
            other = Inputs(model, inputs.dataset, name, drawn=inputs.drawn)
            alike = (
                images_and_classes(model) == images_and_classes(inputs.model)
                and other.name != inputs.name
            )
            if alike and not hasattr(model, "look"):
                networks.append(other)
    return networks


def together(networks: Sequence[Inputs], n: int) -> dict:
    """What analyses of several networks take of networks with the same data: n images of it."""
    images, labels = networks[0].images(n)
    return {
        "models": [one.model for one in networks],
        "names": [one.name for one in networks],
        "images": images,
        "labels": labels,
        "dataset": networks[0].dataset.name,
    }
