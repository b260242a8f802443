"""CapsNet (Sabour, Frosst & Hinton 2017, arXiv:1710.09829): two convolutions, routing, a decoder.

Two presets, because paper and code differ:
    paper    the text of the paper; what it leaves open is PyTorch's default.
    authors  the code the authors published (Sarasra/models, research/capsules): initial weights,
             a bias inside routing, primary votes scaled by 1/types, and a margin loss that is
             averaged over classes, which makes the reconstruction weigh 20 times more.
"""

from collections.abc import Collection
from dataclasses import asdict, dataclass, fields

import torch
from torch import Tensor, nn

from capsviz import allocator, convolution, functional, memory
from capsviz.convolution import convolve
from capsviz.decoders import FullyConnected
from capsviz.discovery import unknown
from capsviz.layers import ClassCapsules, PrimaryCapsules
from capsviz.models import Objective, Output
from capsviz.routing import _blocked

KERNEL = 9
INSIDE_ROUTING = {"votes", "logits", "couplings", "poses"}  # parts of a trace that need its votes


@dataclass(frozen=True)
class Config:
    """Everything that fixes a CapsNet, its losses included."""

    image_shape: tuple[int, int, int] = (1, 28, 28)  # C, H, W
    classes: int = 10
    preset: str = "paper"  # or "authors": initial weights and the scale of primary votes
    channels: int = 256  # of the first convolution
    types: int = 32  # primary capsule types
    primary_dimensions: int = 8  # D
    class_dimensions: int = 16  # E
    routing: str = "dynamic"  # a file in capsviz/routing
    iterations: int = 3  # of routing
    routing_bias: bool = False  # learn a bias of s_j inside routing
    detach_routing: bool = False  # gradients flow through the last iteration only
    hidden: tuple[int, ...] = (512, 1024)  # of the decoder
    reconstruction_weight: float = 0.0005  # of the SSE, beside the margin loss; 0: no decoder

    @property
    def grid(self) -> tuple[int, int, int]:
        """(types, rows, columns) of the primary capsules."""
        _, height, width = self.image_shape
        return (self.types, *((side - KERNEL + 1 - KERNEL) // 2 + 1 for side in (height, width)))

    @property
    def children(self) -> int:
        """I, the number of primary capsules."""
        types, rows, columns = self.grid
        return types * rows * columns


def preset_values(preset: str, classes: int) -> dict:
    """What a preset sets; ValueError for an unknown one."""
    if preset == "paper":
        return {}
    if preset == "authors":
        # Their margin loss is halved and averaged over J classes, so beside a sum over classes
        # their 0.0005 weighs 0.0005 * 2J: 0.01 for ten classes.
        return {"routing_bias": True, "reconstruction_weight": 0.001 * classes}
    raise ValueError(unknown("preset", preset, ["paper", "authors"]))


def build(image_shape: tuple[int, int, int], classes: int, **options) -> "CapsNet":
    """A CapsNet from the fields of `Config`; a preset's values hold where none is given.

    Raises
    ------
    ValueError   for an unknown preset or option, fewer than two classes, or images too small.
    MemoryError  if the weights alone would not fit.
    """
    values = preset_values(options.get("preset", "paper"), classes)
    known = {field.name for field in fields(Config)}
    if strange := sorted(set(options) - known):
        raise ValueError(unknown("capsnet option", strange[0], sorted(known)))
    values |= {"image_shape": tuple(image_shape), "classes": classes, **options}
    values["hidden"] = tuple(values.get("hidden", Config.hidden))
    return CapsNet(Config(**values))


class CapsNet(nn.Module):
    """The network of figure 1 with the decoder of figure 2, for any image size and class count."""

    def __init__(self, config: Config):
        super().__init__()
        _check(config)
        self.settings = config
        types, dim = config.types, config.primary_dimensions
        self.conv1 = nn.Conv2d(config.image_shape[0], config.channels, KERNEL)
        scale = 1 / types if config.preset == "authors" else 1.0
        self.primary = PrimaryCapsules(
            config.channels, types=types, dimensions=dim, kernel=KERNEL, scale=scale
        )
        self.capsules = ClassCapsules(
            config.children,
            config.classes,
            child_dimensions=dim,
            parent_dimensions=config.class_dimensions,
            routing=config.routing,
            iterations=config.iterations,
            bias=config.routing_bias,
            detach=config.detach_routing,
        )
        self.decoder = None
        if config.reconstruction_weight > 0:
            self.decoder = FullyConnected(
                config.classes, config.class_dimensions, config.image_shape, config.hidden
            )
        if config.preset == "authors":
            self._initialise_as_authors()

    @property
    def config(self) -> dict:
        """What `build` needs to make this network again, as plain data for a card."""
        return asdict(self.settings)

    def encode(self, images: Tensor) -> Tensor:
        """Images (B, C, H, W) -> primary capsules (B, I, D)."""
        expected = self.settings.image_shape
        if images.dim() != 4 or tuple(images.shape[1:]) != expected:
            raise ValueError(f"expected images (B, {expected}), got {tuple(images.shape)}")
        features = convolve(images, self.conv1.weight, self.conv1.bias)
        return self.primary(features.relu())

    def forward(self, images: Tensor) -> Output:
        """Images (B, C, H, W) in [0, 1] -> lengths (B, J), poses (B, J, E), primary (B, I, D)."""
        primary = self.encode(images)
        poses = self.capsules(primary)
        return Output(functional.lengths(poses), poses, primary)

    def decode(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Reconstruct from the poses (B, J, E) of `classes` (B,): images (B, C, H, W) in [0, 1]."""
        if self.decoder is None:
            raise ValueError("this CapsNet was built without a decoder (reconstruction_weight 0)")
        return self.decoder(poses, classes)

    def look(
        self,
        images: Tensor,
        *,
        keep: Collection[str],
        couplings: Tensor | None = None,
        iterations: int | None = None,
    ) -> dict[str, Tensor]:
        """One forward pass for `capsviz.tracing`; votes only where asked for."""
        primary = self.encode(images)
        if couplings is None and iterations is None and not INSIDE_ROUTING & set(keep):
            poses, seen = self.capsules(primary), {"primary": primary}
        else:
            votes, routing = self.capsules.route(
                primary, couplings=couplings, iterations=iterations
            )
            poses = routing.poses[-1]
            seen = {"primary": primary, "votes": votes, **routing._asdict()}
        seen["lengths"] = functional.lengths(poses)
        if self.decoder is not None and "reconstruction" in keep:
            seen["reconstruction"] = self.decode(poses, functional.predict(seen["lengths"]))
        return seen

    @property
    def grid(self) -> tuple[int, int, int]:
        """(types, rows, columns): capsule i = (type * rows + row) * columns + column."""
        return self.settings.grid

    def receptive_field(self, row: int, column: int) -> tuple[slice, slice]:
        """Rows and columns of the image that the primary capsules of one place can see."""
        size = 2 * KERNEL - 1
        return slice(2 * row, 2 * row + size), slice(2 * column, 2 * column + size)

    @property
    def image_bytes(self) -> int:
        """Memory that one image takes on its way through the network and back, at most about."""
        c, (channels, height, width) = self.settings, self.settings.image_shape
        places = (height - KERNEL + 1) * (width - KERNEL + 1)
        features = 3 * c.channels * places  # conv1's result, its gradient, and that before the ReLU
        patches = channels * KERNEL**2 * places
        capsules = c.children * (6 * c.primary_dimensions + (c.iterations - 1) * c.classes)
        return 4 * (features + patches + capsules)

    def training_bytes(self, batch: int) -> int:
        """Memory of training with a batch, at most about: weights, gradients, Adam, and a step."""
        parameters = sum(p.numel() for p in self.parameters())
        kernels, (_, rows, columns) = self.primary.convolution.weight, self.grid
        work = 4 * (3 * kernels.numel() + self.capsules.weight.numel()) + batch * self.image_bytes
        work += convolution.workspace_bytes(kernels, rows * columns)
        work += _blocked.workspace_bytes(kernels.device)
        if allocator.kept() and not kernels.is_cuda:  # some lies in pieces too small to use again
            work *= 2
        return 16 * parameters + work

    def objective(self, output: Output, images: Tensor, labels: Tensor) -> Objective:
        """Margin loss plus weighted SSE, the decoder masked by the true class (training)."""
        margin = functional.margin_loss(output.lengths, labels)
        if self.decoder is None:
            return Objective(margin.mean(), margin)
        sse = functional.reconstruction_loss(images, self.decode(output.poses, labels))
        return Objective((margin + self.settings.reconstruction_weight * sse).mean(), margin, sse)

    def _initialise_as_authors(self) -> None:
        """Truncated normals of standard deviation 0.1 (0.05 in conv1), all biases 0.1."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                std = 0.05 if module is self.conv1 else 0.1
                nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
                nn.init.constant_(module.bias, 0.1)
        nn.init.trunc_normal_(self.capsules.weight, std=0.1, a=-0.2, b=0.2)


def _check(config: Config) -> None:
    channels, height, width = config.image_shape
    smallest = 2 * KERNEL - 1
    if min(height, width) < smallest or channels < 1:
        raise ValueError(
            f"images of {channels} x {height} x {width} are too small for two {KERNEL}x{KERNEL} "
            f"convolutions: expected at least 1 x {smallest} x {smallest}; enlarge or pad them"
        )
    if config.classes < 2:
        raise ValueError(f"a classifier needs at least 2 classes, got {config.classes}")
    for name in ("channels", "types", "primary_dimensions", "class_dimensions"):
        if getattr(config, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(config, name)}")
    if config.reconstruction_weight < 0:
        raise ValueError(
            f"reconstruction_weight must not be negative, got {config.reconstruction_weight}"
        )
    per_child = config.classes * config.class_dimensions * config.primary_dimensions
    size = torch.finfo(torch.get_default_dtype()).bits // 8
    memory.require(
        config.children * per_child * size,
        f"the transformation of {config.children:,} primary into {config.classes} class capsules",
        "use fewer capsule types, fewer classes or smaller images",
    )
