"""Open somebody's network from the command line: `--network FILE.py:FUNCTION --weights FILE`."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from capsviz.checkpoint import read_tensors, sha256
from capsviz.discovery import unknown
from capsviz.foreign.bare import Bare
from capsviz.foreign.device import without_cuda
from capsviz.foreign.wrapping import NoCapsulesError, wrap
from capsviz.tracing import evaluating

INSIDE = ("state_dict", "model_state_dict", "model", "net", "network", "weights")


def open_network(
    spec: str,
    weights: str | Path | None = None,
    *,
    image_shape: tuple[int, int, int] | None = None,
    classes: int | None = None,
    dataset: Mapping | None = None,
    capsules: bool = True,
    device: torch.device | str = "cpu",
) -> nn.Module:
    """A wrapped network from a function in a file, with its weights, in evaluation mode.

    One that has `look`, as `capsviz.tracing` says, is taken as it is.

    Parameters
    ----------
    spec         "FILE.py:FUNCTION". The file is imported with its folder on the path; the function
                 takes no arguments and returns a module, or what `capsviz.wrap` made of one.
    weights      `.safetensors`, or `.pt`, `.pth` or `.bin` that torch reads with weights_only=True.
    image_shape  (C, H, W), and
    classes      for a module that is not wrapped: those of the data set that it is shown.
    dataset      for the card: name, classes, options of the data set.
    capsules     False also takes a network without capsules, for what needs scores alone.
    device       to put it on.

    Raises
    ------
    ValueError  in one line, for whatever is wrong with file, function, weights or network.
    """
    built, card = open_module(spec, weights, dataset=dataset, device=device)
    if isinstance(built, Bare):
        if capsules and not hasattr(built, "look"):
            raise ValueError(_offer(spec))
        built.card = {**card, **{k: v for k, v in built.card.items() if k not in card}}
        return built.eval()
    if hasattr(built, "look"):  # it says by itself what is inside
        return _speaking(built, card, image_shape, classes).eval()
    if image_shape is None or classes is None:
        raise ValueError(
            f"{spec} returns a {type(built).__name__} that is not wrapped: name a data set, whose "
            "images and classes it takes, or let the function return capsviz.wrap(network, "
            "image_shape=..., classes=...)"
        )
    card["model"]["config"] = {"image_shape": list(image_shape), "classes": classes}
    try:
        return _wrapped(built, image_shape, classes, card, spec, capsules).eval()
    except ValueError as error:
        if isinstance(error, NoCapsulesError) or str(error).startswith(spec):
            raise
        raise ValueError(
            f"{spec}: {error}; what wrap cannot find, the function can say: let it return "
            "capsviz.wrap(network, ...)"
        ) from error


def _speaking(built: nn.Module, card: dict, image_shape, classes) -> nn.Module:
    """A network with a `look` of its own, with what commands ask of it besides."""
    if not hasattr(built, "config") and image_shape is not None and classes is not None:
        built.config = {"image_shape": tuple(image_shape), "classes": classes}
    card["model"]["config"] = dict(getattr(built, "config", {}))
    built.card = {**dict(getattr(built, "card", {})), **card}
    return built


def _wrapped(built: nn.Module, image_shape, classes, card, spec: str, capsules: bool) -> Bare:
    try:
        return wrap(built, image_shape, classes, card=card)
    except NoCapsulesError as error:
        if capsules:
            raise NoCapsulesError(f"{_offer(spec)} ({error})") from error
        return wrap(built, image_shape, classes, couplings=None, card=card)


def open_module(
    spec: str,
    weights: str | Path | None = None,
    *,
    dataset: Mapping | None = None,
    device: torch.device | str = "cpu",
) -> tuple[nn.Module, dict]:
    """What a function in a file returns, with its weights, not wrapped; and its card.

    Raises
    ------
    ValueError  in one line, for whatever is wrong with file, function or weights.
    """
    path, name = _parts(spec)
    with _on_path(path.parent), without_cuda():
        built = _built(_function(_module(path), path, name), path, name)
    network = built.network if isinstance(built, Bare) else built
    if isinstance(built, Bare) and not torch.cuda.is_available():
        built.recipe.cuda = _asks_for_a_gpu(built)  # not seen while it was built
    card = _card(path, name, network, dataset)
    if weights is not None:
        card["weights"] = _load(network, Path(weights), spec)
    network.to(device)
    return built, card


def _asks_for_a_gpu(built: Bare) -> bool:
    """Whether a pass of one image ends in an error that names CUDA."""
    like = next(built.network.parameters(), torch.zeros(()))
    image = torch.zeros(1, *built.recipe.image_shape).to(like)
    try:
        with evaluating(built.network), torch.no_grad():
            built.passed(image)
    except Exception as error:  # of many kinds, by what the code does
        reason = str(error).lower()
        return "cuda" in reason or "nvidia" in reason
    return False


def open_function(spec: str, *, arguments: int = 0):
    """A function of a file, "FILE.py:FUNCTION", that is called with so many arguments.

    Raises
    ------
    ValueError  in one line, for whatever is wrong with file or function.
    """
    path, name = _parts(spec)
    with _on_path(path.parent), without_cuda():
        function = _function(_module(path), path, name, arguments)
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError as error:
        raise ValueError(
            f"{path}: {name} cannot be called with {arguments} arguments: {error}"
        ) from error
    return function


def _offer(spec: str) -> str:
    return (
        f"{spec} has no capsules that capsviz sees, so it cannot be traced; evaluate, sweep and "
        "corrupt can be run on it"
    )


def _parts(spec: str) -> tuple[Path, str]:
    file, colon, name = str(spec).rpartition(":")
    path = Path(file)
    if not colon or not name.isidentifier() or path.suffix != ".py":
        raise ValueError(f"expected FILE.py:FUNCTION, got '{spec}'")
    if not path.is_file():
        raise ValueError(f"there is no file '{path}'")
    return path.resolve(), name


@contextmanager
def _on_path(folder: Path):
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(str(folder))


def _module(path: Path) -> ModuleType:
    name = f"_network_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    built = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(built)
    sys.modules[name] = module  # dataclasses and pickles look there
    try:
        built.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ValueError(f"{path} cannot be imported: {_said(error)}") from error
    return module


def _function(module: ModuleType, path: Path, name: str, arguments: int = 0):
    function = getattr(module, name, None)
    if not callable(function):
        own = [
            key
            for key, value in vars(module).items()
            if inspect.isfunction(value)
            and value.__module__ == module.__name__
            and len(_needed(value)) == arguments
        ]
        raise ValueError(f"{path}: {unknown('function', name, own)}")
    needed = _needed(function)
    if needed and not arguments:
        raise ValueError(
            f"{path}: {name} needs {', '.join(needed)}: write a function without arguments that "
            "calls it"
        )
    return function


def _needed(function) -> list[str]:
    """Names of the arguments without which a function cannot be called."""
    with suppress(TypeError, ValueError):
        return [
            p.name
            for p in inspect.signature(function).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
    return []


def _built(function, path: Path, name: str) -> nn.Module:
    try:
        built = function()
    except (Exception, SystemExit) as error:
        raise ValueError(f"{path}: {name}() raises {_said(error)}") from error
    if not isinstance(built, nn.Module):
        raise ValueError(
            f"{path}: {name}() returns {type(built).__name__}, expected a torch module or a "
            "network that capsviz.wrap made"
        )
    return built


def _load(network: nn.Module, path: Path, spec: str) -> dict:
    """Load weights into a network; what a card says of them."""
    tensors = _tensors(path)
    own = network.state_dict()
    if tensors and not set(tensors) & set(own):
        for prefix in ("module.", "model.", "net."):  # of DataParallel, Lightning and their like
            if all(key.startswith(prefix) for key in tensors):
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
    network.load_state_dict(tensors)
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
            f"pickles can run code: save network.state_dict() alone ({_said(error)[:160]})"
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


def _card(path: Path, name: str, network: nn.Module, dataset: Mapping | None) -> dict:
    """What there is to say of a network that has no card."""
    text = " ".join(repr(network).split())
    return {
        "name": f"{path.stem}-{name}",
        "model": {"name": type(network).__name__, "config": {}},
        "dataset": dict(dataset or {"name": "unknown"}),
        "weights": {"file": None, "sha256": None},
        "network": {
            "file": path.name,
            "function": name,
            "sha256": sha256(path),
            "commit": _commit(path.parent),
            "repr": text if len(text) <= 2000 else text[:2000] + " ...",
        },
    }


def _commit(folder: Path) -> str | None:
    """Commit of the checkout that a folder lies in, "+" if it was changed; None for none."""
    git = ["git", "-C", str(folder)]
    quiet = {"text": True, "stderr": subprocess.DEVNULL}
    with suppress(OSError, subprocess.CalledProcessError):
        head = subprocess.check_output([*git, "rev-parse", "HEAD"], **quiet).strip()
        status = [*git, "status", "--porcelain", "-uno", "--", "."]
        return head + ("+" if subprocess.check_output(status, **quiet).strip() else "")
    return None


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _few(keys: list[str]) -> str:
    return ", ".join(keys[:4]) + (", ..." if len(keys) > 4 else "")
