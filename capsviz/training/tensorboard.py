"""Log to TensorBoard: scalars, histograms and reconstructions of every epoch."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from capsviz.data import Dataset
from capsviz.tracing import abilities, inference
from capsviz.training.evaluate import longest
from capsviz.transforms.augment import to_float

IMAGES = 16  # images with reconstructions
VALUES = 100_000  # at most so many values of a tensor in its histogram: all would take seconds


class Writer:
    """Write TensorBoard event files: call it with an epoch's record and the network.

    It draws the first images of the data set. If a run is resumed after `finished` epochs, later
    events of the killed run are discarded.
    """

    def __init__(self, folder: Path, dataset: Dataset, finished: int = 0):
        self.folder, self.finished = folder, finished
        self.writer: Any = None
        first = dataset.take(slice(IMAGES))
        self.images = to_float(first.images)
        self.objects = 1 if first.parts is None else first.parts.shape[1]

    def __call__(self, epoch, model: nn.Module) -> None:
        """Log one `history.Epoch`, the network's weights and, if present, their gradients."""
        if self.writer is None:
            from torch.utils.tensorboard import SummaryWriter  # takes seconds to import

            self.writer = SummaryWriter(str(self.folder), purge_step=self.finished + 1)
        for name, value in asdict(epoch).items():
            if name != "epoch" and isinstance(value, int | float):
                self.writer.add_scalar(name, value, epoch.epoch)
        for name, weight in model.named_parameters():
            for kind, values in (("weights", weight), ("gradients", weight.grad)):
                if values is not None and len(sample := _sample(values)):
                    self.writer.add_histogram(f"{kind}/{name}", sample, epoch.epoch)
        picture = reconstructions(model, self.images, self.objects)
        if picture is not None:
            self.writer.add_image("input_and_reconstruction", picture, epoch.epoch)
        self.writer.flush()

    def close(self) -> None:
        """Finish the event file."""
        if self.writer is not None:
            self.writer.close()


def _sample(values: Tensor) -> Tensor:
    """Return the finite ones of at most `VALUES` values, evenly spread over the tensor."""
    values = values.detach().flatten()
    values = values[:: -(-len(values) // VALUES)].cpu()
    return values[values.isfinite()]


def reconstructions(model, images: Tensor, objects: int = 1) -> Tensor | None:
    """Return inputs above their reconstructions (C, (1 + K) * H, N * W); None without a decoder.

    If an image shows several objects, the reconstruction from the longest capsule comes first.
    Images that are neither grey nor RGB are reduced to their first channel.
    """
    if not abilities(model).decodes:
        return None
    with inference(model):
        images = images.to(next(model.parameters()).device)
        output = model(images)
        winners = longest(output.lengths, objects)
        decoded = [model.decode(output.poses, winners[:, k]) for k in range(objects)]
    sheet = torch.cat([torch.cat(list(rows), 2) for rows in (images, *decoded)], 1).cpu()
    return sheet if len(sheet) in (1, 3) else sheet[:1]
