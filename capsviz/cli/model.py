"""A network alone, for pictures of one's own: a checkpoint, or somebody's own network."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from capsviz import checkpoint as checkpoints
from capsviz.cli.inputs import choose_device, open_inputs


def open_model(
    *,
    checkpoint: str | None = None,
    network: str | None = None,
    weights: str | Path | None = None,
    dataset: str | None = None,
    data_dir: str | Path | None = None,
    device: str = "auto",
    default: str = "mnist",
    capsules: bool = False,
) -> tuple[nn.Module, str, str | None]:
    """A network in evaluation mode with its card, what it is named by, and a notice.

    Parameters
    ----------
    checkpoint         shipped weights, a file or a folder; `default` where neither it nor a network
                       is named.
    network, weights   "FILE.py:FUNCTION", and the file of its weights.
    dataset, data_dir  whose images and classes that network takes; as `open_inputs` chooses them.
    capsules           refuse a network without any.

    Raises
    ------
    ValueError  for options that would be ignored, and whatever is wrong with the network.
    """
    if network is None:
        places = {"weights": weights, "dataset": dataset, "data-dir": data_dir}
        if idle := [f"--{name}" for name, value in places.items() if value is not None]:
            raise ValueError(
                f"{', '.join(idle)}: only for a network of your own, by --network FILE.py:FUNCTION"
            )
        source = checkpoint or default
        return checkpoints.load(source, device=choose_device(device)), source, None
    inputs = open_inputs(
        checkpoint=checkpoint, network=network, weights=weights, dataset=dataset,
        data_dir=data_dir, device=device, capsules=capsules,
    )  # fmt: skip
    return inputs.model, network, inputs.notice
