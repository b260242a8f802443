"""A decoder from primary capsules to the image, trained with the network frozen.

Capsule i comes in as J c_ij u_i: scaled by its coupling to the predicted class j in the last
iteration of routing, times the number of classes, so that uniform couplings leave it as it is.
Two decoders are trained side by side: "routed" sees the couplings, "uniform" (the control) does
not. Every image is shown twice, with all of its capsules and with a random few, often only one:
without that, a single capsule would be like no input that the decoder knows.
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from capsviz import checkpoint as checkpoints
from capsviz.augment import shift, to_float
from capsviz.data import Dataset
from capsviz.figures import provenance
from capsviz.functional import reconstruction_loss
from capsviz.tracing import trace

SUFFIX = checkpoints.PRIMARY  # NAME.primary.safetensors lies beside NAME.safetensors
BATCH = 100  # images at a time
VALIDATION = 1000  # images, at most, that choose the epoch
HIDDEN = (112, 512)  # two decoders then fit into 6 MB for MNIST
LEARNING_RATE = 3e-3  # of Adam, to zero by a cosine


class PrimaryDecoder(nn.Module):
    """A linear summary of all capsules, ReLU units, a sigmoid for each pixel.

    The input is divided by sqrt(1 + its squared length), as squash does for one capsule: a single
    capsule is then not lost against a thousand, and a coupling that grows from 0 still shows.

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
        summary, units = hidden
        self.summary = nn.Linear(children * dimensions, summary)
        nn.init.normal_(self.summary.weight, std=0.3)  # its input has a length below 1
        self.pixels = nn.Sequential(
            nn.Linear(summary, units), nn.ReLU(), nn.Linear(units, math.prod(image_shape))
        )

    def forward(self, capsules: Tensor) -> Tensor:
        """Scaled capsules (B, I, D) -> images (B, C, H, W) in [0, 1]."""
        flat = capsules.flatten(1)
        flat = flat / (1 + flat.square().sum(1, keepdim=True)).sqrt()
        out = self.pixels(self.summary(flat)).sigmoid()
        return out.view(-1, *self.config["image_shape"])


class Seen(NamedTuple):
    """Primary capsules of N images, and how strongly they take part in the prediction."""

    primary: Tensor  # (N, I, D)
    couplings: Tensor  # (N, I) to the predicted class, after the last iteration
    classes: int  # J
    predicted: Tensor  # (N,)

    def scaled(self, couplings: Tensor | None = None) -> Tensor:
        """J c_ij u_i (N, I, D), with the couplings of routing or given ones, (N, I)."""
        c = self.couplings if couplings is None else couplings
        return self.primary * (self.classes * c)[..., None]


def look(model, images: Tensor) -> Seen:
    """Primary capsules and couplings of images (N, C, H, W) in [0, 1]; no gradients."""
    seen = trace(model, images, keep=("primary", "couplings", "lengths"))
    predicted = seen.lengths.argmax(1)
    to_predicted = predicted[:, None, None].expand(-1, seen.primary.shape[1], 1)
    couplings = seen.couplings[-1].gather(2, to_predicted)[..., 0]
    return Seen(seen.primary, couplings, seen.lengths.shape[1], predicted)


def inputs(seen: Seen) -> dict[str, Tensor]:
    """What each of the two decoders is given (N, I, D)."""
    return {"routed": seen.scaled(), "uniform": seen.primary}


def some(children: int, n: int, generator: torch.Generator) -> Tensor:
    """Random subsets (n, I) of zeros and ones: I^(u^2) capsules each, u uniform in [0, 1)."""
    counts = children ** torch.rand(n, 1, generator=generator).square()
    ranks = torch.rand(n, children, generator=generator).argsort(1).argsort(1)
    return (ranks < counts).float()


def fit(
    model,
    train: Dataset,
    validation: Dataset,
    *,
    epochs: int = 5,
    seed: int = 0,
    shift_px: int = 2,
    progress: Callable = iter,
    report: Callable[[str], None] = lambda line: None,
) -> tuple[dict[str, PrimaryDecoder], list[dict]]:
    """Train both decoders; the network is not changed.

    Parameters
    ----------
    train       images to learn from, shifted at random anew in each epoch.
    validation  its first images choose the epoch whose weights are kept, for each decoder.
    seed        of weights, order, shifts and subsets.
    progress    wraps the batches of an epoch.
    report      is given one line for each epoch.

    Returns
    -------
    The decoders "routed" and "uniform", and the record: for each epoch its number, seconds and
    the validation SSE of both.

    Raises
    ------
    ValueError       for less than one epoch.
    ArithmeticError  if the loss is not finite.
    """
    if epochs < 1:
        raise ValueError(f"epochs must be at least 1, got {epochs}")
    device = next(model.parameters()).device
    shape = look(model, to_float(train.images[:1])).primary.shape
    decoders = {}
    with torch.random.fork_rng(devices=[]):
        for name in ("routed", "uniform"):
            torch.manual_seed(seed)
            decoders[name] = PrimaryDecoder(*shape[1:], train.image_shape).to(device)
    steps = epochs * math.ceil(len(train) / BATCH)
    optimisers = {k: torch.optim.Adam(d.parameters(), LEARNING_RATE) for k, d in decoders.items()}
    schedules = {k: CosineAnnealingLR(o, steps) for k, o in optimisers.items()}
    validation = validation.first(min(VALIDATION, len(validation)))
    best, record = {}, []
    for epoch in range(1, epochs + 1):
        start = time.perf_counter()
        generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        order = torch.randperm(len(train), generator=generator)
        for batch in progress(order.split(BATCH)):
            moved = shift(train.images[batch], shift_px, generator=generator)
            images = to_float(moved)
            seen = look(model, images)
            shown = some(shape[1], len(batch), generator)[..., None]
            target = images.repeat(2, 1, 1, 1).to(device)
            for name, capsules in inputs(seen).items():
                twice = torch.cat([capsules, capsules * shown]).to(device)
                loss = reconstruction_loss(target, decoders[name](twice)).mean()
                if not math.isfinite(float(loss)):
                    raise ArithmeticError(f"the loss is {float(loss)} in epoch {epoch}")
                optimisers[name].zero_grad()
                loss.backward()
                optimisers[name].step()
                schedules[name].step()
        found = validation_sse(model, decoders, validation)
        for name, sse in found.items():
            if name not in best or sse < best[name][0]:
                best[name] = sse, epoch, copy.deepcopy(decoders[name].state_dict())
        record.append({"epoch": epoch, "seconds": time.perf_counter() - start, "sse": found})
        report(
            f"epoch {epoch}/{epochs}: validation SSE {found['routed']:.2f}, with uniform couplings "
            f"{found['uniform']:.2f}, {record[-1]['seconds']:.0f} s"
        )
    for name, (_, _, weights) in best.items():
        decoders[name].load_state_dict(weights)
    return {name: decoder.eval() for name, decoder in decoders.items()}, record


@torch.inference_mode()
def decode(decoder: PrimaryDecoder, capsules: Tensor) -> Tensor:
    """Images (N, C, H, W) on the CPU from scaled capsules (N, I, D)."""
    return decoder(capsules.to(next(decoder.parameters()).device)).cpu()


def validation_sse(model, decoders: dict[str, PrimaryDecoder], part: Dataset) -> dict[str, float]:
    """Mean SSE of a split from all capsules, by each decoder."""
    totals = dict.fromkeys(decoders, 0.0)
    for batch in part.images.split(BATCH):
        images = to_float(batch)
        for name, capsules in inputs(look(model, images)).items():
            made = decode(decoders[name], capsules)
            totals[name] += float(reconstruction_loss(images, made).sum())
    return {name: total / len(part) for name, total in totals.items()}


def save(path: Path, decoders: dict[str, PrimaryDecoder], network: dict, card: dict) -> Path:
    """Write both decoders in float16, and their card beside them.

    Parameters
    ----------
    path     `NAME.primary.safetensors`; its folder must be there.
    network  card of the network that they belong to.
    card     what to say of them; network, sizes, digest and provenance are added.
    """
    tensors = {
        f"{name}.{key}": value.half()
        for name, decoder in decoders.items()
        for key, value in decoder.state_dict().items()
    }
    checkpoints.write_tensors(path, tensors)
    device = str(next(decoders["routed"].parameters()).device)
    card = {
        "format": 1,
        "kind": "primary-capsule decoder",
        "network": {"name": network.get("name"), "weights": network.get("weights")},
        **card,
        "decoder": decoders["routed"].config,
        "weights": {
            "file": path.name,
            "sha256": checkpoints.sha256(path),
            "stored_as": "float16",
            "parameters": sum(value.numel() for value in tensors.values()),
        },
        "provenance": provenance(network, device),
    }
    checkpoints.write_text(path.with_suffix(".json"), json.dumps(card, indent=1) + "\n")
    return path


def load(path: Path, network: dict, *, checkpoint: str) -> dict[str, PrimaryDecoder]:
    """Both decoders, on the CPU, for the network that has the card `network`.

    Raises
    ------
    ValueError  for a missing or damaged file or card, or decoders of other weights; `checkpoint`
                is the network's name in the advice.
    """
    path = Path(path)
    advice = f"train one by `capsviz primary train --checkpoint {checkpoint}`"
    if not path.is_file():
        raise ValueError(f"there is no primary-capsule decoder '{path}': {advice}")
    tensors, _ = checkpoints.read_tensors(path)
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
    return {name: decoder.eval() for name, decoder in decoders.items()}


def default_folder(name: str) -> Path:
    """Where `capsviz primary train` writes the decoders of a network by that name."""
    return Path("runs") / f"{name}-primary"


def find(checkpoint: str, name: str) -> Path:
    """Decoder file of the network `name`: beside its weights, or in the default folder.

    The first of the two that exists; if none does, the path beside the weights.
    """
    folders = [checkpoints.find(checkpoint).parent, default_folder(name)]
    paths = [folder / f"{name}{SUFFIX}.safetensors" for folder in folders]
    return next((path for path in paths if path.is_file()), paths[0])
