"""TensorBoard: scalars of every epoch, inputs above their reconstructions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from capsviz.augment import to_float
from capsviz.data import Dataset
from capsviz.tracing import inference

SHOWN = 16  # images


class Board:
    """Writes event files that TensorBoard reads; call it with an epoch's record and the network."""

    def __init__(self, folder: Path, dataset: Dataset, first_epoch: int):
        from torch.utils.tensorboard import SummaryWriter  # takes seconds to import

        self.writer = SummaryWriter(str(folder), purge_step=first_epoch)
        self.images = to_float(dataset.images[:SHOWN])

    def __call__(self, epoch, model: nn.Module) -> None:
        """Log one `train.Epoch`."""
        for name, value in asdict(epoch).items():
            if name != "epoch" and value is not None:
                self.writer.add_scalar(name, value, epoch.epoch)
        picture = reconstructions(model, self.images)
        if picture is not None:
            self.writer.add_image("input_and_reconstruction", picture, epoch.epoch)
        self.writer.flush()

    def close(self) -> None:
        """Finish the event file."""
        self.writer.close()


def reconstructions(model: nn.Module, images: Tensor) -> Tensor | None:
    """Inputs above their reconstructions (C, 2H, N * W); None without a decoder."""
    if getattr(model, "decoder", None) is None:
        return None
    with inference(model):
        images = images.to(next(model.parameters()).device)
        output = model(images)
        made = model.decode(output.poses, output.lengths.argmax(1))
    return torch.cat([torch.cat(list(rows), 2) for rows in (images, made)], 1).cpu()
