"""What fixes a CapsNet: its settings, its two presets, and which settings make no network."""

from dataclasses import dataclass, replace
from inspect import signature

import torch

from capsviz import memory
from capsviz.discovery import unknown
from capsviz.nn import children, routing, stems
from capsviz.nn.models._settings import require_known, require_positive, require_shared

KERNEL = 9
PRESETS = ("paper", "authors")
STEM_TYPES = {"slim": 16, "resnet": 8}  # capsule types where none are named


@dataclass(frozen=True)
class Config:
    """Everything that fixes a CapsNet, its losses included."""

    image_shape: tuple[int, int, int] = (1, 28, 28)  # C, H, W
    classes: int = 10
    preset: str = "paper"  # or "authors": initial weights and the scale of primary votes
    standardised: bool = (
        False  # each image to mean 0 and deviation 1 first, as the authors' CIFAR-10
    )
    stem: str = "paper"  # or a file in capsviz/nn/stems: "slim", "resnet"
    channels: int = 256  # of the paper's first convolution
    types: int = 32  # primary capsule types
    primary_dimensions: int = 8  # D
    class_dimensions: int = 16  # E
    primary: str = "auto"  # what makes capsules of features, see nn/children.py; the routing's own
    routing: str = "dynamic"  # a file in capsviz/nn/routing
    transform: str = "own"  # votes' matrices: "own" for each child, one for each "type", "shared"
    vote_std: float | None = None  # standard deviation of their initial weights; None: the layer's
    iterations: int = 3  # of routing
    routing_bias: bool = False  # learn a bias of s_j inside routing
    detach_routing: bool = False  # gradients flow through the last iteration only
    final_temperature: float | None = None  # of EM routing; left out: J/I; None: the authors' 0.01
    floor: float | None = None  # of EM's variances, see its file; None: 0.0005
    leaky: bool = False  # children may couple to no class: "none of the above" in the softmax
    decoder: str = "fully_connected"  # a file in capsviz/nn/decoders
    decoder_norm: bool = False  # batch norm in its hidden layers
    hidden: tuple[int, ...] = (512, 1024)  # units of the fully connected decoder
    objective: str = "auto"  # "margin", "spread" or "cross_entropy"; the routing's own
    reconstruction_metric: str = "l2"  # sum of squared differences; "l1": of absolute ones
    reconstruction_weight: float = 0.0005  # of that sum, beside the margin loss; 0: no decoder
    margin_present: float = 0.9  # m+: the length that the capsule of a present class should exceed
    margin_absent: float = 0.1  # m-: the length that those of absent classes should stay below
    absent_weight: float = 0.5  # lambda, of absent classes in the margin loss

    @property
    def grid(self) -> tuple[int, int, int]:
        """(types, rows, columns) of the primary capsules."""
        layers = stems.layers(self.stem)
        return (self.types, *(stems.places(side, layers) for side in self.image_shape[1:]))

    @property
    def children(self) -> int:
        """I, the number of primary capsules."""
        types, rows, columns = self.grid
        return types * rows * columns


def routing_values(config: Config, options: dict) -> dict:
    """What follows from routing and stem where nothing else is asked for."""
    module = routing.get(config.routing)
    takes = signature(module.route).parameters
    one_pass, mixture = "iterations" not in takes, "final_temperature" in takes
    values = {
        "iterations": 1 if one_pass and "iterations" not in options else config.iterations,
        "types": options.get("types", STEM_TYPES.get(config.stem, config.types)),
        "primary": _own(config.primary, getattr(module, "CHILDREN", "squash")),
        "objective": _own(config.objective, getattr(module, "OBJECTIVE", "margin")),
    }
    if mixture and "final_temperature" not in options:
        children = replace(config, types=values["types"]).children
        values["final_temperature"] = config.classes / max(children, 1)
    return values


def _own(choice: str, own: str) -> str:
    return own if choice == "auto" else choice


def preset_values(preset: str, classes: int) -> dict:
    """What a preset sets; ValueError for an unknown one."""
    if preset == "paper":
        return {}
    if preset == "authors":
        # Their margin loss is halved and averaged over J classes, so beside a sum over classes
        # their 0.0005 weighs 0.0005 * 2J: 0.01 for ten classes. Of several things in one image
        # they add the reconstruction losses up, here it is their mean: half as much for two.
        return {"routing_bias": True, "reconstruction_weight": 0.001 * classes}
    raise ValueError(unknown("preset", preset, list(PRESETS)))


def check(config: Config) -> None:
    """Raise ValueError for settings that make no network, MemoryError for too large ones."""
    channels, height, width = config.image_shape
    smallest = 2 * KERNEL - 1
    if config.stem != "paper" and config.preset != "paper":
        raise ValueError(f"the preset '{config.preset}' has the paper's stem, not '{config.stem}'")
    if config.primary != "squash" and config.preset != "paper":
        raise ValueError(
            f"the preset '{config.preset}' is of squashed capsules, not '{config.primary}'"
        )
    if config.stem == "paper" and (min(height, width) < smallest or channels < 1):
        raise ValueError(
            f"images of {channels} x {height} x {width} are too small for two {KERNEL}x{KERNEL} "
            f"convolutions: expected at least 1 x {smallest} x {smallest}; enlarge or pad them"
        )
    require_shared(config)
    require_positive(
        config, "channels", "types", "primary_dimensions", "class_dimensions", "hidden"
    )
    require_known(config, stem=stems.available(), primary=["auto", *children.KINDS])
    per_child = config.classes * config.class_dimensions * config.primary_dimensions
    size = torch.finfo(torch.get_default_dtype()).bits // 8
    memory.require(
        config.children * per_child * size,
        f"the transformation of {config.children:,} primary into {config.classes} class capsules",
        "use fewer capsule types, fewer classes or smaller images",
    )
