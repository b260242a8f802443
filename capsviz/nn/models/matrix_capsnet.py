"""Matrix capsules with EM routing (Hinton, Sabour & Frosst 2018): three routed layers.

The network has a 5x5 convolution, primary capsules, two convolutional capsule layers with 3x3
windows, and class capsules that see all positions, with coordinate addition. Poses are 4x4
matrices with separate activations. By default A = 64 channels and B, C, D = 8, 16, 16 types, as in
published reruns; the paper has 32 of each. Initial transformations are those of the authors.

Two things differ from the authors' code. EM's betas start at beta_u = 1.42 and beta_a = 0 in all
layers; the authors have 0.71 and -1250, for the classes 2.84 and -2500. The limit of the inverse
temperature is J/I, parent types by children, in each layer: the cost behind an activation grows
with a parent's mass, so with few capsules all activations would otherwise stay near 1/2.

Another routing may be chosen. If it needs batch norm of parents, each layer has one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from capsviz import memory
from capsviz.discovery import parameters
from capsviz.nn import children, functional, routing, stems
from capsviz.nn.capsule_layer import CapsuleLayer, ParentNorm
from capsviz.nn.children import Capsules
from capsviz.nn.computation import without_autocast
from capsviz.nn.images import require_shape
from capsviz.nn.models._bases import (
    ClassPoses,
    require_class_poses,
    require_used,
    routing_values,
    settings_from,
)
from capsviz.validation import Above, Positive, Sizes, Weight

STDS = (0.3, 0.3, 0.01)  # of the initial transformations, layer by layer
KERNELS = ((5, 2, 2), (1, 1, 0), (3, 2, 0), (3, 1, 0))  # (kernel, stride, padding) to the classes


@dataclass(frozen=True)
class Config:
    """All settings of a matrix capsule network and of its losses."""

    image_shape: tuple[int, int, int] = (1, 28, 28)  # C, H, W
    classes: int = 10
    channels: Positive = 64  # A, of the convolution
    types: tuple[Positive, Positive, Positive] = (8, 16, 16)  # B, C, D: primary, next two layers
    pose: tuple[int, int] = (4, 4)  # rows and columns of all poses
    routing: str = "em"  # a file in capsviz/nn/routing
    iterations: int = 2  # of routing, in every layer
    final_temperature: Above | None = None  # of EM routing, in every layer; None: J/I of each
    objective: Literal["auto", functional.Objective] = "auto"  # the routing's own
    decoder: str = "fully_connected"  # a file in capsviz/nn/decoders
    decoder_norm: bool = False  # batch norm in its hidden layers
    hidden: Sizes = (512, 1024)  # units of the fully connected decoder
    reconstruction_metric: functional.Metric = "l2"  # sum of squares; "l1": of absolute values
    reconstruction_weight: Weight = 0.0  # weight of that sum; 0: no decoder, as published
    margin_present: float = 0.9  # m+ of the margin loss
    margin_absent: float = 0.1  # m-
    absent_weight: Weight = 0.5  # lambda

    @property
    def grids(self) -> list[tuple[int, int, int]]:
        """Return (types, rows, columns) of the children of each routed layer."""
        height, width = self.image_shape[1:]
        layers = [KERNELS[: n + 2] for n in range(len(self.types))]
        return [
            (types, stems.places(height, before), stems.places(width, before))
            for types, before in zip(self.types, layers, strict=True)
        ]


def check(config: Config) -> None:
    """Raise ValueError for inconsistent settings, MemoryError for too large a network."""
    require_class_poses(config)
    cooled = "final_temperature" in parameters(routing.get(config.routing).route)
    require_used(config, "final_temperature", cooled, f"on the routing '{config.routing}'")
    if min(config.pose) < 2 or config.pose[0] != config.pose[1]:
        raise ValueError(f"pose must be a square matrix, at least 2 x 2, got {config.pose}")
    sides = [min(grid[1:]) for grid in config.grids]
    channels, height, width = config.image_shape
    if channels < 1 or sides[2] < 1:
        raise ValueError(
            f"images of {channels} x {height} x {width} are too small for two capsule layers of "
            "3x3 windows: expected at least 1 x 13 x 13; enlarge or pad them"
        )
    _, parents, last = config.types
    slots = 9 * (config.types[0] * parents + parents * last)
    memory.require(
        16 * config.pose[0] ** 2 * (slots + last * config.classes),
        "the transformations of the capsules",
        "use fewer capsule types",
    )


def temperature(config: Config, grid: tuple, parents: int, kernel: int | None) -> dict[str, Any]:
    """Return the temperature option of a layer's routing, if it has one."""
    if "final_temperature" not in parameters(routing.get(config.routing).route):
        return {}
    types, rows, columns = grid
    slots = types * (rows * columns if kernel is None else kernel**2)
    final = config.final_temperature
    return {"final_temperature": parents / slots if final is None else final}


class MatrixCapsNet(ClassPoses):
    """The network of figure 1 of the paper, with an optional decoder.

    Parameters and errors are those of `CapsNet`; options are the fields of `Config`.
    """

    settings: Config
    __signature__ = signature(Config)  # shown by `help`
    pose_shape: tuple[int, int]

    def __init__(self, image_shape: tuple[int, int, int], classes: int, **options):
        super().__init__()
        config = settings_from(Config, image_shape, classes, options)
        config = replace(config, **routing_values(config, options))
        check(config)
        self.settings, self.pose_shape = config, config.pose
        numbers = config.pose[0] * config.pose[1]
        kernel, stride, padding = KERNELS[0]
        self.conv1 = nn.Conv2d(config.image_shape[0], config.channels, kernel, stride, padding)
        types = config.types[0]
        self.poses = nn.Conv2d(config.channels, types * numbers, 1)
        nn.init.normal_(self.poses.weight, std=0.5)
        kind, self.logits = getattr(routing.get(config.routing), "CHILDREN", "squash"), None
        if kind in children.WITH_LOGITS:
            self.logits = nn.Conv2d(config.channels, types, 1)
            nn.init.normal_(self.logits.weight, std=3.0)
        self.to_capsules = children.ToCapsules(kind, types, numbers)
        parents = (*config.types[1:], config.classes)
        kernels, strides = (KERNELS[2][0], KERNELS[3][0], None), (KERNELS[2][1], KERNELS[3][1], 1)
        self.layers = cast(
            "Sequence[CapsuleLayer]",
            nn.ModuleList(
                CapsuleLayer(
                    grid,
                    parents[n],
                    child_pose=config.pose,
                    parent_pose=config.pose,
                    kernel=kernels[n],
                    stride=strides[n],
                    transform="type" if n == 2 else "own",
                    coordinates=n == 2,
                    routing=config.routing,
                    iterations=config.iterations,
                    std=STDS[n],
                    **temperature(config, grid, parents[n], kernels[n]),
                )
                for n, grid in enumerate(config.grids)
            ),
        )
        if routing.norms_parents(config.routing):
            self.norms = nn.ModuleList(ParentNorm(layer.parent_types) for layer in self.layers)
            for layer, norm in zip(self.layers, self.norms, strict=True):
                vars(layer)["norm"] = norm  # used there, but registered as a module only here
        self.decoder = self.build_decoder(numbers)

    def encode(self, images: Tensor) -> Capsules:
        """Return primary capsules (B, I, 16) and activations (B, I) of images (B, C, H, W)."""
        require_shape(images, self.settings.image_shape)
        features = self.conv1(images).relu()
        exact = torch.promote_types(images.dtype, torch.float32)
        poses = self.poses(features).to(exact)
        logits = None if self.logits is None else self.logits(features).to(exact)
        with without_autocast(images.device):
            return self.to_capsules(poses, logits)

    @property
    def routed(self) -> Sequence[CapsuleLayer]:
        """Return the routed layers, from the images up."""
        return self.layers

    @property
    def grids(self) -> list[tuple[int, int, int]]:
        """Return (types, rows, columns) of the children of each routed layer."""
        return [layer.child_grid for layer in self.layers]

    def receptive_field(self, row: int, column: int, layer: int = -1) -> tuple[slice, slice]:
        """Return rows and columns of the image that a position of a layer's children sees.

        If positions compete for children, as in EM routing, couplings also depend on the rest of
        the image.
        """
        layers = KERNELS[: 2 + range(len(self.layers))[layer]]
        return stems.window(layers, self.settings.image_shape, row, column)

    @property
    def image_bytes(self) -> int:
        """Estimate the peak memory of one image in a forward and backward pass, in bytes."""
        numbers = self.pose_shape[0] * self.pose_shape[1]
        (_, rows, columns), work = self.grids[0], 0
        for layer in self.layers:
            places = layer.grid[1] * layer.grid[2]
            couplings = places * layer.slots * layer.parent_types * self.settings.iterations
            work += 3 * (couplings + places * layer.slots * numbers)
        decoded = 0 if self.decoder is None else 2 * self.decoder.activations
        return 4 * (3 * self.settings.channels * rows * columns + work + decoded)

    def training_bytes(self, batch: int) -> int:
        """Estimate the peak memory of training in bytes: weights, gradients, Adam and a step."""
        work = routing.workspace_bytes(self.conv1.weight.device)
        return 16 * sum(p.numel() for p in self.parameters()) + batch * self.image_bytes + work


build = MatrixCapsNet
