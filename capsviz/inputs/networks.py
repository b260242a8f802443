"""Several networks that are compared: the same data for all, and the shipped baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from capsviz import checkpoint as checkpoints
from capsviz import discovery
from capsviz.inputs.opening import (
    Inputs,
    check_fit,
    images_and_classes,
    open_inputs,
    other_classes,
    own_network,
)
from capsviz.tracing import abilities


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
    `with_baselines`. Custom networks come after those of `names`, the first of `weights` for the
    first of them. ValueError for a network named twice, or other images or classes.
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
        notice = other_classes(model, first.dataset)
        networks.append(Inputs(model, first.dataset, str(name), notice, drawn=first.drawn))
    apart = _apart([one.name for one in networks], [one.source for one in networks])
    if len(set(apart)) < len(apart):
        raise ValueError(f"expected different networks, got {', '.join(apart)}")
    return [
        one if name == one.name else replace(one, alias=name)
        for one, name in zip(networks, apart, strict=True)
    ]


def apart_from_shipped(names: Sequence[str], sources: Sequence[str]) -> list[str]:
    """Names of networks, never one of other weights that are shipped: "digits (mine)"."""
    others = [name for name in checkpoints.shipped() if name not in map(_known, sources)]
    return _apart([*names, *others], [*sources, *others])[: len(names)]


def _apart(own: Sequence[str], sources: Sequence[str]) -> list[str]:
    """Names, with the folder or path of those that are not shipped where several have one."""
    names = list(own)
    for whole in (False, True):
        names = [
            f"{name} ({source if whole or Path(source).stem == name else Path(source).stem})"
            if names.count(now) > 1 and _known(source) not in checkpoints.shipped()
            else now
            for now, name, source in zip(names, own, sources, strict=True)
        ]
    return names


def _known(source: str) -> str:
    """A network's source, the file of shipped weights by their name."""
    path = Path(source)
    of_shipped = path.resolve().parent == discovery.folder(checkpoints.SHIPPED).resolve()
    return path.stem if of_shipped and path.suffix == ".safetensors" else source


def with_baselines(inputs: Inputs) -> list[Inputs]:
    """A network, and the shipped networks without capsules for the same data set and images."""
    networks = [inputs]
    for name in checkpoints.shipped():
        if name.startswith(f"{inputs.dataset.name}-"):
            model = checkpoints.load(name, device=inputs.device)
            other = Inputs(model, inputs.dataset, name, drawn=inputs.drawn)
            fits = images_and_classes(model) == images_and_classes(inputs.model)
            if fits and other.name != inputs.name and not abilities(model).has_capsules:
                networks.append(other)
    return networks
