"""Matrix capsules with EM routing (Hinton, Sabour & Frosst 2018): three routed layers.

A 5x5 convolution, primary capsules of it, two convolutional capsule layers of 3x3 windows, class
capsules that see all places and are told where their children are. Poses are matrices of 4x4, each
with an activation beside it. By default A = 64 channels and B, C, D = 8, 16, 16 types, as in
published reruns; the paper has 32 of each. Initial transformations are the authors'. EM's betas are
not: they start as in any layer, beta_u at 1.42 and beta_a at 0, where the authors have 0.71 and
-1250, for the classes 2.84 and -2500. Nor is the temperature: an activation is read from a cost
that grows with a parent's mass, so with fewer capsules all activations would stay near 1/2; here
its limit is J/I, parents' types by children, of each layer. Another routing may be given; where it
asks for batch norm of parents, each layer has one.
"""

from collections.abc import Collection
from dataclasses import asdict

import torch
from torch import Tensor, nn

from capsviz.nn import children, decoders, functional, routing, stems
from capsviz.nn.capsule_layer import CapsuleLayer
from capsviz.nn.children import Capsules
from capsviz.nn.computation import without_autocast
from capsviz.nn.evidence import by_round
from capsviz.nn.models import Output
from capsviz.nn.models._class_poses import ClassPoses
from capsviz.nn.models._matrix_config import KERNELS, Config, chosen, temperature
from capsviz.nn.parent_norm import ParentNorm
from capsviz.nn.routing import Parents, Routing

STDS = (0.3, 0.3, 0.01)  # of the initial transformations, layer by layer


def build(image_shape: tuple[int, int, int], classes: int, **options) -> "MatrixCapsNet":
    """A network from the fields of `Config`.

    Raises
    ------
    ValueError   for an unknown option, a value of another type or out of range, poses that are no
                 matrix of at least 2 x 2, fewer than two classes, or images too small.
    MemoryError  if the weights alone would not fit.
    """
    return MatrixCapsNet(chosen(image_shape, classes, options))


class MatrixCapsNet(ClassPoses):
    """Figure 1 of the paper, with a decoder if it is asked for."""

    pose_shape: tuple[int, int]

    def __init__(self, config: Config):
        super().__init__()
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
        self.to_capsules = children.build(kind, types, numbers)
        parents = (*config.types[1:], config.classes)
        kernels, strides = (KERNELS[2][0], KERNELS[3][0], None), (KERNELS[2][1], KERNELS[3][1], 1)
        self.layers = nn.ModuleList(
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
        )
        self.norms = nn.ModuleList(
            ParentNorm(J) if routing.norms_parents(config.routing) else nn.Identity()
            for J in parents
        )
        self.decoder = None
        if config.reconstruction_weight > 0:
            sizes = {"hidden": config.hidden} if config.decoder == "fully_connected" else {}
            self.decoder = decoders.Decoder(
                config.decoder, config.classes, numbers, config.image_shape,
                norm=config.decoder_norm, **sizes,
            )  # fmt: skip

    @property
    def config(self) -> dict:
        """What `build` needs to make this network again, as plain data for a card."""
        return asdict(self.settings)

    def encode(self, images: Tensor) -> Capsules:
        """Images (B, C, H, W) -> primary capsules (B, I, 16) and their activations (B, I)."""
        expected = self.settings.image_shape
        if images.dim() != 4 or tuple(images.shape[1:]) != expected:
            raise ValueError(f"expected images (B, {expected}), got {tuple(images.shape)}")
        features = self.conv1(images).relu()
        exact = torch.promote_types(images.dtype, torch.float32)
        poses = self.poses(features).to(exact)
        logits = None if self.logits is None else self.logits(features).to(exact)
        with without_autocast(images.device):
            return self.to_capsules(poses, self.settings.types[0], logits)

    def forward(self, images: Tensor) -> Output:
        """Images (B, C, H, W) in [0, 1] -> activations (B, J), poses (B, J, 16), primary."""
        primary, active = self.encode(images)
        poses, activations = self.from_children(primary, active, layer=0)
        return Output(activations, poses, primary)

    def from_children(
        self,
        children: Tensor,
        activations: Tensor | None = None,
        *,
        layer: int = -1,
        couplings=None,
    ) -> Parents:
        """The classes, of children (B, count, 16) of a layer that need not be those of an image.

        Couplings are put in, in that layer alone; ValueError for a layer that is not there.
        """
        parents = Parents(children, activations)
        for n in range(self._number(layer), len(self.layers)):
            parents = self._normed(n, self.layers[n](*parents, couplings))
            couplings = None
        return parents

    def look(
        self,
        images: Tensor,
        *,
        keep: Collection[str],
        layer: int = -1,
        couplings: Tensor | None = None,
        iterations: int | None = None,
    ) -> dict[str, Tensor]:
        """One forward pass for `capsviz.tracing`, which shows one routed layer of the three.

        Couplings are put in, and iterations changed, in that layer alone; ValueError for a layer
        that is not there, or iterations of a routing that has one pass.
        """
        number = self._number(layer)
        capsules, norm = self.layers[number], self.norms[number]
        poses, active = self.encode(images)
        for n in range(number):
            poses, active = self._normed(n, self.layers[n](poses, active))
        active = functional.lengths(poses) if active is None else active
        votes, routed = capsules.route(poses, active, couplings=couplings, iterations=iterations)
        parts = {"primary": poses, "child_activations": active, "votes": votes}
        routed = self._each_normed(number, routed)
        parts |= routed._asdict()
        if capsules.links is not None:
            parts["links"] = capsules.links
        if capsules.weighs:
            parts["weights"] = capsules.weights(routed.couplings, active)
        if "evidence" in keep and routing.has_evidence(self.settings.routing):
            parts["evidence"] = by_round(capsules.evidence, votes, routed, active)
            if isinstance(norm, ParentNorm):
                parts["evidence"] = parts["evidence"] / norm.logit_std
            parts["quantity"] = capsules.quantity
        parts["lengths"] = routed.activations[-1]
        if self.decoder is not None and "reconstruction" in keep:
            poses, active = capsules.by_type(routed.poses[-1], routed.activations[-1])
            if number + 1 < len(self.layers):
                poses, active = self.from_children(poses, active, layer=number + 1)
            parts["reconstruction"] = self.decode(poses, functional.predict(active))
        return parts

    def _number(self, layer: int) -> int:
        """Of a routed layer by any index; ValueError for one that is not there."""
        count = len(self.layers)
        if not -count <= layer < count:
            raise ValueError(
                f"this network has {count} routed layers: expected layer {-count} to {count - 1}, "
                f"got {layer}"
            )
        return layer % count

    def _normed(self, layer: int, parents: Parents) -> Parents:
        """Parents of a layer (B, J * places, E), with batch norm by type where the routing asks."""
        norm = self.norms[layer]
        if isinstance(norm, nn.Identity):
            return parents
        poses, active = (
            part.unflatten(1, (self.layers[layer].parent_types, -1)) for part in parents
        )
        normed = norm(poses.flatten(2), active)
        return Parents(normed.poses.view_as(parents.poses), normed.activations.flatten(1))

    def _each_normed(self, layer: int, routed: Routing) -> Routing:
        """The same of what happened in each iteration: poses (R, B, [Q,] J, E)."""
        if isinstance(self.norms[layer], nn.Identity):
            return routed
        poses, active = routed.poses.transpose(-3, -2), routed.activations.transpose(-2, -1)
        if self.layers[layer].links is None:
            poses, active = routed.poses, routed.activations
        each = [
            self._normed(layer, Parents(p.flatten(1, -2), a.flatten(1)))
            for p, a in zip(poses, active, strict=True)
        ]
        poses = torch.stack([one.poses for one in each]).view(poses.shape)
        active = torch.stack([one.activations for one in each]).view(active.shape)
        if self.layers[layer].links is not None:
            poses, active = poses.transpose(-3, -2), active.transpose(-2, -1)
        return routed._replace(poses=poses, activations=active)

    @property
    def grids(self) -> list[tuple[int, int, int]]:
        """(types, rows, columns) of the children of each routed layer."""
        return self.settings.grids

    @property
    def grid(self) -> tuple[int, int, int]:
        """That of the children of the classes."""
        return self.grids[-1]

    def receptive_field(self, row: int, column: int, layer: int = -1) -> tuple[slice, slice]:
        """Rows and columns of the image that votes for a layer's children come from, at a place.

        Where the places of a layer compete for its children, as in EM routing, what lies elsewhere
        has its say in how votes are shared out.
        """
        layers = KERNELS[: 2 + layer % len(self.layers)]
        return stems.window(layers, self.settings.image_shape, row, column)

    @property
    def image_bytes(self) -> int:
        """Memory that one image takes on its way through the network and back, at most about."""
        numbers = self.pose_shape[0] * self.pose_shape[1]
        (_, rows, columns), work = self.grids[0], 0
        for layer in self.layers:
            places = layer.grid[1] * layer.grid[2]
            couplings = places * layer.slots * layer.parent_types * self.settings.iterations
            work += 3 * (couplings + places * layer.slots * numbers)
        decoded = 0 if self.decoder is None else 2 * self.decoder.activations
        return 4 * (3 * self.settings.channels * rows * columns + work + decoded)

    def training_bytes(self, batch: int) -> int:
        """Memory of training with a batch, at most about: weights, gradients, Adam, and a step."""
        work = routing.workspace_bytes(self.conv1.weight.device)
        return 16 * sum(p.numel() for p in self.parameters()) + batch * self.image_bytes + work
