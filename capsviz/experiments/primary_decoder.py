"""A decoder from primary capsules to the image, and its files.

The input of capsule i is J c_ij u_i: scaled by its coupling to the predicted class j in the last
routing iteration, times the number of classes, so that uniform couplings do not change it. Each
network has two decoders: "routed" takes the couplings, its control "uniform" does not. Both are in
NAME.primary.safetensors with the card NAME.primary.json.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from capsviz import checkpoint as checkpoints
from capsviz.checkpoint import read_tensors, sha256, write_tensors
from capsviz.files import write_text
from capsviz.nn.functional import predict
from capsviz.provenance import provenance
from capsviz.tracing import trace

BATCH = 100  # images at a time
HIDDEN = (112, 512)  # two decoders for MNIST then take 6 MB


class PrimaryDecoder(nn.Module):
    """A linear summary of all capsules, ReLU units, a sigmoid for each pixel.

    The input is divided by sqrt(1 + its squared length), as squash does for one capsule, so that a
    single capsule is not negligible beside a thousand, and small couplings are visible.

    Parameters
    ----------
    children, dimensions  I and D of the primary capsules.
    image_shape           (C, H, W).
    hidden                size of the summary, number of ReLU units.
    """

    def __init__(self, children: int, dimensions: int, image_shape, hidden=HIDDEN):
        super().__init__()
        self.config = {
            "children": children,
            "dimensions": dimensions,
            "image_shape": list(image_shape),
            "hidden": list(hidden),
        }
        self.image_shape = tuple(image_shape)
        summary, units = hidden
        self.summary = nn.Linear(children * dimensions, summary)
        nn.init.normal_(self.summary.weight, std=0.3)  # for inputs shorter than 1
        self.pixels = nn.Sequential(
            nn.Linear(summary, units), nn.ReLU(), nn.Linear(units, math.prod(image_shape))
        )

    def forward(self, capsules: Tensor) -> Tensor:
        """Decode scaled capsules (B, I, D) to images (B, C, H, W) in [0, 1]."""
        flat = capsules.flatten(1)
        flat = flat / (1 + flat.square().sum(1, keepdim=True)).sqrt()
        return self.pixels(self.summary(flat)).sigmoid().view(-1, *self.image_shape)


class Contributions(NamedTuple):
    """Primary capsules of N images, and their couplings to the predicted class."""

    primary: Tensor  # (N, I, D)
    couplings: Tensor  # (N, I) to the predicted class, after the last iteration
    classes: int  # J
    predicted: Tensor  # (N,)

    def scaled(self, couplings: Tensor | None = None) -> Tensor:
        """Return J c_ij u_i (N, I, D), with the couplings of routing or given ones (N, I)."""
        c = self.couplings if couplings is None else couplings
        return self.primary * (self.classes * c)[..., None]


def look(model, images: Tensor) -> Contributions:
    """Return primary capsules and couplings of images (N, C, H, W) in [0, 1]; no gradients."""
    traced = trace(model, images, keep=("primary", "couplings", "lengths"))
    primary, couplings, lengths = traced.primary, traced.couplings, traced.lengths
    assert primary is not None and couplings is not None and lengths is not None  # they are kept
    predicted = predict(lengths)
    to_predicted = predicted[:, None, None].expand(-1, primary.shape[1], 1)
    own = couplings[-1].gather(2, to_predicted)[..., 0]
    return Contributions(primary, own, lengths.shape[1], predicted)


def inputs(traced: Contributions) -> dict[str, Tensor]:
    """Return the inputs (N, I, D) of both decoders."""
    return {"routed": traced.scaled(), "uniform": traced.primary}


@torch.inference_mode()
def decode(decoder: PrimaryDecoder, capsules: Tensor) -> Tensor:
    """Decode scaled capsules (N, I, D) to images (N, C, H, W) on the CPU."""
    return decoder(capsules.to(next(decoder.parameters()).device)).cpu()


def save(path: Path, decoders: dict[str, PrimaryDecoder], network: dict, card: dict) -> Path:
    """Write both decoders in float16, and their card beside them.

    Parameters
    ----------
    path     `NAME.primary.safetensors`; its folder must exist.
    network  card of their network.
    card     of the decoders; network, sizes, digest and provenance are added.
    """
    tensors = {
        f"{name}.{key}": value.half()
        for name, decoder in decoders.items()
        for key, value in decoder.state_dict().items()
    }
    write_tensors(path, tensors)
    device = str(next(decoders["routed"].parameters()).device)
    card = {
        "format": 1,
        "kind": "primary-capsule decoder",
        "network": {"name": network.get("name"), "weights": network.get("weights")},
        **card,
        "decoder": decoders["routed"].config,
        "weights": {
            "file": path.name,
            "sha256": sha256(path),
            "stored_as": "float16",
            "parameters": sum(value.numel() for value in tensors.values()),
        },
        "provenance": provenance(network, device),
    }
    write_text(path.with_suffix(".json"), json.dumps(card, indent=1) + "\n")
    return path


def load(path: Path, network: dict, *, checkpoint: str, device="cpu") -> dict[str, PrimaryDecoder]:
    """Load both decoders of the network with the card `network`.

    Raises
    ------
    ValueError  for a missing or damaged file or card, or decoders of other weights; `checkpoint`
                is the network's name in the advice.
    """
    path = Path(path)
    advice = f"train one by `capsviz primary train --checkpoint {checkpoint}`"
    if not path.is_file():
        raise ValueError(f"there is no primary-capsule decoder '{path}': {advice}")
    tensors, _ = read_tensors(path)
    try:
        card = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        belongs = (card["network"]["weights"] or {}).get("sha256")
        decoders = {name: PrimaryDecoder(**card["decoder"]) for name in ("routed", "uniform")}
        for name, decoder in decoders.items():
            own = {k.partition(".")[2]: v.float() for k, v in tensors.items() if k.startswith(name)}
            decoder.load_state_dict(own)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ValueError(
            f"'{path}' is no primary-capsule decoder with its card ({reason}): {advice}"
        ) from error
    if belongs != network.get("weights", {}).get("sha256"):
        raise ValueError(f"the decoder '{path}' was trained for other weights: {advice}")
    return {name: decoder.to(device).eval() for name, decoder in decoders.items()}


def file_name(name: str) -> str:
    """Return the file name of the decoders of a network."""
    return f"{name}{checkpoints.PRIMARY}.safetensors"


def default_folder(name: str) -> Path:
    """Return the folder of `capsviz primary train` for a network."""
    return Path("runs") / f"{name}-primary"


def find(checkpoint: str, name: str) -> Path:
    """Return the decoder file of a network: beside its weights, or else in the default folder.

    If neither exists, it is the path beside the weights.
    """
    folders = [checkpoints.find(checkpoint).parent, default_folder(name)]
    paths = [folder / file_name(name) for folder in folders]
    return next((path for path in paths if path.is_file()), paths[0])
