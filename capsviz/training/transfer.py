"""Start from another network's weights: tensors of equal name and shape are copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from capsviz import checkpoint

NAMED = 4  # tensors that a message names before it counts the others


def start_from(
    model: nn.Module, name: str, report: Callable[[str], None] = lambda line: None
) -> list[str]:
    """Copy those weights of a checkpoint that fit into a network; return their names.

    Parameters
    ----------
    name    of shipped weights, or the path of a `.safetensors` file or of a folder with one.
    report  called with one line that says which tensors were copied.

    Raises
    ------
    ValueError  for a missing checkpoint, or one without weights that fit.
    """
    path = checkpoint.find(name)
    stored, own = checkpoint.read_weights(path), model.state_dict()
    names = [k for k, v in own.items() if k in stored and stored[k].shape == v.shape]
    if not set(names) & {k for k, _ in model.named_parameters()}:
        raise ValueError(
            f"no weights of {path} fit this network: expected names and shapes such as "
            f"{_shapes(own)}, got {_shapes(stored)}"
        )
    with torch.no_grad():
        for k in names:
            own[k].copy_(stored[k])
    line = f"{len(names)} of {len(own)} tensors start from {path}"
    if unlike := [k for k in own if k in stored and k not in names]:
        line += f"; initialised at random, as shapes differ: {_list(unlike)}"
    if fresh := [k for k in own if k not in stored]:
        line += f"; initialised at random, as the file lacks them: {_list(fresh)}"
    if unused := [k for k in stored if k not in own]:
        line += f"; not used, as only the file has them: {_list(unused)}"
    report(line)
    return names


def _list(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _shapes(tensors: dict) -> str:
    return _list(f"{name} {tuple(value.shape)}" for name, value in tensors.items())
