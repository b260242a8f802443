"""Networks: each file here is one network, found by its name.

A file offers `build(image_shape, classes, **options) -> Module`. The module takes images
(B, C, H, W), float32 in [0, 1], and has
    config                               the arguments of `build`, as plain data
    forward(images) -> Output            a named tuple with `lengths` (B, J) at least
    objective(output, images, labels, [reconstruction_factor=1.0, progress=1.0])
                                         -> Objective, which training minimises
and, if it is a capsule network, `look` and `decode` (see `capsviz.tracing.network`).

The labels of `objective` are class numbers (B,), or (B, K) if each image shows K objects, fewer
than there are classes. Its `images` are the targets of the reconstruction: the images themselves,
or each object alone (B, K, C, H, W).
`reconstruction_factor` multiplies the weight of the reconstruction, which can thus be annealed.
`progress` is the share of training that is done. Both may be missing from the signature.
A network may offer `training_bytes(batch)`, the memory of a training step, so that a batch that
does not fit is computed in parts. A network with batch norm omits it, or sets `whole_batches`,
because the statistics of a part are not those of the batch.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import Tensor, nn

from capsviz.discovery import digest, entries, load, name_of

PACKAGE = "capsviz.nn.models"
PARTS = {  # options that name files, which may be plug-ins, and the packages of these
    "routing": "capsviz.nn.routing",
    "decoder": "capsviz.nn.decoders",
    "stem": "capsviz.nn.stems",
}


class Output(NamedTuple):
    """Output of a capsule network."""

    lengths: Tensor  # (B, J) one score in [0, 1] per class
    poses: Tensor | None = None  # (B, J, E)
    primary: Tensor | None = None  # (B, I, D)


class Scores(NamedTuple):
    """Output of a network without capsules."""

    lengths: Tensor  # (B, J) probabilities, in the place of capsule lengths
    logits: Tensor  # (B, J) before the softmax


class Objective(NamedTuple):
    """The loss that training minimises, and its reconstruction part."""

    loss: Tensor  # ()
    reconstruction: Tensor | None = None  # (B,) before it is weighted


def of_capsviz(model: nn.Module) -> bool:
    """Return whether a network, its routing, decoder and stem are all part of capsviz."""
    package, _, name = type(model).__module__.rpartition(".")
    return package == PACKAGE and not plugins(name, getattr(model, "config", {}))


def plugins(name: str | None, config: Mapping) -> dict[str, str]:
    """Return the digests of the plug-ins that a network uses, by kind."""
    named = {"model": (PACKAGE, name)} | {k: (PARTS[k], config.get(k)) for k in PARTS}
    own = {kind: one for kind, one in named.items() if one[1] in entries(one[0])}
    return {kind: digest(*one) for kind, one in own.items() if not entries(one[0])[one[1]].ours}


def changed(about: Mapping) -> list[str]:
    """Return the kinds of plug-ins whose code has changed since the network's card was written."""
    stored = about.get("plugins", {})
    now = plugins(about["name"], about["config"]) if stored else {}
    return [kind for kind in stored if now.get(kind) != stored[kind]]


def build(name: str, image_shape: tuple[int, int, int], classes: int, **options) -> nn.Module:
    """Make a network by its name; MemoryError if its weights do not fit."""
    try:
        model = load(PACKAGE, name, what="model").build(image_shape, classes, **options)
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        raise MemoryError(f"the weights of this {name} do not fit: choose a smaller one") from error
    model.built_as = name
    return model


def of_config(name: str, config: Mapping) -> nn.Module:
    """Make a network from its name and `config`."""
    settings = dict(config)
    return build(name, settings.pop("image_shape"), settings.pop("classes"), **settings)


def training_bytes(model: nn.Module, batch: int) -> int | None:
    """Estimate the peak memory of a training step in bytes; None if a network has no estimate."""
    estimate: Callable[[int], int] | None = getattr(model, "training_bytes", None)
    return None if estimate is None else estimate(batch)


def name_for(model: nn.Module) -> str | None:
    """Return the name by which `build` makes such a network: that of the file of its class.

    If its class is in no file here, return the name that it was built by, or None.
    """
    return name_of(PACKAGE, type(model).__module__) or getattr(model, "built_as", None)
