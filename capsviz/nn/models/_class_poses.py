"""Base of networks whose classes have poses: their decoder, and what training minimises."""

from typing import Any

from torch import Tensor, nn

from capsviz.nn import functional, objectives
from capsviz.nn.decoders import Decoder
from capsviz.nn.models import Objective, Output

METRICS = {"l2": functional.reconstruction_loss, "l1": functional.reconstruction_loss_l1}


class ClassPoses(nn.Module):
    """A network with `settings`, and a `decoder`, which may be None."""

    settings: Any  # its `Config`
    decoder: Decoder | None

    @property
    def whole_batches(self) -> bool:
        """Return whether a batch must be computed whole: parts would have other statistics."""
        return any(isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d) for module in self.modules())

    def decode(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Reconstruct from the poses (B, J, E) of `classes` (B,): images (B, C, H, W) in [0, 1]."""
        if self.decoder is None:
            raise ValueError("this network was built without a decoder (reconstruction_weight 0)")
        return self.decoder(poses, classes)

    def objective(
        self,
        output: Output,
        images: Tensor,
        labels: Tensor,
        reconstruction_factor: float = 1.0,
        progress: float = 1.0,
    ) -> Objective:
        """The routing's loss plus weighted reconstruction loss, decoded from the true class.

        Parameters
        ----------
        output  of `forward`, for the images of B examples.
        images  (B, C, H, W) to be reconstructed; where K things are in one image, (B, K, C, H, W),
                each thing alone: decoded from its own class, and averaged over K.
        labels  (B,) classes; or (B, K), each of which is present.
        reconstruction_factor
                on the weight of the reconstruction.
        progress
                share of training that is done, for a loss that grows stricter.

        Raises
        ------
        ValueError  if there is not one image to reconstruct for each label.
        """
        c = self.settings
        margin = objectives.of(
            c.objective,
            output.lengths,
            functional.multi_hot(labels, c.classes),
            progress=progress,
            present=c.margin_present,
            absent=c.margin_absent,
            down_weight=c.absent_weight,
        )
        if self.decoder is None or output.poses is None:
            return Objective(margin.mean(), margin)
        distance = self._distance(output.poses, images, labels)
        weight = c.reconstruction_weight * reconstruction_factor
        return Objective((margin + weight * distance).mean(), margin, distance)

    def _distance(self, poses: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Reconstruction loss (B,) by the metric of the settings, a mean over an image's parts."""
        if images.shape[:-3] != labels.shape:
            raise ValueError(
                f"expected one image (C, H, W) to reconstruct for each label {tuple(labels.shape)}"
                f", got images {tuple(images.shape)}"
            )
        measure = METRICS[self.settings.reconstruction_metric]
        if labels.dim() == 1:
            return measure(images, self.decode(poses, labels))
        # all parts at once: batch norm then sees one batch, not one for each k
        reconstructions = self.decode(poses.repeat_interleave(labels.shape[1], 0), labels.flatten())
        return measure(images.flatten(0, 1), reconstructions).view(labels.shape).mean(1)
