"""Networks that capsviz is compared with: the floor, and a literal transcription of the paper."""

import torch
from torch import Tensor, nn

from capsviz.nn import functional
from capsviz.nn.convolution import convolve
from capsviz.nn.models import Output
from capsviz.nn.models.capsnet import CapsNet

VOTE_TENSORS = 17  # tensors as large as the votes, at the peak of a literal step


class Floor(nn.Module):
    """The two convolutions of CapsNet and a squash, which every CapsNet needs.

    There is no routing, class capsule or decoder; the loss is the mean square of the primary
    capsules. `plain` convolves by `nn.Conv2d`, otherwise by the convolutions of capsviz.
    """

    def __init__(self, image_shape: tuple[int, int, int] = (1, 28, 28), *, plain: bool = False):
        super().__init__()
        self.plain, self.image_shape = plain, image_shape
        self.conv1, self.conv2 = nn.Conv2d(image_shape[0], 256, 9), nn.Conv2d(256, 256, 9, 2)
        if not plain:
            self.to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        """Return primary capsules (B, I, 8) of images (B, C, H, W)."""
        if self.plain:
            out = self.conv2(self.conv1(images).relu())
        else:
            features = convolve(images, self.conv1.weight, self.conv1.bias).relu()
            out = convolve(features, self.conv2.weight, self.conv2.bias, 2)
        B, _, rows, columns = out.shape
        capsules = out.reshape(B, 32, 8, rows, columns).movedim(2, 4)
        return functional.squash(capsules.reshape(B, 32 * rows * columns, 8).float())

    def loss(self, images: Tensor) -> Tensor:
        """Return a scalar that depends on every capsule."""
        return self(images).square().mean()


class Literal(CapsNet):
    """CapsNet written as in the paper's text, without the fast parts of capsviz.

    It uses plain convolutions and automatic differentiation, and keeps every tensor. The same seed
    gives the same weights as in `CapsNet`.
    """

    def training_bytes(self, batch: int) -> int:
        """Estimate the memory of training with a batch: that of CapsNet plus that of all votes."""
        c = self.settings
        votes = 4 * batch * c.children * c.classes * c.class_dimensions
        return super().training_bytes(batch) + VOTE_TENSORS * votes

    def forward(self, images: Tensor) -> Output:
        """Return lengths (B, J), poses (B, J, E), primary (B, I, D) of images (B, C, H, W)."""
        c, conv2 = self.settings, self.primary.convolution
        features = self.conv1(images).relu()
        out = nn.functional.conv2d(features, conv2.weight.contiguous(), conv2.bias, 2)
        out = out.reshape(len(images), c.types, c.primary_dimensions, *out.shape[2:]).movedim(2, 4)
        primary = functional.squash(out.reshape(len(images), c.children, c.primary_dimensions))
        votes = (self.capsules.weight @ primary[:, :, None, :, None])[..., 0]  # û_j|i
        logits = torch.zeros(votes.shape[:3], device=votes.device)  # b_ij
        for iteration in range(c.iterations):
            couplings = logits.softmax(2)  # c_ij
            total = (couplings[..., None] * votes).sum(1)  # s_j
            poses = functional.squash(total)  # v_j
            if iteration + 1 < c.iterations:
                logits = logits + (votes * poses[:, None]).sum(3)
        return Output(functional.lengths(poses), poses, primary)


def literal(network: CapsNet) -> Literal:
    """Return the `Literal` network with the same weights."""
    twin = Literal(**network.config)
    twin.load_state_dict(network.state_dict())
    return twin
