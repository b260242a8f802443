"""CapsNet (Sabour, Frosst & Hinton 2017, arXiv:1710.09829): two convolutions, routing, a decoder.

There are two presets, because paper and code differ:
    paper    the text of the paper, with PyTorch's defaults for unspecified details.
    authors  the code of the authors (Sarasra/models, research/capsules): initial weights, a bias
             inside routing, primary votes scaled by 1/types, and a margin loss averaged over
             classes, so that the reconstruction weighs 20 times more.
"""

from dataclasses import dataclass, replace
from inspect import signature
from typing import Literal

import torch
from torch import Tensor, nn

from capsviz import memory
from capsviz.discovery import load, parameters
from capsviz.nn import children, convolution, functional, routing, stems
from capsviz.nn.capsule_layer import CapsuleLayer, ParentNorm, initial_std
from capsviz.nn.children import Capsules, PrimaryCapsules
from capsviz.nn.computation import without_autocast
from capsviz.nn.convolution import Convolution
from capsviz.nn.images import require_shape
from capsviz.nn.models._bases import (
    ClassPoses,
    require_class_poses,
    require_used,
    routing_values,
    settings_from,
)
from capsviz.nn.routing import em
from capsviz.validation import Above, Positive, Sizes, Weight

KERNEL = 9  # pixels, of both convolutions
PRESETS = ("paper", "authors")
STEM_TYPES = {"slim": 16, "resnet": 8}  # default capsule types


@dataclass(frozen=True)
class Config:
    """All settings of a CapsNet and of its losses."""

    image_shape: tuple[int, int, int] = (1, 28, 28)  # C, H, W
    classes: int = 10
    preset: Literal["paper", "authors"] = "paper"  # initial weights, scale of primary votes
    standardised: bool = False  # first standardise each image, as the authors for CIFAR-10
    stem: str = "paper"  # or a file in capsviz/nn/stems: "slim", "resnet"
    channels: Positive = 256  # of the paper's first convolution
    types: Positive = 32  # primary capsule types
    primary_dimensions: Positive = 8  # D
    class_dimensions: Positive = 16  # E
    primary: Literal["auto", children.Kind] = "auto"  # the routing's, see nn/children.py
    routing: str = "dynamic"  # a file in capsviz/nn/routing
    transform: str = "own"  # vote matrices: "own" for each child, by "type", or "shared"
    vote_std: Weight | None = None  # standard deviation of their initial weights; None: initial_std
    iterations: int = 3  # of routing
    routing_bias: bool = False  # learn a bias of s_j inside routing
    detach_routing: bool = False  # gradients flow through the last iteration only
    final_temperature: Above | None = None  # of EM routing; if omitted J/I; None: the authors' 0.01
    floor: Above | None = None  # of variances in EM routing; None: 0.0005
    leaky: bool = False  # the softmax has a "none of the above" class
    decoder: str = "fully_connected"  # a file in capsviz/nn/decoders
    decoder_norm: bool = False  # batch norm in its hidden layers
    hidden: Sizes = (512, 1024)  # units of the fully connected decoder
    objective: Literal["auto", functional.Objective] = "auto"  # the routing's own
    reconstruction_metric: functional.Metric = "l2"  # sum of squares; "l1": of absolute values
    reconstruction_weight: Weight = 0.0005  # weight of that sum; 0: no decoder
    margin_present: float = 0.9  # m+: the length that a present class should exceed
    margin_absent: float = 0.1  # m-: the length that an absent class should stay below
    absent_weight: Weight = 0.5  # lambda, of absent classes in the margin loss

    @property
    def grid(self) -> tuple[int, int, int]:
        """Return (types, rows, columns) of the primary capsules."""
        return self.types, *stems.positions(self.stem, self.image_shape)

    @property
    def children(self) -> int:
        """Return I, the number of primary capsules."""
        types, rows, columns = self.grid
        return types * rows * columns


def preset_values(preset: str, classes: int) -> dict:
    """Return the options that a preset changes."""
    if preset != "authors":
        return {}
    # The authors halve the margin loss and average it over J classes. Relative to a sum over
    # classes, their weight 0.0005 is 0.0005 * 2J: 0.01 for ten classes. They add the reconstruction
    # losses of several objects in an image; here it is the mean, half as much for two objects.
    return {"routing_bias": True, "reconstruction_weight": 0.001 * classes}


def check(config: Config) -> None:
    """Raise ValueError for inconsistent settings, MemoryError for too large a network."""
    if config.preset != "paper" and (config.stem, config.primary) != ("paper", "squash"):
        raise ValueError(
            f"the preset '{config.preset}' has the paper's stem and squashed capsules, got stem "
            f"'{config.stem}' and primary '{config.primary}'"
        )
    require_class_poses(config)
    makes = load(stems.PACKAGE, config.stem, what="stem").build
    require_used(
        config, "channels", "channels" in parameters(makes), f"on the stem '{config.stem}'"
    )
    if config.transform == "type" and config.children == config.types:
        raise ValueError("transform=type needs several positions, got one: use own or shared")
    per_child = config.classes * config.class_dimensions * config.primary_dimensions
    size = torch.finfo(torch.get_default_dtype()).bits // 8
    memory.require(
        config.children * per_child * size,
        f"the transformation of {config.children:,} primary into {config.classes} class capsules",
        "use fewer capsule types, fewer classes or smaller images",
    )


class CapsNet(ClassPoses):
    """The network of figure 1 with the decoder of figure 2, for any image size and class count.

    Parameters
    ----------
    image_shape  (C, H, W) of its images.
    classes      number of classes.
    options      fields of `Config`, e.g. routing="em", types=8; they override those of a preset.

    Raises
    ------
    ValueError   for an unknown preset or option, a value of the wrong type or out of range, fewer
                 than two classes, or images that are too small.
    MemoryError  if the weights alone would not fit.
    """

    settings: Config
    __signature__ = signature(Config)  # shown by `help`

    def __init__(
        self, image_shape: tuple[int, int, int] = (1, 28, 28), classes: int = 10, **options
    ):
        super().__init__()
        config = settings_from(Config, image_shape, classes, options)
        preset = preset_values(config.preset, classes)
        config = replace(config, **{k: v for k, v in preset.items() if k not in options})
        config = replace(config, **routing_values(config, options))
        module = routing.get(config.routing)
        if "types" not in options:
            config = replace(config, types=STEM_TYPES.get(config.stem, config.types))
        if config.primary == "auto":
            config = replace(config, primary=getattr(module, "CHILDREN", "squash"))
        if "final_temperature" in parameters(module.route) and "final_temperature" not in options:
            final = config.classes / max(config.children, 1)
            config = replace(config, final_temperature=final)
        check(config)
        if config.vote_std is None:
            config = replace(config, vote_std=initial_std(config.transform, config.children))
        self.settings = config
        types, dim = config.types, config.primary_dimensions
        if self.of_paper:
            self.conv1 = Convolution(config.image_shape[0], config.channels, KERNEL)
            scale = 1 / (types + config.leaky) if config.preset == "authors" else 1.0
            self.primary = PrimaryCapsules(
                config.channels, types=types, dimensions=dim, kernel=KERNEL, scale=scale
            )
        else:
            self.stem = stems.build(
                config.stem, config.image_shape, types, dim, channels=config.channels
            )
            self.to_capsules = children.ToCapsules(config.primary, types, dim)
            if config.primary in children.WITH_LOGITS:
                kernel, stride, padding = stems.layers(config.stem)[-1]
                self.logits = nn.Conv2d(self.stem.inner, types, kernel, stride, padding)
        self.capsules = CapsuleLayer(
            config.grid,
            config.classes,
            child_pose=(dim,),
            parent_pose=(config.class_dimensions,),
            routing=config.routing,
            iterations=config.iterations,
            bias=config.routing_bias,
            detach=config.detach_routing,
            leaky=config.leaky,
            transform=config.transform,
            std=config.vote_std,
            final_temperature=config.final_temperature,
            floor=config.floor,
        )
        if config.final_temperature is not None:
            floor, own = config.floor or em.FLOOR, self.capsules.learned
            begun = em.class_parameters(config.classes, config.final_temperature, floor)
            own.update({name: value for name, value in begun.items() if name in own})
        if routing.norms_parents(config.routing):
            self.capsules.norm = ParentNorm(config.classes)
        self.decoder = self.build_decoder(config.class_dimensions)
        if config.preset == "authors":
            self._initialise_as_authors()

    @property
    def of_paper(self) -> bool:
        """Return whether the network has the paper's stem with squashed capsules."""
        return self.settings.stem == "paper" and self.settings.primary == "squash"

    def encode(self, images: Tensor) -> Capsules:
        """Return primary capsules (B, I, D), and activations if any, of images (B, C, H, W)."""
        require_shape(images, self.settings.image_shape)
        if self.settings.standardised:
            images = functional.standardise(images)
        if self.of_paper:
            return Capsules(self.primary(self.conv1(images).relu()))
        before = self.stem.before(images)
        logits = self.logits(before) if hasattr(self, "logits") else None
        exact = torch.promote_types(images.dtype, torch.float32)
        features = self.stem.last(before).to(exact)
        with without_autocast(images.device):
            logits = None if logits is None else logits.to(exact)
            return self.to_capsules(features, logits)

    @property
    def routed(self) -> tuple[CapsuleLayer]:
        """Return the only routed layer."""
        return (self.capsules,)

    def receptive_field(self, row: int, column: int) -> tuple[slice, slice]:
        """Return rows and columns of the image that the capsules of one position see."""
        c = self.settings
        return stems.window(stems.layers(c.stem), c.image_shape, row, column)

    @property
    def image_bytes(self) -> int:
        """Estimate the peak memory of one image in a forward and backward pass, in bytes."""
        c, (channels, height, width) = self.settings, self.settings.image_shape
        if not self.of_paper:
            return 4 * 4 * 128 * height * width
        places = (height - KERNEL + 1) * (width - KERNEL + 1)
        features = 3 * c.channels * places  # conv1's output, its gradient, and that before the ReLU
        patches = channels * KERNEL**2 * places
        capsules = c.children * (6 * c.primary_dimensions + (c.iterations - 1) * c.classes)
        decoded = 0 if self.decoder is None else 2 * self.decoder.activations  # and gradients
        return 4 * (features + patches + capsules + decoded)

    def training_bytes(self, batch: int) -> int:
        """Estimate the peak memory of training in bytes: weights, gradients, Adam and a step."""
        parameters = sum(p.numel() for p in self.parameters())
        if not self.of_paper:
            return 16 * parameters + batch * self.image_bytes
        kernels, (_, rows, columns) = self.primary.convolution.weight, self.grid
        work = 4 * (3 * kernels.numel() + self.capsules.weight.numel()) + batch * self.image_bytes
        shape = (batch, kernels.shape[1], *(2 * n + KERNEL - 2 for n in (rows, columns)))
        features = torch.empty(shape, dtype=kernels.dtype, device="meta")
        work += convolution.workspace_bytes(features, kernels, 2)
        work += routing.workspace_bytes(kernels.device)
        return 16 * parameters + work

    def _initialise_as_authors(self) -> None:
        """Draw truncated normals of standard deviation 0.1 (0.05 in conv1), with biases of 0.1.

        Transposed convolutions and batch norm, which their code lacks, keep PyTorch's defaults.
        """
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                std = 0.05 if module is self.conv1 else 0.1
                nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
                if module.bias is not None:
                    nn.init.constant_(module.bias, 0.1)
        nn.init.trunc_normal_(self.capsules.weight, std=0.1, a=-0.2, b=0.2)


build = CapsNet
