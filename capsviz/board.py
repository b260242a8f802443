"""TensorBoard: scalars of every epoch, inputs above their reconstructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from capsviz.augment import to_float
from capsviz.data import Dataset
from capsviz.functional import predict
from capsviz.tracing import inference

SHOWN = 16  # images


class Board:
    """Writes event files that TensorBoard reads; call it with an epoch's record and the network.

    Parameters
    ----------
    folder   of the event files.
    dataset  whose first images are shown.
    past     records of earlier epochs of the same run. The last of them is written again: the
             process that trained it may have been killed before it could write it.
    """

    def __init__(self, folder: Path, dataset: Dataset, past: Sequence):
        from torch.utils.tensorboard import SummaryWriter  # takes seconds to import

        self.writer = SummaryWriter(str(folder), purge_step=max(1, len(past)))
        self.images = to_float(dataset.images[:SHOWN])
        if past:
            self._scalars(past[-1])

    def _scalars(self, epoch) -> None:
        for name, value in asdict(epoch).items():
            if name != "epoch" and isinstance(value, int | float):
                self.writer.add_scalar(name, value, epoch.epoch)

    def __call__(self, epoch, model: nn.Module) -> None:
        """Log one `train.Epoch`."""
        self._scalars(epoch)
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
        made = model.decode(output.poses, predict(output.lengths))
    return torch.cat([torch.cat(list(rows), 2) for rows in (images, made)], 1).cpu()
