"""Open somebody's network from the command line: `--network FILE.py:FUNCTION --weights FILE`."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn

from capsviz.checkpoint.tensors import sha256
from capsviz.nn.images import like_of
from capsviz.tracing import evaluating
from capsviz.wrapping.bare import Bare
from capsviz.wrapping.device import without_cuda
from capsviz.wrapping.functions import in_words, locate, on_path, read_function
from capsviz.wrapping.stdout import on_stderr
from capsviz.wrapping.weights import load
from capsviz.wrapping.wrapping import NoCapsulesError, wrap


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
    path, name = locate(spec)
    function = _function(path, name)

    def build(weights=None) -> nn.Module:
        module, card = _built(function, path, name, spec, weights, dataset, device)
        with on_stderr():
            network = _opened(module, card, image_shape, classes, spec, capsules).eval()
        if isinstance(network, Bare):
            network.recipe.aside = True
        return network

    def anew() -> nn.Module:
        network = build()
        if _alike(network, _built(function, path, name, spec, None, dataset, device)[0]):
            raise ValueError(
                f"{spec} gives the same weights each time: it loads them, or seeds torch, by itself"
            )
        return network

    network = build(weights)
    network.anew = anew  # for controls that are not trained
    return network


def _alike(network: nn.Module, other: nn.Module) -> bool:
    """Whether two networks of one kind hold the same weights."""
    pairs = (one.network if isinstance(one, Bare) else one for one in (network, other))
    return all(torch.equal(*pair) for pair in zip(*(p.parameters() for p in pairs), strict=True))


def _opened(module: nn.Module, card: dict, image_shape, classes, spec: str, capsules: bool):
    """What a function of a file gives, as `open_network` returns it."""
    if isinstance(module, Bare):
        if capsules and not hasattr(module, "look"):
            raise ValueError(_offer(spec))
        module.card = {**card, **{k: v for k, v in module.card.items() if k not in card}}
        return module
    if hasattr(module, "look"):  # it says by itself what is inside
        return _speaking(module, card, image_shape, classes)
    if image_shape is None or classes is None:
        raise ValueError(
            f"{spec} returns a {type(module).__name__} that is not wrapped: name a data set, whose "
            "images and classes it takes, or let the function return capsviz.wrap(network, "
            "image_shape=..., classes=...)"
        )
    card["model"]["config"] = {"image_shape": list(image_shape), "classes": classes}
    try:
        return _wrapped(module, image_shape, classes, card, spec, capsules)
    except ValueError as error:
        if isinstance(error, NoCapsulesError) or str(error).startswith(spec):
            raise
        raise ValueError(
            f"{spec}: {error}; what wrap cannot find, the function can say: let it return "
            "capsviz.wrap(network, ...)"
        ) from error


def _speaking(module: nn.Module, card: dict, image_shape, classes) -> nn.Module:
    """A network with a `look` of its own, with what commands ask of it besides."""
    if not hasattr(module, "config") and image_shape is not None and classes is not None:
        module.config = {"image_shape": tuple(image_shape), "classes": classes}
    card["model"]["config"] = dict(getattr(module, "config", {}))
    module.card = {**dict(getattr(module, "card", None) or {}), **card}
    return module


def _wrapped(module: nn.Module, image_shape, classes, card, spec: str, capsules: bool) -> Bare:
    try:
        return wrap(module, image_shape, classes, card=card)
    except NoCapsulesError as error:
        if capsules:
            raise NoCapsulesError(f"{_offer(spec)} ({error})") from error
        return wrap(module, image_shape, classes, couplings=None, card=card)


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
    path, name = locate(spec)
    return _built(_function(path, name), path, name, spec, weights, dataset, device)


def _function(path: Path, name: str):
    with on_path(path.parent), without_cuda(), on_stderr():
        return read_function(path, name)


def _built(
    function, path: Path, name: str, spec: str, weights, dataset, device
) -> tuple[nn.Module, dict]:
    with on_path(path.parent), without_cuda(), on_stderr():
        module = _module(function, path, name)
    network = module.network if isinstance(module, Bare) else module
    if isinstance(module, Bare) and not torch.cuda.is_available():
        module.recipe.cuda = _asks_for_a_gpu(module)  # hidden while it was built
    card = _card(path, name, network, dataset)
    if weights is not None:
        card["weights"] = load(network, Path(weights), spec)
    network.to(device)
    return module, card


def _asks_for_a_gpu(module: Bare) -> bool:
    """Whether a pass of one image ends in an error that names CUDA."""
    like = like_of(module.network)
    image = torch.zeros(1, *module.recipe.image_shape).to(like)
    try:
        with evaluating(module.network), torch.no_grad():
            module.passed(image)
    except Exception as error:  # of many kinds, by what the code does
        reason = str(error).lower()
        return "cuda" in reason or "nvidia" in reason
    return False


def _offer(spec: str) -> str:
    return (
        f"{spec} has no capsules that capsviz sees, so it cannot be traced; evaluate, sweep and "
        "corrupt can be run on it"
    )


def _module(function, path: Path, name: str) -> nn.Module:
    try:
        module = function()
    except (Exception, SystemExit) as error:
        raise ValueError(f"{path}: {name}() raises {in_words(error)}") from error
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"{path}: {name}() returns {type(module).__name__}, expected a torch module or a "
            "network that capsviz.wrap made"
        )
    return module


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
