"""Open what a command works on: one or more networks, data that fit them, and images."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from capsviz import checkpoint as checkpoints
from capsviz import data, discovery, pictures
from capsviz.inputs import usual_class
from capsviz.tracing import abilities
from capsviz.transforms.augment import to_float

NAMED = 3  # number of classes that a notice lists
NO_DATASET = "--data-option is for a data set: name it by --dataset"


@dataclass(frozen=True)
class Inputs:
    """A network and a split of a data set for it."""

    model: Any  # any network, in evaluation mode, with its card
    dataset: data.Dataset
    source: str  # name or path of the network, as a command takes it
    notice: str | None = None  # warnings about the choice, for the user
    data_dir: str | Path | None = None  # searched for the data set; None: the usual folders
    alias: str | None = None  # replaces the card's name, for example for all runs of a recipe

    @property
    def name(self) -> str:
        """The card's name, or the run's if it is unfinished or the card has the data set's name."""
        training = self.model.card.get("training") or {}
        if training.get("unfinished") and not self.alias:
            folder = checkpoints.find(self.source).parent.name
            return f"{folder} (epoch {training['epoch']}, unfinished)"
        name = self.alias or self.model.card.get("name", "unnamed")
        own = name == self.dataset.name and self.dataset.loader in pictures.OWN
        return _short(name, self.source) if own else name

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return next(self.model.parameters()).device

    def load(self, split: str) -> data.Dataset:
        """Load another split of the data set, with the same options."""
        part = data.load(self.dataset.loader, split, self.data_dir, **self.dataset.options)
        return part.in_order(abilities(self.model).class_names)

    def images(self, n: int | None = None) -> tuple[Tensor, Tensor]:
        """Return n images (or all), (N, C, H, W) in [0, 1], and labels (N,), by `sample`.

        ValueError if n is not available, or if images show several objects each.
        """
        part = self.dataset.sample(n).single()
        return to_float(part.images), part.labels


class Picture(NamedTuple):
    """One image, with its label and name."""

    image: Tensor  # (1, C, H, W) in [0, 1]
    label: int | None  # its class, if it is known
    name: str  # for file names and titles
    doubts: tuple[str, ...] = ()  # warnings about its file


def choose_device(name: str) -> torch.device:
    """Return the device for "auto", "cpu", "cuda" or "mps"; ValueError if it is not available.

    If there are several GPUs, they are "cuda:0", "cuda:1" and so on; "cuda" is the first.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    known = ["cuda"] if count == 1 else [f"cuda:{number}" for number in range(count)]
    known += [*["mps"] * torch.backends.mps.is_available(), "cpu"]
    if name == "auto" or (name == "cuda" and count):
        return torch.device(known[0])
    if name.removesuffix(":0") not in known and name not in known:
        raise ValueError(
            f"device '{name}' is not available here, expected auto, {', '.join(known)}"
        )
    return torch.device(name)


def open_inputs(
    *,
    checkpoint: str | None = None,
    dataset: str | None = None,
    data_dir: str | Path | None = None,
    data_options: Mapping = MappingProxyType({}),
    split: str = "test",
    device: str = "auto",
    network: str | None = None,
    weights: str | Path | None = None,
    capsules: bool = True,
    whole: bool = False,
    shown: bool = True,
) -> Inputs:
    """Open the network and the split that a command's options ask for.

    `network` is "FILE.py:FUNCTION", a custom network in place of a checkpoint, and `weights` is its
    file. Without a checkpoint, the data set's shipped weights are used. Without a data set, the
    checkpoint's training data set is used, with its options. Without both, the data set is MNIST;
    if it can neither be found nor downloaded, the embedded digits are used, with a notice.

    `capsules=False` also accepts networks without capsules. `whole` checks all splits of a user's
    own data, like `capsviz data`. If no image is `shown`, the data set may be missing; its classes
    then come from the card.
    """
    if weights is not None and network is None:
        raise ValueError("--weights are those of --network FILE.py:FUNCTION: name it too")
    if network is not None and checkpoint is not None:
        raise ValueError("--checkpoint and --network exclude each other: drop one")
    where, part, notice = choose_device(device), None, None
    model: Any = None
    own = dict(data_options)
    if checkpoint is None and dataset is None:
        if own:
            raise ValueError(NO_DATASET)
        dataset, part, notice = _default(split, data_dir)
    if network is not None:
        part = data.load(str(dataset), split, data_dir, **own) if part is None else part
        model = own_network(network, weights, part, device=where, capsules=capsules)
    else:
        if checkpoint is None and dataset not in checkpoints.shipped():
            name = data.load(str(dataset), split, data_dir, **own).name  # none, or none there
            recipe = (discovery.folder(checkpoints.SHIPPED) / f"{dataset}.toml").is_file()
            raise ValueError(
                f"no weights for '{dataset}' come with capsviz: train some by `capsviz train "
                f"{'' if recipe else '--dataset '}{dataset}`, then name them by --checkpoint "
                f"runs/{name}"
            )
        model = checkpoints.load(str(checkpoint or dataset), device=where)
        about = model.card["dataset"]
        if dataset in (None, about["name"]):
            own = {**about.get("options", {}), **own}
        if part is None:
            try:
                part = data.load(dataset or about["name"], split, data_dir, **own)
            except FileNotFoundError:
                if shown or dataset is not None or data_dir is not None:
                    raise
                part = _without_images(model, split, own)
    part = _in_shape(part, images_and_classes(model)[0], data_dir)
    part = part.in_order(abilities(model).class_names)
    said = [notice or part.notice, checkpoints.shadowed(checkpoint or ""), check_fit(model, part)]
    about = model.card["dataset"]
    known = about.get("images", {}).get(split) if about["name"] == part.loader else None
    if known is not None and len(part) and known != part.digest:  # most cards have no digest
        said.append(
            f"these {split} images of {part.name} are not those on the card of {_name(model)}: "
            "some of them may be training images"
        )
    if part.drawn_from and known != part.digest:
        named = "call the arrays test_images and test_labels"
        how = "put the class folders into a folder 'test'" if part.loader == "folder" else named
        said.append(
            f"{part.drawn_from - len(part)} of {part.drawn_from} images are left out, because "
            f"training on {part.name} uses them: if {_name(model)} was not trained on them, {how}"
        )
    source = str(network or checkpoint or dataset)
    opened = Inputs(model, part, source, data_dir=data_dir)
    if opened.name.endswith(", unfinished)"):
        said.append(f"the training run is unfinished: {opened.name}")
    splits: dict[str, data.Dataset] = {}
    for name in data.SPLITS if whole and part.loader in pictures.OWN else (split,):
        with suppress(FileNotFoundError):
            splits[name] = part if name == split else opened.load(name)
    said += data.check(splits) if len(part) else []
    return replace(opened, notice="\n".join(filter(None, said)) or None)


def open_module(
    *,
    image_shape: tuple[int, int, int] | None = None,
    data_options: Mapping = MappingProxyType({}),
    **chosen,
) -> tuple[nn.Module, data.Dataset | None, str, str | None]:
    """Return a network that is not wrapped, the test split for it, its name, and a notice.

    This allows checks of networks that `capsviz.wrap` refuses. `chosen` is as for `open_inputs`. If
    `image_shape` is given, a data set is opened only if it is named.
    """
    if chosen["network"] is None:
        inputs = open_inputs(**chosen, data_options=data_options, capsules=False, shown=False)
        return inputs.model, inputs.dataset, inputs.name, inputs.notice
    if chosen["checkpoint"] is not None:
        raise ValueError("--checkpoint and --network exclude each other: drop one")
    from capsviz.wrapping import open_module as opened

    device = choose_device(chosen["device"])
    module, card = opened(chosen["network"], chosen["weights"], device=device)
    part = notice = None
    if chosen["dataset"] is not None:
        part = data.load(chosen["dataset"], "test", chosen["data_dir"], **data_options)
        shape = image_shape or abilities(module).image_shape
        part = _in_shape(part, shape, chosen["data_dir"])
    elif data_options:
        raise ValueError(NO_DATASET)
    elif image_shape is None and not abilities(module).has_capsules:
        _, part, notice = _default("test", chosen["data_dir"])
    return module, part, card["name"], notice


def _in_shape(part: data.Dataset, shape: tuple | None, data_dir) -> data.Dataset:
    """Return a split in a network's image shape (C, H, W), if its data set can be resized."""
    if shape is not None and len(shape) == 3 and part.image_shape != tuple(shape):
        resized: dict = {"image_size": tuple(shape[1:]), "image_channels": shape[0]}
        with suppress(ValueError):  # the data set has one size only
            return data.load(part.loader, part.split, data_dir, **{**part.options, **resized})
    return part


def _without_images(model, split: str, options: Mapping) -> data.Dataset:
    """Return a split without images, with the card's classes, if the data are missing."""
    shape, count = images_and_classes(model)
    classes = abilities(model).class_names or tuple(map(str, range(count)))
    none, name = torch.empty(0, *shape, dtype=torch.uint8), model.card["dataset"]["name"]
    return data.Dataset(none, torch.empty(0).long(), classes, name, split, options=options)


def own_network(spec: str, weights, part: data.Dataset, *, device, capsules: bool = True):
    """Open a network by "FILE.py:FUNCTION" and its weights, for the images of a data set."""
    from capsviz.wrapping import open_network

    about = {"name": part.loader, "classes": list(part.classes)}
    return open_network(
        spec, weights, image_shape=part.image_shape, classes=len(part.classes), dataset=about,
        capsules=capsules, device=device,
    )  # fmt: skip


def open_picture(
    inputs: Inputs, *, digit: int | None = None, index: int = 0, image: str | Path | None = None
) -> Picture:
    """Open a user's file, or the index-th image of class `digit` (default: the usual class)."""
    if image is not None:
        frame = pictures.frame(inputs.model)
        kinds = pictures.opening.kinds([image])
        odd = pictures.opening.doubts(kinds, frame.top, alike=frame.folders)
        return Picture(pictures.prepare(image, frame).image, None, Path(image).stem, tuple(odd))
    digit = usual_class(inputs.dataset) if digit is None else digit
    pixels, _ = inputs.dataset.nth_of_class(digit, index)
    return Picture(to_float(pixels), digit, f"{inputs.dataset.name}-{digit}-{index}")


def open_networks(
    names: Sequence[str],
    *,
    network: Sequence[str] = (),
    weights: Sequence[str | Path] = (),
    capsules: bool = True,
    **places,
) -> list[Inputs]:
    """Open several networks with the data of the first one, each as `open_inputs` does.

    Without names, the data set's shipped weights and their baselines are opened (see
    `with_baselines`). Custom networks come after those of `names` and take `weights` in order.
    ValueError for a network named twice, or for different images or classes.
    """
    own = list(zip_longest(network, weights))
    if len(weights) > len(network):
        raise ValueError("--weights are those of --network FILE.py:FUNCTION: name one for each")
    if own and not names:
        spec, file = own.pop(0)
        first = open_inputs(network=spec, weights=file, capsules=capsules, **places)
        networks = [first]
    else:
        first = open_inputs(checkpoint=names[0] if names else None, **places)
        networks = [first] if names else with_baselines(first)
    others = [(str(name), checkpoints.load(name, device=first.device)) for name in names[1:]]
    others += [
        (spec, own_network(spec, file, first.dataset, device=first.device, capsules=capsules))
        for spec, file in own
    ]
    for source, model in others:
        notice = check_fit(model, first.dataset)
        networks.append(replace(first, model=model, source=source, notice=notice))
    apart = apart_from_shipped([one.name for one in networks], [one.source for one in networks])
    if len(set(apart)) < len(apart):
        raise ValueError(f"expected different networks, got {', '.join(apart)}")
    return [replace(one, alias=name) for one, name in zip(networks, apart, strict=True)]


def apart_from_shipped(names: Sequence[str], sources: Sequence[str]) -> list[str]:
    """Return distinct names of networks, which also differ from those of other shipped weights.

    A duplicate name is replaced by the run's folder or file, or else its path, unless the network
    is a shipped one. For example, a user's "digits" becomes "mine".
    """
    others = [name for name in checkpoints.shipped() if name not in map(_known, sources)]
    apart = [*names, *others]
    for call in (_short, lambda name, source: source):
        apart[: len(names)] = [
            call(name, source)
            if apart.count(now) > 1 and _known(source) not in checkpoints.shipped()
            else now
            for now, name, source in zip(apart, names, sources, strict=False)
        ]
    return apart[: len(names)]


def _short(name: str, source: str) -> str:
    """Return a short name: the folder of a run, or the file of a network."""
    path = Path(source)
    if path.suffix not in (".safetensors", ".py"):
        return path.name or path.resolve().name
    return path.resolve().parent.name if path.stem == name else path.stem


def _known(source: str) -> str:
    """Return a network's source, or the name if it is a file of shipped weights."""
    path = Path(source)
    of_shipped = path.resolve().parent == discovery.folder(checkpoints.SHIPPED).resolve()
    return path.stem if of_shipped and path.suffix == ".safetensors" else source


def with_baselines(inputs: Inputs) -> list[Inputs]:
    """Return a network and the shipped networks without capsules for the same data and images."""
    networks = [inputs]
    for name in checkpoints.shipped():
        if name.startswith(f"{inputs.dataset.name}-"):
            model = checkpoints.load(name, device=inputs.device)
            other = replace(inputs, model=model, source=name, notice=None, alias=None)
            fits = images_and_classes(model) == images_and_classes(inputs.model)
            if fits and other.name != inputs.name and not abilities(model).has_capsules:
                networks.append(other)
    return networks


def check_fit(model, part: data.Dataset) -> str | None:
    """Raise ValueError if a network does not fit the images or classes of a split.

    Return a warning for each note of `capsviz.wrap` on a custom network, and a notice if it was
    trained on another data set with other class names; None if there is neither.
    """
    expected = images_and_classes(model)
    if expected[1] is None:
        raise ValueError(f"the capsules of {_name(model)} are not classes: it can be traced alone")
    if expected != (part.image_shape, len(part.classes)):
        what = "images" if abilities(model).draw is None else "inputs"
        raise ValueError(
            f"{_name(model)} is for {what} {expected[0]} of {expected[1]} classes, "
            f"but {part.name} has {part.image_shape} of {len(part.classes)}"
        )
    trained_on = model.card["dataset"]
    classes = trained_on.get("classes", part.classes)
    apart = [pair for pair in zip(classes, part.classes, strict=False) if pair[0] != pair[1]]
    said = [f"WARN {_name(model)}: {note}" for note in model.card.get("notes", ())]
    if not apart:
        return "\n".join(said) or None
    if trained_on["name"] == part.loader:
        own, other = (discovery.some(names, NAMED) for names in zip(*apart, strict=True))
        same = ": the same in another order" if set(classes) == set(part.classes) else ""
        raise ValueError(f"the network's classes are {own}, but these are {other}{same}")
    own, other = (discovery.some(names, NAMED) for names in (classes, part.classes))
    said.append(
        f"{_name(model)} was trained on classes {own}, but the classes of {part.name} are {other}: "
        "they are compared by their numbers"
    )
    return "\n".join(said)


def images_and_classes(model) -> tuple[tuple[int, int, int], int]:
    """Return a network's image shape (C, H, W) and its number of classes."""
    return tuple(model.config["image_shape"]), model.config["classes"]


def _name(model) -> str:
    return f"the network '{model.card['name']}'" if "name" in model.card else "the network"


def _default(split: str, data_dir) -> tuple[str, data.Dataset, str | None]:
    try:
        return data.DEFAULT, data.load(data.DEFAULT, split, data_dir), None
    except FileNotFoundError as error:
        if data_dir is not None:
            raise  # the user chose this folder: do not fall back
        notice = f"using the embedded '{data.FALLBACK}' data instead: {error}"
        return data.FALLBACK, data.load(data.FALLBACK, split), notice
