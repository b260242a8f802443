"""Save and load checkpoints: weights as safetensors, with a card that describes them.

`NAME.safetensors` holds only tensors. The card `NAME.json` holds network, data set, recipe,
results, provenance and the SHA-256 of the weights. Both files are written atomically, and nothing
is unpickled. The state of an unfinished run, `state.safetensors`, can be loaded too: it gives the
weights that the run would return if it stopped now.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from capsviz import discovery
from capsviz.checkpoint.untrained import controls as controls
from capsviz.checkpoint.untrained import is_trained as is_trained
from capsviz.checkpoint.untrained import presets as presets
from capsviz.checkpoint.untrained import untrained_like as untrained_like
from capsviz.files import write_bytes, write_text
from capsviz.nn import models
from capsviz.nn.computation import seeded

SHIPPED = "capsviz.trained"  # the folder of shipped weights, beside the package
FORMAT = 1  # version of the card format
PARTS = ("model", "dataset", "weights")  # required in every card
STATE = "state.safetensors"  # the state of an unfinished run
BEST = re.compile(r"best-\d+")  # file stem of a run's best weights, with their epoch
PRIMARY = ".primary"  # end of the file stem of a network's primary-capsule decoder


def shipped() -> list[str]:
    """Return the names of the weights that are shipped with capsviz."""
    files = discovery.folder(SHIPPED).glob("*.safetensors")
    return sorted(p.stem for p in files if not p.stem.endswith(PRIMARY))


def find(name: str | os.PathLike) -> Path:
    """Return the path of the weights for a shipped name, a `.safetensors` file or a folder.

    The string "digits" means the shipped network; a `Path`, or "./digits", is a file or folder. A
    folder must hold one checkpoint or an unfinished run. A run's state is preferred to finished
    weights beside it if it has more epochs. ValueError if there is none, or several.
    """
    path = Path(name).expanduser()
    is_name = isinstance(name, str) and path.name == name
    if path.suffix == ".safetensors":
        if path.is_file():
            return path
        raise ValueError(f"there is no file '{path}'")
    shipped_path = discovery.folder(SHIPPED) / f"{name}.safetensors"
    if is_name and shipped_path.is_file():
        return shipped_path
    if path.is_dir():
        cards = [p.with_suffix(".safetensors") for p in sorted(path.glob("*.json"))]
        files = [p for p in cards if p.is_file() and not p.stem.endswith(PRIMARY)]
        state = path / STATE
        if len(files) == 1:
            return state if state.is_file() and _is_further(state, files[0]) else files[0]
        if not files and state.is_file():
            return state
        raise ValueError(f"expected one checkpoint with its card in '{path}', found {len(files)}")
    if path.is_file():
        raise ValueError(
            f"'{path}' is not a checkpoint, a .safetensors with its card: name weights of another "
            "program by --network FILE.py:FUNCTION --weights FILE"
        )
    if not is_name:
        raise ValueError(f"there is no file or folder '{path}'")
    raise ValueError(
        discovery.unknown("checkpoint", str(name), shipped())
        + ", or the path of a .safetensors or of a folder with one"
    )


def shadowed(name: str | os.PathLike) -> str | None:
    """Return a note if a shipped name is also the name of a folder with weights here; else None."""
    if name in shipped() and any(Path(name).glob("*.safetensors")):
        return f"'{name}' means the shipped weights: for the folder '{name}' write ./{name}"
    return None


def _is_further(state: Path, weights: Path) -> bool:
    """Return whether a run's state has more epochs than the finished weights beside it."""
    now = json.loads(read_about(state).get("card", "{}")).get("training", {}).get("epochs", 0)
    return now > read_card(weights).get("training", {}).get("epochs", now)


def read_card(weights: Path) -> dict:
    """Return the card of a weight file or of a run's state.

    ValueError if the card is missing or damaged.
    """
    if weights.name == STATE:
        return _card_of_state(weights, read_about(weights))
    path = weights.with_suffix(".json")
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        for part in ("model", "dataset", "weights", "recipe", "training", "results", "thresholds"):
            if not isinstance(card[part] if part in PARTS else card.get(part, {}), dict):
                raise TypeError(f"'{part}' is not a table")
        if card.get("format", FORMAT) != FORMAT:
            raise TypeError(f"format {card['format']!r}, expected {FORMAT}")
        card["model"]["config"], card["model"]["name"], card["dataset"]["name"]
        return card
    except FileNotFoundError as error:
        raise ValueError(f"{weights} has no card: expected {path} beside it") from error
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a card ({type(error).__name__}: {error})") from error


def require_name(path: Path) -> None:
    """Raise ValueError if a file name is reserved for a run's state, best weights or decoder."""
    stem = path.stem
    if path.name == STATE or BEST.fullmatch(stem) or stem.endswith(PRIMARY):
        raise ValueError(
            f"weights cannot be called '{stem}': other files are called state, best-EPOCH and "
            f"NAME{PRIMARY}; choose another name"
        )


def save(
    path: Path, model: nn.Module, card: dict, *, dtype: torch.dtype | None = torch.float16
) -> Path:
    """Write `NAME.safetensors` and its card beside it; return the path of the weights.

    Parameters
    ----------
    model  a network of `capsviz.nn.models`.
    card   contents of the card; the network and facts about the weight file are added.
    dtype  type of the floating-point tensors in the file; None keeps the model's types.
    """
    require_name(path)
    tensors = model.state_dict()
    if dtype is not None:
        tensors = {k: v.to(dtype) if v.is_floating_point() else v for k, v in tensors.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(path, tensors)
    types = {str(v.dtype).removeprefix("torch.") for v in tensors.values() if v.is_floating_point()}
    weights = {
        "file": path.name,
        "sha256": sha256(path),
        "stored_as": " and ".join(sorted(types)),
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    card = {"format": FORMAT, **card, "model": network(model), "weights": weights}
    write_text(path.with_suffix(".json"), json.dumps(card, indent=1) + "\n")
    return path


def network(model: nn.Module) -> dict:
    """Return the name and config from which a network of `capsviz.nn.models` can be rebuilt.

    If it has plug-in parts, the digests of their code are included.
    """
    about: dict = {"name": models.name_for(model), "config": model.config}
    plugins = models.plugins(**about)
    return about | ({"plugins": plugins} if plugins else {})


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a weight file.

    For the state of a run, return its best weights so far, or the last ones (or their moving
    average) if the recipe keeps the last. ValueError for damaged files.
    """
    tensors, about = read_tensors(path)
    if path.name != STATE:
        return tensors
    run = run_of_state(path, about)
    if run["recipe"]["keep"] == "best":
        epoch = _card_of_state(path, about)["training"]["epoch"]
        return read_tensors(best_weights(path, run, epoch))[0]
    kind = "ema." if any(name.startswith("ema.") for name in tensors) else "model."
    return {k.removeprefix(kind): v for k, v in tensors.items() if k.startswith(kind)}


def best_weights(state: Path, run: Mapping, epoch: int) -> Path:
    """Return the path of the best weights of an unfinished run.

    `run` is the result of `run_of_state`; `epoch` is the epoch of these weights. ValueError if the
    file is missing or does not match the run.
    """
    path = state.with_name(f"best-{epoch}.safetensors")
    if not path.is_file() or run.get("best_sha256") not in (None, sha256(path)):
        raise ValueError(
            f"{path} is missing or of another run: put back the best weights of the run in "
            f"{state.parent}, or train in another folder"
        )
    return path


def _card_of_state(state: Path, about: Mapping[str, str]) -> dict:
    if "card" not in about:
        raise ValueError(f"{state} is a run without a card: finish it, then open its result")
    card, run = json.loads(about["card"]), json.loads(about.get("run", "{}"))
    card["weights"]["sha256"] = run.get("best_sha256") or sha256(state)
    return card


def run_of_state(state: Path, about: Mapping[str, str]) -> dict:
    """Return recipe, precision and history from the metadata of a run's state.

    ValueError if they are missing or damaged.
    """
    try:
        values = json.loads(about["run"])
        _ = values["precision"], values["recipe"]["keep"]
        _ = [line["epoch"] for line in values["history"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{state} is not the state of a run ({type(error).__name__}: {error}): choose another "
            "--output"
        ) from error
    return values


def load(name: str | os.PathLike, *, device: torch.device | str = "cpu") -> nn.Module:
    """Load a trained network in float32 and evaluation mode; its attribute `card` is the card.

    Parameters
    ----------
    name    a shipped name ("mnist"), a `.safetensors` file, or a folder that holds such a file or
            an unfinished run.
    device  where the network is put.

    Raises
    ------
    ValueError  for an unknown name, a damaged file, a card that does not fit its weights, or a
                device that is not available.
    """
    path = find(name)
    tensors, card = read_weights(path), read_card(path)
    unlike = f"the card {path.with_suffix('.json')} does not fit"
    if path.name != STATE and card["weights"].get("sha256") != sha256(path):
        raise ValueError(f"{unlike}: its SHA-256 is that of other weights")
    try:
        with seeded(0):  # restores the global random state afterwards
            model = models.of_config(card["model"]["name"], card["model"]["config"]).float()
        model.load_state_dict(
            {k: v.float() if v.is_floating_point() else v for k, v in tensors.items()}
        )
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        if isinstance(error, KeyError):
            reason = f"its network's config lacks {reason}"
        elif reason.startswith("unknown") and discovery.PLUGINS not in os.environ:
            reason += f" (of a plug-in? ${discovery.PLUGINS} is not set)"
        raise ValueError(f"{unlike}: {reason}") from error
    for kind in models.changed(card["model"]):
        note = f"the code of its {kind}, a plug-in, has changed since the weights were saved"
        card.setdefault("notes", []).append(note)
    model.card = card  # type: ignore[assignment]  # a module's attributes are tensors or modules
    try:
        return model.to(device).eval()
    except (RuntimeError, AssertionError) as error:  # an unknown or a missing device
        reason = str(error).strip().partition("\n")[0][:200]
        raise ValueError(f"device '{device}' is not available here: {reason}") from error


def write_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, str] | None = None):
    """Write tensors and metadata strings to a safetensors file."""
    whole = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    write_bytes(path, to_bytes(whole, about))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and metadata strings of a safetensors file; ValueError if it is none."""
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in list(file.keys())}, file.metadata() or {}


def read_about(path: Path) -> dict[str, str]:
    """Return the metadata strings of a safetensors file; ValueError if it is none."""
    with _opened(path) as file:
        return file.metadata() or {}


@contextmanager
def _opened(path: Path) -> Iterator[safe_open]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(
            f"{path} is not a whole safetensors file ({error}): it is damaged, or another format"
        ) from error


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hex digits."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def sha256_of_tensors(tensors: Iterable[tuple[str, Any]]) -> str:
    """Return the SHA-256 of named tensors as hex digits; their order does not matter."""
    content = hashlib.sha256()
    for name, tensor in sorted(tensors, key=lambda one: one[0]):
        if isinstance(tensor, torch.Tensor):
            raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            content.update(name.encode() + raw.numpy().tobytes())
    return content.hexdigest()
