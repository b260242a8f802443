"""Export networks as ONNX files, `torch.export` programs, or folders with a model card."""

import importlib
import importlib.util
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from capsviz import checkpoint, discovery
from capsviz.discovery import parameters
from capsviz.files import write_text
from capsviz.nn import children
from capsviz.nn import routing as routings
from capsviz.nn.computation import literal
from capsviz.nn.models.capsnet import CapsNet
from capsviz.tracing.network import abilities
from capsviz.tracing.record import PER_ITERATION
from capsviz.training import cards

MOST = 4096  # largest batch of an exported network


class Parts(nn.Module):
    """Map images (B, C, H, W) to parts of a trace, after the last routing iteration."""

    def __init__(self, model: Any, names: Sequence[str]):
        super().__init__()
        self.model, self.names = model, tuple(names)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the parts in the order of `names`."""
        found = self.model.look(images, keep=self.names)
        return tuple(
            found[name][-1] if name in PER_ITERATION else found[name] for name in self.names
        )


class Step(nn.Module):
    """A module that calls a function of a network, and names its outputs."""

    def __init__(self, model: nn.Module, function: Callable, names: Sequence[str]):
        super().__init__()
        self.model, self.function, self.names = model, function, tuple(names)

    def forward(self, *inputs: Tensor):
        """Call the function."""
        return self.function(*inputs)


def steps(model: Any) -> dict[str, Step]:
    """Return the steps of a CapsNet as modules, so that the tensors between them can be replaced.

    votes    images (B, C, H, W) -> children (B, I, D), votes (B, I, J, E).
    routing  votes, children -> couplings (R, B, I, J), activations (R, B, J) and poses
             (R, B, J, E), after each of R iterations.
    given    votes, children, couplings (B, I, J) -> activations (B, J), poses (B, J, E).
    decoder  poses, classes (B,) int64 -> images (B, C, H, W); absent if there is no decoder.

    ValueError for a network of another kind, or if the routing reads separate activations of the
    primary capsules.
    """
    if not isinstance(model, CapsNet):
        raise ValueError("only networks of the kind capsnet can be exported as steps")
    reads = parameters(routings.get(model.settings.routing).route)
    if "activations" in reads and model.settings.primary not in children.SQUASHES:
        raise ValueError("this network's primary capsules have activations: export its parts")
    layer = model.capsules

    def votes(images):
        primary = model.encode(images).poses
        return primary, layer.votes(layer.exact(primary))

    def routing(votes, primary):
        routed = layer.route_votes(votes, primary)
        return routed.couplings, routed.activations, routed.poses

    def given(votes, primary, couplings):
        routed = layer.route_votes(votes, primary, couplings=couplings)
        return routed.activations[-1], routed.poses[-1]

    each = {
        "votes": Step(model, votes, ("children", "votes")),
        "routing": Step(model, routing, ("couplings", "activations", "poses")),
        "given": Step(model, given, ("activations", "poses")),
    }
    return each | (
        {} if model.decoder is None else {"decoder": Step(model, model.decode, ["images"])}
    )


def to_file(
    model: Any, images: Tensor, names: Sequence[str], path: Path, *, onnx: bool
) -> float | None:
    """Export a network as ONNX or by `torch.export`; return the largest difference of outputs.

    The absolute difference is taken over all outputs on the images; it is None for ONNX without
    onnxruntime. `names` are parts of a trace, in the order of the outputs. ValueError for parts
    that the network lacks, and for operations that the format cannot express.
    """
    able = abilities(model)
    has = {"reconstruction": able.decodes}
    missing = [name for name in names if not has.get(name, able.gives(name))]
    if missing:
        raise ValueError(f"this network has no {', no '.join(missing)}: leave it out of --part")
    return write(Parts(model.eval(), names), (images,), path, onnx=onnx)


def to_steps(model: Any, images: Tensor, folder: Path) -> tuple[list[str], float | None]:
    """Write each of `steps` as FOLDER/NAME.onnx; return names and the largest output difference.

    ValueError as for `to_file`. Files of steps that this network lacks are deleted.
    """
    each = steps(model.eval())
    with torch.no_grad():
        primary, votes = each["votes"](images)
        couplings, activations, poses = each["routing"](votes, primary)
    inputs: dict[str, tuple[Tensor, ...]] = {
        "votes": (images,),
        "routing": (votes, primary),
        "given": (votes, primary, couplings[-1]),
        "decoder": (poses[-1], activations[-1].argmax(1)),
    }
    apart = [
        write(step, inputs[name], folder / f"{name}.onnx", onnx=True) for name, step in each.items()
    ]
    for name in inputs.keys() - each.keys():
        (folder / f"{name}.onnx").unlink(missing_ok=True)
    known = torch.tensor([one for one in apart if one is not None], dtype=torch.double)
    return [*each], None if None in apart else float(known.max())


def write(
    network: Parts | Step, inputs: tuple[Tensor, ...], path: Path, *, onnx: bool
) -> float | None:
    """Export a module that takes tensors (B, ...), and return the difference as `to_file` does.

    An ONNX file names its outputs as the module does; its metadata hold a JSON list of "classes".
    """
    if onnx and (lacking := [k for k in ("onnx", "onnxscript") if not importlib.util.find_spec(k)]):
        raise ValueError(discovery.needs("export --to onnx", *lacking))
    path.parent.mkdir(parents=True, exist_ok=True)
    batch = torch.export.Dim("batch", min=1, max=MOST)
    given = tuple({0: batch} for _ in inputs)
    dynamic = given if isinstance(network, Parts) else (given,)
    quiet = warnings.catch_warnings(action="ignore")  # torch warns about its own internals
    with tempfile.TemporaryDirectory(dir=path.parent) as place, literal(), torch.no_grad(), quiet:
        made = Path(place) / path.name
        expected = network(*inputs)
        try:
            program = torch.export.export(network, inputs, dynamic_shapes=dynamic)
            if onnx:
                written = torch.onnx.export(
                    program, dynamo=True, verbose=False, output_names=network.names
                )
                assert written is not None  # dynamo=True always returns a program
                if classes := abilities(network.model).class_names:
                    written.model.metadata_props["classes"] = json.dumps(classes)
                written.save(made)
            else:
                torch.export.save(program, made)
        except Exception as error:  # torch raises errors of many types
            text = " ".join(str(error).split())
            raise ValueError(f"this network cannot be exported: {text:.400}") from error
        found = _onnx(made, inputs) if onnx else torch.export.load(made).module()(*inputs)
        made.replace(path)
    if found is None:
        return None
    expected, found = (
        part if isinstance(part, tuple | list) else (part,) for part in (expected, found)
    )
    differences = [(a - b).abs().max() for a, b in zip(found, expected, strict=True)]
    return float(torch.stack(differences).max())  # unlike Python's max, NaN if one is


def _onnx(path: Path, inputs: tuple[Tensor, ...]) -> list[Tensor] | None:
    """Return the outputs of an ONNX file; None without onnxruntime."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    onnxruntime = importlib.import_module("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    values = session.run(None, {n: x.numpy() for n, x in zip(names, inputs, strict=True)})
    return [torch.from_numpy(value) for value in values]


def to_folder(source: str, path: Path) -> None:
    """Write model.safetensors with its card, config.json and README.md into a folder.

    `source` is a checkpoint, as `capsviz.checkpoint.find` takes it. ValueError for a network that
    capsviz neither trained nor saved, and for an unfinished run.
    """
    try:
        weights = checkpoint.find(source)
    except ValueError as error:
        raise ValueError(
            f"only networks that capsviz trained or saved can be exported as a folder: {error}"
        ) from error
    if weights.name == checkpoint.STATE:
        raise ValueError(f"'{source}' is unfinished: end it by `capsviz train ... --resume` first")
    card = checkpoint.read_card(weights)
    others = [one.name for one in path.glob("*.safetensors") if one.name != "model.safetensors"]
    if others:
        raise ValueError(f"'{path}' holds other weights, {others[0]}: name another folder")
    path.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(weights, path / "model.safetensors")
    card["weights"]["file"] = "model.safetensors"
    for name, content in (("model.json", card), ("config.json", card["model"])):
        write_text(path / name, json.dumps(content, indent=1) + "\n")
    write_text(path / "README.md", readme(card))


def readme(card: dict) -> str:
    """Return a model card in Markdown: facts about the network, and how to open it."""
    facts = "\n".join(f"- {name}: {value}" for name, value in cards.rows(card))
    return f"""---
library_name: capsviz
tags: [capsule-network, image-classification]
---

# {card.get("name", "capsule network")}

{facts}
- all else, the recipe included: `model.json`

```python
import capsviz

network = capsviz.load("this folder")
```
"""
