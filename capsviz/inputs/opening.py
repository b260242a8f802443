"""What a command looks at: a network, a data set, and one image or many of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from capsviz import checkpoint as checkpoints
from capsviz import data, discovery, pictures
from capsviz.inputs.fit import check_fit, images_and_classes, other_classes, other_images, shaped
from capsviz.inputs.samples import usual_class
from capsviz.tracing import abilities
from capsviz.transforms.augment import to_float


@dataclass(frozen=True)
class Inputs:
    """A network and a split for it."""

    model: Any  # any network, in evaluation mode, with its card
    dataset: data.Dataset
    source: str  # name or path of the network, as a command takes it
    notice: str | None = None  # what the user must be told of the choice
    drawn: dict = field(default_factory=dict, repr=False)  # images that were asked for before
    data_dir: str | Path | None = None  # that the data set was looked for in; None: everywhere
    alias: str | None = None  # in place of the card's name: one for all runs of a recipe
    options: dict = field(default_factory=dict, repr=False)  # that the data set was loaded with

    @property
    def name(self) -> str:
        """Of the network, from its card."""
        return self.alias or self.model.card.get("name", "unnamed")

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.model.parameters()).device

    def load(self, split: str) -> data.Dataset:
        """Another split of the same data set, with the options that this one was loaded with."""
        trained_on, name = self.model.card["dataset"], self.dataset.name
        own = trained_on.get("options", {}) if trained_on["name"] == name else {}
        return data.load(name, split, self.data_dir, **own, **self.options)

    def images(self, n: int | None = None) -> tuple[Tensor, Tensor]:
        """n images (N, C, H, W) in [0, 1] and labels (N,), as of `sample`; all for None.

        Raises
        ------
        ValueError  for an n that is not there, or images that show several things each.
        """
        key = len(self.dataset) if n is None else n
        if key not in self.drawn:
            part = self.sample(n).single()
            self.drawn[key] = to_float(part.images), part.labels
        return self.drawn[key]

    def sample(self, n: int | None = None) -> data.Dataset:
        """n images of the split, all for None, as its `sample`."""
        return self.dataset.sample(n)


class Picture(NamedTuple):
    """One image, and what is known of it."""

    image: Tensor  # (1, C, H, W) in [0, 1]
    label: int | None  # its class, if it is known
    name: str  # for file names and titles


def choose_device(name: str) -> torch.device:
    """The device for "auto", "cpu", "cuda" or "mps"; ValueError if it is not there."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next((kind for kind, usable in available.items() if usable), "cpu"))
    if not available.get(name.partition(":")[0], name == "cpu"):
        raise ValueError(f"device '{name}' is not available here, expected 'auto' or 'cpu'")
    return torch.device(name)


def open_inputs(
    *,
    checkpoint: str | None = None,
    dataset: str | None = None,
    data_dir: str | Path | None = None,
    split: str = "test",
    device: str = "auto",
    network: str | None = None,
    weights: str | Path | None = None,
    capsules: bool = True,
) -> Inputs:
    """The network and the split that a command's options ask for.

    Parameters
    ----------
    network   "FILE.py:FUNCTION", a custom one in place of a checkpoint; without a data set, MNIST
              or where it is not at hand the embedded digits.
    weights   its file.
    capsules  False also takes a network without any.

    Without a checkpoint, the shipped weights of the data set; without a data set, the one that the
    checkpoint was trained on; without both, MNIST, or where that can neither be found nor
    downloaded, the embedded digits with their own weights, and a notice that says so.
    """
    if weights is not None and network is None:
        raise ValueError("--weights are those of --network FILE.py:FUNCTION: name it too")
    if network is not None:
        if checkpoint is not None:
            raise ValueError("--checkpoint and --network: expected one of them")
        return _open_own(network, weights, dataset, data_dir, split, device, capsules)
    part = notice = None
    if checkpoint is None and dataset is None:
        dataset, part, notice = _default(split, data_dir)
    elif checkpoint is None and dataset is not None and dataset not in checkpoints.shipped():
        data.load(dataset, split, data_dir)  # refuses what is no data set, or is not there
        raise ValueError(
            f"no weights for '{dataset}' come with capsviz: train some by "
            f"`capsviz train {_recipe(dataset)}`, then name them by --checkpoint runs/{dataset}"
        )
    source = str(checkpoint or dataset)
    model: Any = checkpoints.load(source, device=choose_device(device))
    if part is None:
        trained_on = model.card["dataset"]
        options = trained_on.get("options", {}) if dataset in (None, trained_on["name"]) else {}
        part = data.load(dataset or trained_on["name"], split, data_dir, **options)
    check_fit(model, part)
    said = (notice or part.notice, other_classes(model, part), other_images(model, part))
    return Inputs(model, part, source, "\n".join(filter(None, said)) or None, data_dir=data_dir)


def _open_own(network, weights, dataset, data_dir, split, device, capsules) -> Inputs:
    """Open a custom network with the named data set, or else the default one."""
    if dataset is None:
        dataset, part, notice = _default(split, data_dir)
    else:
        part, notice = data.load(dataset, split, data_dir), None
    model = own_network(network, weights, part, device=choose_device(device), capsules=capsules)
    shape, _ = images_and_classes(model)
    part, options = shaped(part, shape, dataset, split, data_dir)
    check_fit(model, part)
    return Inputs(model, part, network, notice or part.notice, data_dir=data_dir, options=options)


def open_module(
    *,
    checkpoint: str | None = None,
    dataset: str | None = None,
    data_dir: str | Path | None = None,
    device: str = "auto",
    network: str | None = None,
    weights: str | Path | None = None,
    data_wanted: bool = True,
) -> tuple[nn.Module, data.Dataset | None, str, str | None]:
    """A network as it is, not wrapped: itself, the test split for it, its name, and a notice.

    For what must look at networks that `capsviz.wrap` refuses. Without `data_wanted` a network of
    one's own is shown no data set.
    """
    if network is None:
        inputs = open_inputs(
            checkpoint=checkpoint, dataset=dataset, data_dir=data_dir, device=device,
            weights=weights, capsules=False,
        )  # fmt: skip
        return inputs.model, inputs.dataset, inputs.name, inputs.notice
    if checkpoint is not None:
        raise ValueError("--checkpoint and --network: expected one of them")
    from capsviz.wrapping import open_module as opened

    module, card = opened(network, weights, device=choose_device(device))
    part = notice = None
    if dataset is not None:
        part = data.load(dataset, "test", data_dir)
    elif data_wanted and not abilities(module).has_capsules:
        _, part, notice = _default("test", data_dir)
    return module, part, card["name"], notice


def open_model(
    *,
    checkpoint: str | None = None,
    network: str | None = None,
    weights: str | Path | None = None,
    dataset: str | None = None,
    data_dir: str | Path | None = None,
    device: str = "auto",
    default: str = "mnist",
    capsules: bool = False,
) -> tuple[nn.Module, str, str | None]:
    """A network in evaluation mode with its card, what it is named by, and a notice.

    Parameters
    ----------
    checkpoint         shipped weights, a file or a folder; `default` where neither it nor a network
                       is named.
    network, weights   "FILE.py:FUNCTION", and the file of its weights.
    dataset, data_dir  whose images and classes that network takes; as `open_inputs` chooses them.
    capsules           refuse a network without any.

    Raises
    ------
    ValueError  for options that would be ignored, and whatever is wrong with the network.
    """
    if network is None:
        places = {"weights": weights, "dataset": dataset, "data-dir": data_dir}
        if idle := [f"--{name}" for name, value in places.items() if value is not None]:
            raise ValueError(
                f"{', '.join(idle)}: only for a network of your own, by --network FILE.py:FUNCTION"
            )
        source = checkpoint or default
        return checkpoints.load(source, device=choose_device(device)), source, None
    inputs = open_inputs(
        checkpoint=checkpoint, network=network, weights=weights, dataset=dataset,
        data_dir=data_dir, device=device, capsules=capsules,
    )  # fmt: skip
    return inputs.model, network, inputs.notice


def own_network(spec: str, weights, part: data.Dataset, *, device, capsules: bool = True):
    """A network by "FILE.py:FUNCTION" and its weights, for the images of a data set."""
    from capsviz.wrapping import open_network

    about = {"name": part.name, "classes": list(part.classes)}
    return open_network(
        spec, weights, image_shape=part.image_shape, classes=len(part.classes), dataset=about,
        capsules=capsules, device=device,
    )  # fmt: skip


def open_picture(
    inputs: Inputs, *, digit: int | None = None, index: int = 0, image: str | Path | None = None
) -> Picture:
    """A user's file, or the index-th image of a class of the split, for None the usual one."""
    if image is not None:
        pixels = pictures.read(image, pictures.frame(inputs.model))
        return Picture(pixels, None, Path(image).stem)
    digit = usual_class(inputs.dataset) if digit is None else digit
    pixels, _ = inputs.dataset.nth_of_class(digit, index)
    return Picture(to_float(pixels), digit, f"{inputs.dataset.name}-{digit}-{index}")


def _recipe(dataset: str) -> str:
    """What `capsviz train` is given for a data set: its recipe, if there is one."""
    available = (discovery.folder(checkpoints.SHIPPED) / f"{dataset}.toml").is_file()
    return dataset if available else f"--dataset {dataset}"


def _default(split: str, data_dir) -> tuple[str, data.Dataset, str | None]:
    try:
        return data.DEFAULT, data.load(data.DEFAULT, split, data_dir), None
    except FileNotFoundError as error:
        if data_dir is not None:
            raise  # a folder that was named by hand is meant
        notice = f"using the embedded '{data.FALLBACK}' data instead: {error}"
        return data.FALLBACK, data.load(data.FALLBACK, split), notice
