"""Weights from a file into somebody's network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from capsviz.checkpoint.tensors import read_tensors, sha256
from capsviz.wrapping.compiled import as_written
from capsviz.wrapping.functions import in_words

PREFIXES = ("module.", "model.", "net.")  # of DataParallel, Lightning and their like
COMPILED = "_orig_mod."  # of what torch.compile made, wherever it is
INSIDE = ("state_dict", "model_state_dict", "model", "net", "network", "weights")


def load(network: nn.Module, path: Path, spec: str) -> dict:
    """Load weights into a network; what a card says of them."""
    while isinstance(as_written(network), nn.DataParallel):
        network = as_written(network).module
    network = as_written(network)
    state = network.state_dict()
    names = {key.replace(COMPILED, ""): key for key in state}  # its own
    own = {key: state[name] for key, name in names.items()}
    tensors = {key.replace(COMPILED, ""): value for key, value in _tensors(path).items()}
    while tensors and not set(tensors) & set(own):
        prefix = next(iter(tensors)).partition(".")[0] + "."
        if prefix not in PREFIXES or not all(key.startswith(prefix) for key in tensors):
            break
        tensors = {key.removeprefix(prefix): value for key, value in tensors.items()}
    missing, more = sorted(set(own) - set(tensors)), sorted(set(tensors) - set(own))
    if missing or more:
        words = [f"{len(missing)} are missing ({_few(missing)})"] if missing else []
        words += [f"{len(more)} are not the network's ({_few(more)})"] if more else []
        raise ValueError(f"{path} holds weights of another network than {spec}: {'; '.join(words)}")
    other = [key for key in own if own[key].shape != tensors[key].shape]
    if other:
        key = other[0]
        raise ValueError(
            f"{path} holds weights of another size than {spec}: {key} is "
            f"{tuple(tensors[key].shape)}, expected {tuple(own[key].shape)}"
            + (f", and {len(other) - 1} more" if len(other) > 1 else "")
        )
    network.load_state_dict({names[key]: value for key, value in tensors.items()})
    parameters = sum(p.numel() for p in network.parameters())
    return {"file": path.name, "sha256": sha256(path), "parameters": parameters}


def _tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ValueError(f"there is no file '{path}'")
    if path.suffix == ".safetensors":
        return read_tensors(path)[0]
    if path.suffix not in (".pt", ".pth", ".bin", ".ckpt"):
        raise ValueError(f"'{path}' is neither .safetensors nor .pt, .pth, .bin or .ckpt")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of many kinds, by what is wrong with the file
        raise ValueError(
            f"{path} cannot be read with weights_only=True, and is not read otherwise, because "
            f"pickles can run code: save network.state_dict() alone ({in_words(error)[:160]})"
        ) from error
    for key in INSIDE:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not content:
        raise ValueError(f"{path} holds {type(content).__name__}, expected a state_dict of tensors")
    if not all(isinstance(value, Tensor) for value in content.values()):
        key = next(key for key, value in content.items() if not isinstance(value, Tensor))
        raise ValueError(f"{path} holds no state_dict: '{key}' is no tensor")
    return dict(content)


def _few(keys: list[str]) -> str:
    return ", ".join(keys[:4]) + (", ..." if len(keys) > 4 else "")
