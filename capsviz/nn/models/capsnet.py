"""CapsNet (Sabour, Frosst & Hinton 2017, arXiv:1710.09829): two convolutions, routing, a decoder.

Two presets, because paper and code differ:
    paper    the text of the paper; what it leaves open is PyTorch's default.
    authors  the code the authors published (Sarasra/models, research/capsules): initial weights,
             a bias inside routing, primary votes scaled by 1/types, and a margin loss that is
             averaged over classes, which makes the reconstruction weigh 20 times more.
"""

from collections.abc import Collection
from dataclasses import asdict, replace

import torch
from torch import Tensor, nn

from capsviz.nn import (
    allocator,
    children,
    convolution,
    decoders,
    functional,
    routing,
    stems,
)
from capsviz.nn.children import Capsules
from capsviz.nn.class_capsules import ClassCapsules
from capsviz.nn.computation import without_autocast
from capsviz.nn.convolution import convolve
from capsviz.nn.evidence import by_round
from capsviz.nn.models import Output
from capsviz.nn.models._capsnet_config import (
    KERNEL,
    PRESETS,
    Config,
    check,
    preset_values,
    routing_values,
)
from capsviz.nn.models._class_poses import ClassPoses
from capsviz.nn.models._settings import settings_from
from capsviz.nn.primary_capsules import PrimaryCapsules
from capsviz.nn.routing import Parents
from capsviz.nn.routing_layer import initial_std

__all__ = ["PRESETS", "CapsNet", "build"]

# Parts of a trace that need its votes
INSIDE_ROUTING = {"votes", "logits", "couplings", "weights", "evidence", "poses"}


def build(image_shape: tuple[int, int, int], classes: int, **options) -> "CapsNet":
    """A CapsNet, as `CapsNet` makes it."""
    return CapsNet(image_shape, classes, **options)


class CapsNet(ClassPoses):
    """The network of figure 1 with the decoder of figure 2, for any image size and class count.

    Parameters
    ----------
    image_shape  (C, H, W) of its images.
    classes      how many.
    options      fields of `capsviz/nn/models/_capsnet_config.py`, e.g. routing="em", types=8; a
                 preset's values hold where none is given.

    Raises
    ------
    ValueError   for an unknown preset or option, a value of another type or out of range, fewer
                 than two classes, or images too small.
    MemoryError  if the weights alone would not fit.
    """

    def __init__(
        self, image_shape: tuple[int, int, int] = (1, 28, 28), classes: int = 10, **options
    ):
        super().__init__()
        config = settings_from(Config, "capsnet", image_shape, classes, options)
        preset = preset_values(config.preset, classes)
        config = replace(config, **{k: v for k, v in preset.items() if k not in options})
        config = replace(config, **routing_values(config, options))
        check(config)
        if config.vote_std is None:
            config = replace(config, vote_std=initial_std(config.transform, config.children))
        self.settings = config
        types, dim = config.types, config.primary_dimensions
        if self.of_paper:
            conv1 = nn.Conv2d(config.image_shape[0], config.channels, KERNEL)
            self.conv1 = conv1.to(memory_format=torch.channels_last)
            scale = 1 / (types + config.leaky) if config.preset == "authors" else 1.0
            self.primary = PrimaryCapsules(
                config.channels, types=types, dimensions=dim, kernel=KERNEL, scale=scale
            )
        else:
            self.stem = stems.build(config.stem, config.image_shape, types, dim)
            self.to_capsules = children.build(config.primary, types, dim)
            if config.primary in children.WITH_LOGITS:
                kernel, stride, padding = self.stem.layers[-1]
                self.logits = nn.Conv2d(self.stem.inner, types, kernel, stride, padding)
        self.capsules = ClassCapsules(
            config.children,
            config.classes,
            child_dimensions=dim,
            parent_dimensions=config.class_dimensions,
            routing=config.routing,
            iterations=config.iterations,
            bias=config.routing_bias,
            detach=config.detach_routing,
            leaky=config.leaky,
            transform=config.transform,
            types=types,
            std=config.vote_std,
            final_temperature=config.final_temperature,
            floor=config.floor,
        )
        self.decoder = None
        if config.reconstruction_weight > 0:
            shape = (config.classes, config.class_dimensions, config.image_shape)
            sizes = {"hidden": config.hidden} if config.decoder == "fully_connected" else {}
            self.decoder = decoders.Decoder(
                config.decoder, *shape, norm=config.decoder_norm, **sizes
            )
        if config.preset == "authors":
            self._initialise_as_authors()

    @property
    def config(self) -> dict:
        """What `build` needs to make this network again, as plain data for a card."""
        return asdict(self.settings)

    @property
    def of_paper(self) -> bool:
        """Whether the stem is the paper's, fast, with squashed capsules."""
        return self.settings.stem == "paper" and self.settings.primary == "squash"

    def encode(self, images: Tensor) -> Capsules:
        """Images (B, C, H, W) -> primary capsules (B, I, D), and their activations if they have."""
        expected = self.settings.image_shape
        if images.dim() != 4 or tuple(images.shape[1:]) != expected:
            raise ValueError(f"expected images (B, {expected}), got {tuple(images.shape)}")
        if self.settings.standardised:
            images = functional.standardise(images)
        if self.of_paper:
            features = convolve(images, self.conv1.weight, self.conv1.bias)
            return Capsules(self.primary(features.relu()))
        before = self.stem.before(images)
        logits = self.logits(before) if hasattr(self, "logits") else None
        exact = torch.promote_types(images.dtype, torch.float32)
        features = self.stem.last(before).to(exact)
        with without_autocast(images.device):
            logits = None if logits is None else logits.to(exact)
            return self.to_capsules(features, self.settings.types, logits)

    def forward(self, images: Tensor) -> Output:
        """Images (B, C, H, W) in [0, 1] -> lengths (B, J), poses (B, J, E), primary (B, I, D)."""
        primary, active = self.encode(images)
        poses, activations = self.from_children(primary, active)
        return Output(activations, poses, primary)

    def from_children(
        self, children: Tensor, activations: Tensor | None = None, *, couplings=None
    ) -> Parents:
        """The classes, of children (B, I, D) that need not be those of an image."""
        return self.capsules.couple(children, activations, couplings)

    def look(
        self,
        images: Tensor,
        *,
        keep: Collection[str],
        couplings: Tensor | None = None,
        iterations: int | None = None,
    ) -> dict[str, Tensor]:
        """One forward pass for `capsviz.tracing`; votes only where asked for."""
        primary, active = self.encode(images)
        if couplings is None and iterations is None and not INSIDE_ROUTING & set(keep):
            poses, activations = self.capsules.couple(primary, active)
            parts = {"primary": primary}
        else:
            votes, routed = self.capsules.route(
                primary, activations=active, couplings=couplings, iterations=iterations
            )
            poses, activations = routed.poses[-1], routed.activations[-1]
            parts = {"primary": primary, "votes": votes, **routed._asdict()}
        parts["lengths"] = activations
        children = functional.lengths(primary) if active is None else active
        parts["child_activations"] = children
        if "couplings" in parts and self.capsules.weighs:
            parts["weights"] = self.capsules.weights(parts["couplings"], children)
        if "evidence" in keep and routing.has_evidence(self.settings.routing):
            parts["evidence"] = by_round(self.capsules.evidence, votes, routed, children)
            parts["quantity"] = self.capsules.quantity
        if self.decoder is not None and "reconstruction" in keep:
            parts["reconstruction"] = self.decode(poses, functional.predict(activations))
        return parts

    @property
    def grid(self) -> tuple[int, int, int]:
        """(types, rows, columns): capsule i = (type * rows + row) * columns + column."""
        return self.settings.grid

    def receptive_field(self, row: int, column: int) -> tuple[slice, slice]:
        """Rows and columns of the image that the primary capsules of one place can see."""
        if not self.of_paper:
            return self.stem.receptive_field(row, column)
        size = 2 * KERNEL - 1
        return slice(2 * row, 2 * row + size), slice(2 * column, 2 * column + size)

    @property
    def image_bytes(self) -> int:
        """Memory that one image takes on its way through the network and back, at most about."""
        c, (channels, height, width) = self.settings, self.settings.image_shape
        if not self.of_paper:
            return 4 * 4 * 128 * height * width
        places = (height - KERNEL + 1) * (width - KERNEL + 1)
        features = 3 * c.channels * places  # conv1's result, its gradient, and that before the ReLU
        patches = channels * KERNEL**2 * places
        capsules = c.children * (6 * c.primary_dimensions + (c.iterations - 1) * c.classes)
        decoded = 0 if self.decoder is None else 2 * self.decoder.activations  # and gradients
        return 4 * (features + patches + capsules + decoded)

    def training_bytes(self, batch: int) -> int:
        """Memory of training with a batch, at most about: weights, gradients, Adam, and a step."""
        parameters = sum(p.numel() for p in self.parameters())
        if not self.of_paper:
            return 16 * parameters + batch * self.image_bytes
        kernels, (_, rows, columns) = self.primary.convolution.weight, self.grid
        work = 4 * (3 * kernels.numel() + self.capsules.weight.numel()) + batch * self.image_bytes
        shape = (batch, kernels.shape[1], *(2 * n + KERNEL - 2 for n in (rows, columns)))
        features = torch.empty(shape, dtype=kernels.dtype, device="meta")
        work += convolution.workspace_bytes(features, kernels, 2)
        work += routing.workspace_bytes(kernels.device)
        if allocator.kept() and not kernels.is_cuda:
            work *= 2  # some lies in pieces too small to use again
        return 16 * parameters + work

    def _initialise_as_authors(self) -> None:
        """Truncated normals of standard deviation 0.1 (0.05 in conv1), all biases 0.1.

        What their code does not have, transposed convolutions and batch norm, keeps PyTorch's.
        """
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                std = 0.05 if module is self.conv1 else 0.1
                nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
                if module.bias is not None:
                    nn.init.constant_(module.bias, 0.1)
        nn.init.trunc_normal_(self.capsules.weight, std=0.1, a=-0.2, b=0.2)
