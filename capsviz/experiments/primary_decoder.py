"""Decode primary capsules to the image: the decoder, its training, and its files.

The input from capsule i is J c_ij u_i. c_ij is its coupling to the predicted class j in the last
routing iteration; the number of classes J makes uniform couplings change nothing. Each network has
two decoders: "routed" uses the couplings, its control "uniform" does not. Both are stored in
NAME.primary.safetensors with the card NAME.primary.json.
"""

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
from capsviz.data import Dataset
from capsviz.files import write_text
from capsviz.nn.computation import seeded
from capsviz.nn.functional import predict, reconstruction_loss
from capsviz.provenance import provenance
from capsviz.tracing import trace
from capsviz.training.train import require_finite_loss
from capsviz.transforms.augment import shift, to_float

BATCH = 100
HIDDEN = (112, 512)  # two decoders for MNIST take 6 MB
NAMES = ("routed", "uniform")
VALIDATION = 1000  # at most so many validation images select the epoch
LEARNING_RATE = 3e-3  # of Adam, annealed to zero by a cosine


class PrimaryDecoder(nn.Module):
    """A linear summary of all capsules, then ReLU units, then a sigmoid for each pixel.

    The input is divided by sqrt(1 + its squared length). So a single capsule is not negligible
    beside a thousand, and small couplings have an effect. `hidden` holds the size of the summary
    and the number of ReLU units.
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
    couplings: Tensor  # (N, I) to the predicted class, in the last iteration
    classes: int  # J
    predicted: Tensor  # (N,)

    def scaled(self, couplings: Tensor | None = None) -> Tensor:
        """Return J c_ij u_i (N, I, D), with the network's couplings or the given ones (N, I)."""
        c = self.couplings if couplings is None else couplings
        return self.primary * (self.classes * c)[..., None]

    def inputs(self) -> dict[str, Tensor]:
        """Return the inputs (N, I, D) of both decoders."""
        return {"routed": self.scaled(), "uniform": self.primary}


def look(model, images: Tensor) -> Contributions:
    """Return primary capsules and couplings of images (N, C, H, W) in [0, 1]; no gradients."""
    names = ("primary", "couplings", "lengths")
    primary, couplings, lengths = map(trace(model, images, keep=names).require, names)
    predicted = predict(lengths)
    to_predicted = predicted[:, None, None].expand(-1, primary.shape[1], 1)
    own = couplings[-1].gather(2, to_predicted)[..., 0]
    return Contributions(primary, own, lengths.shape[1], predicted)


@torch.inference_mode()
def decode(decoder: PrimaryDecoder, capsules: Tensor) -> Tensor:
    """Decode scaled capsules (N, I, D) to images (N, C, H, W) on the CPU."""
    return decoder(capsules.to(next(decoder.parameters()).device)).cpu()


def some(children: int, n: int, generator: torch.Generator) -> Tensor:
    """Draw n random subsets of I capsules as (n, I) zeros and ones.

    A subset has I^(u²) capsules, rounded down, with u uniform in [0, 1). For I = 1,152, a third of
    the subsets are single capsules.
    """
    counts = (children ** torch.rand(n, 1, generator=generator).square()).floor()
    ranks = torch.rand(n, children, generator=generator).argsort(1).argsort(1)
    return (ranks < counts).float()


def fit(
    model,
    train: Dataset,
    validation: Dataset,
    *,
    epochs: int = 5,
    seed: int = 0,
    hidden: tuple[int, int] = HIDDEN,
    shift_px: int = 2,
    progress: Callable = iter,
    report: Callable[[str], None] = lambda line: None,
) -> tuple[dict[str, PrimaryDecoder], list[dict]]:
    """Train both decoders of a network; return them and a record of each epoch.

    The network is not changed. Both decoders get the same randomly shifted images in the same
    order. Each image is used twice: with all of its capsules, and with a random subset, often a
    single one. Otherwise a single capsule would be unlike all training inputs, and its
    reconstruction meaningless. The first images of `validation` select the best epoch of each
    decoder. FloatingPointError if the loss is not finite.
    """
    device = next(model.parameters()).device
    shape = look(model, to_float(train.images[:1])).primary.shape
    decoders = {}
    for name in NAMES:
        with seeded(seed):
            decoder = PrimaryDecoder(shape[1], shape[2], train.image_shape, hidden)
        decoders[name] = decoder.to(device)
    steps = epochs * math.ceil(len(train) / BATCH)
    optimisers = {k: torch.optim.Adam(d.parameters(), LEARNING_RATE) for k, d in decoders.items()}
    schedules = {k: CosineAnnealingLR(o, steps) for k, o in optimisers.items()}
    validation = validation.first(min(VALIDATION, len(validation)))
    best: dict[str, tuple[float, dict[str, Tensor]]] = {}
    record: list[dict] = []
    for epoch in range(1, epochs + 1):
        start = time.perf_counter()
        generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        order = torch.randperm(len(train), generator=generator)
        for batch in progress(order.split(BATCH)):
            images = to_float(shift(train.images[batch], shift_px, generator=generator))
            traced = look(model, images)
            scale = some(shape[1], len(batch), generator)[..., None]
            target = images.repeat(2, 1, 1, 1).to(device)
            for name, capsules in traced.inputs().items():
                twice = torch.cat([capsules, capsules * scale]).to(device)
                loss = reconstruction_loss(target, decoders[name](twice)).mean()
                require_finite_loss(float(loss.detach()), epoch)
                optimisers[name].zero_grad()
                loss.backward()
                optimisers[name].step()
                schedules[name].step()
        errors = validation_sse(model, decoders, validation)
        for name, sse in errors.items():
            if name not in best or sse < best[name][0]:
                best[name] = sse, copy.deepcopy(decoders[name].state_dict())
        seconds = round(time.perf_counter() - start, 1)
        record.append({"epoch": epoch, "seconds": seconds, "validation_sse": errors})
        report(
            f"epoch {epoch}/{epochs}: validation SSE {errors['routed']:.2f}, with uniform "
            f"couplings {errors['uniform']:.2f}, {seconds:.0f} s"
        )
    for name, (_, weights) in best.items():
        decoders[name].load_state_dict(weights)
        decoders[name].half().float().eval()  # the precision in which `save` stores it
    return decoders, record


def validation_sse(model, decoders: dict[str, PrimaryDecoder], part: Dataset) -> dict[str, float]:
    """Return the mean SSE of each decoder on a split, with all capsules as input."""
    totals = dict.fromkeys(decoders, 0.0)
    for batch in part.images.split(BATCH):
        images = to_float(batch)
        for name, capsules in look(model, images).inputs().items():
            decoded = decode(decoders[name], capsules)
            totals[name] += float(reconstruction_loss(images, decoded).sum())
    return {name: total / len(part) for name, total in totals.items()}


def save(path: Path, decoders: dict[str, PrimaryDecoder], network: dict, card: dict) -> Path:
    """Write both decoders in float16 as `NAME.primary.safetensors`, with their card.

    `network` is the card of their network. The written card is `card` with the network, sizes,
    digest and provenance.
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
    write_text(path.with_suffix(".json"), json.dumps(card, indent=1) + "\n")
    return path


def load(path: Path, network: dict, *, checkpoint: str, device="cpu") -> dict[str, PrimaryDecoder]:
    """Load both decoders of the network that has the card `network`.

    ValueError for a missing or damaged file or card, or decoders of other weights; the message
    names the network as `checkpoint`.
    """
    path = Path(path)
    advice = f"train one by `capsviz primary-train --checkpoint {checkpoint}`"
    if not path.is_file():
        raise ValueError(f"there is no primary-capsule decoder '{path}': {advice}")
    tensors, _ = checkpoints.read_tensors(path)
    try:
        card = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        belongs = (card["network"]["weights"] or {}).get("sha256")
        decoders = {name: PrimaryDecoder(**card["decoder"]) for name in NAMES}
        for name, decoder in decoders.items():
            own = {k.partition(".")[2]: v.float() for k, v in tensors.items() if k.startswith(name)}
            decoder.load_state_dict(own)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ValueError(
            f"'{path}' is not a primary-capsule decoder with its card ({reason}): {advice}"
        ) from error
    if belongs != network.get("weights", {}).get("sha256"):
        raise ValueError(f"the decoder '{path}' was trained for other weights: {advice}")
    return {name: decoder.to(device).eval() for name, decoder in decoders.items()}


def file_name(name: str) -> str:
    """Return the file name of the decoders of a network."""
    return f"{name}{checkpoints.PRIMARY}.safetensors"


def default_folder(name: str) -> Path:
    """Return the folder to which `capsviz primary-train` writes for a network."""
    return Path("runs") / f"{name}-primary"


def find(checkpoint: str, name: str) -> Path:
    """Return the decoder file of a network: beside its weights, or else in the default folder.

    If neither exists, return the path beside the weights.
    """
    folders = [checkpoints.find(checkpoint).parent, default_folder(name)]
    paths = [folder / file_name(name) for folder in folders]
    return next((path for path in paths if path.is_file()), paths[0])
