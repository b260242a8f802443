"""Networks as ONNX files, exported programs, and folders with a model card."""

from __future__ import annotations

import importlib
import importlib.util
import json
import shutil
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from capsviz import checkpoint, discovery
from capsviz.files import write_text
from capsviz.nn.computation import literal
from capsviz.tracing.network import abilities
from capsviz.tracing.record import PER_ITERATION

MOST = 4096  # images of a batch


class Parts(nn.Module):
    """Images (B, C, H, W) to parts of a trace; of several iterations, the last one's."""

    def __init__(self, model: Any, names: Sequence[str]):
        super().__init__()
        self.model, self.names = model, tuple(names)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the parts in their order."""
        found = self.model.look(images, keep=self.names)
        return tuple(
            found[name][-1] if name in PER_ITERATION else found[name] for name in self.names
        )


def to_file(
    model: Any, images: Tensor, names: Sequence[str], path: Path, *, onnx: bool
) -> float | None:
    """Write a network as ONNX, or as a program of `torch.export`; return how far it is from it.

    That is the largest absolute difference of any output on the images, None for ONNX without
    onnxruntime. `names` are parts of a trace, in the order of the outputs. ValueError for parts
    that the network has not, and for what the format cannot express.
    """
    able = abilities(model)
    has = {"reconstruction": able.decodes}
    missing = [name for name in names if not has.get(name, able.gives(name))]
    if missing:
        raise ValueError(f"this network has no {', no '.join(missing)}: leave it out of --part")
    if onnx and (lacking := [k for k in ("onnx", "onnxscript") if not importlib.util.find_spec(k)]):
        raise ValueError(discovery.needs("export --to onnx", *lacking))
    network = Parts(model.eval(), names)
    path.parent.mkdir(parents=True, exist_ok=True)
    dynamic = ({0: torch.export.Dim("batch", min=1, max=MOST)},)
    quiet = warnings.catch_warnings(action="ignore")  # of torch, about itself
    with tempfile.TemporaryDirectory(dir=path.parent) as place, literal(), torch.no_grad(), quiet:
        made = Path(place) / path.name
        expected = network(images)
        try:
            program = torch.export.export(network, (images,), dynamic_shapes=dynamic)
            if onnx:
                written = torch.onnx.export(program, dynamo=True, verbose=False)
                assert written is not None  # it is with dynamo
                written.save(made)
            else:
                torch.export.save(program, made)
        except Exception as error:  # torch raises what it likes
            first = str(error).strip().partition("\n")[0]
            raise ValueError(f"this network cannot be exported: {first}") from error
        found = _onnx(made, images) if onnx else torch.export.load(made).module()(images)
        made.replace(path)
    if found is None:
        return None
    return max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))


def _onnx(path: Path, images: Tensor) -> list[Tensor] | None:
    """Outputs of an ONNX file; None without onnxruntime."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    onnxruntime = importlib.import_module("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    values = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    return [torch.from_numpy(value) for value in values]


def to_folder(model: Any, source: str, path: Path) -> None:
    """Write model.safetensors with its card, config.json and README.md into a folder.

    `source` is the network's checkpoint, as `capsviz.checkpoint.find` takes it. ValueError for a
    network that is none of capsviz.
    """
    weights = checkpoint.find(source)
    card = checkpoint.read_card(weights)
    path.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(weights, path / "model.safetensors")
    card["weights"]["file"] = "model.safetensors"
    for name, content in (("model.json", card), ("config.json", card["model"])):
        write_text(path / name, json.dumps(content, indent=1) + "\n")
    write_text(path / "README.md", readme(card))


def readme(card: dict) -> str:
    """Return a model card in Markdown: what the network is, its results, how to open it."""
    test, training, recipe = (card.get(k, {}) for k in ("results", "training", "recipe"))
    test = test.get("test", {})
    shape = " × ".join(map(str, card["model"]["config"]["image_shape"]))
    low, high = test.get("accuracy_ci95", (None, None))
    lines = [
        "---", "library_name: capsviz", "tags: [capsule-network, image-classification]", "---", "",
        f"# {card.get('name', 'capsule network')}", "",
        f"A `{card['model']['name']}` for images {shape} of the data set "
        f"`{card['dataset']['name']}`, {card['weights']['parameters']:,} parameters.",
        "",
    ]  # fmt: skip
    if low is not None:
        lines += [
            f"- Test accuracy: {test['accuracy']:.2%} (95 % interval {low:.2%} to {high:.2%}, "
            f"{test['n']:,} images)",
        ]
    if training:
        lines += [
            f"- Training: {training['epochs']} epochs of {training['images']:,} images, seed "
            f"{recipe.get('seed', 0)}, {training['hardware']}",
        ]
    lines += [
        "- All else that is known of it, the recipe included: `model.json`", "",
        "```python", "import capsviz", "", 'network = capsviz.load("this folder")', "```", "",
    ]  # fmt: skip
    return "\n".join(lines)
