"""Open a network from the command line: `--network FILE.py:FUNCTION --weights FILE`."""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from capsviz.checkpoint import sha256, sha256_of_tensors
from capsviz.checkpoint.containers import load_into
from capsviz.discovery import root_of, some, unknown
from capsviz.nn.images import like_of
from capsviz.provenance import commit_of
from capsviz.tracing import abilities, evaluating
from capsviz.tracing.verification import verify_once
from capsviz.wrapping.environment import as_written, in_words, on_stderr, without_cuda
from capsviz.wrapping.network import Bare
from capsviz.wrapping.wrapping import NoCapsulesError, first_pass, wrap


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
    """Return a wrapped network from a function in a file, with its weights, in evaluation mode.

    A network with a `look` method (see `capsviz.tracing`) is verified and returned unwrapped.

    Parameters
    ----------
    spec         "FILE.py:FUNCTION". The file is imported with its folder on the path. The function
                 takes no arguments and returns a module or the result of `capsviz.wrap`.
    weights      a file of named tensors: safetensors, or one torch loads with weights_only=True.
    image_shape  (C, H, W) of the data set, for a module that is not wrapped.
    classes      the number of classes of the data set, for a module that is not wrapped.
    dataset      name, classes and options of the data set, for the card.
    capsules     False also accepts a network without capsules, if only scores are needed.
    device       the device of the network.

    Raises
    ------
    ValueError  for a mistake in file, function, weights or network.
    """
    source = _located(spec)

    def build(weights: str | Path | None = None) -> nn.Module:
        module, card = _built(*source, weights, dataset, device)
        with on_stderr():
            network: Any = _opened(module, card, image_shape, classes, spec, capsules).eval()
        if weights is None:  # the code sets them; the hash ties results and decoders to them
            inner = as_written(_inner(module))
            network.card["weights"]["sha256"] = sha256_of_tensors(inner.state_dict().items())
        if isinstance(network, Bare):
            network.recipe = replace(network.recipe, aside=True)
            if notes := [said for fact, said in network.inferred.facts if fact == "note"]:
                network.card.setdefault("notes", []).extend(notes)
        return network

    def anew() -> nn.Module:
        network = build()
        other, _ = _built(*source, None, dataset, device)
        pairs = zip(_inner(network).parameters(), _inner(other).parameters(), strict=True)
        if all(torch.equal(*pair) for pair in pairs):
            raise ValueError(
                f"{spec} gives the same weights each time: it loads them, or seeds torch, by itself"
            )
        return network

    network: Any = build(weights)
    network.anew = anew  # for controls with an untrained network
    return network


def open_module(
    spec: str,
    weights: str | Path | None = None,
    *,
    dataset: Mapping | None = None,
    device: torch.device | str = "cpu",
) -> tuple[nn.Module, dict]:
    """Return a module from a function in a file, with its weights but not wrapped, and its card.

    ValueError for a mistake in file, function or weights.
    """
    return _built(*_located(spec), weights, dataset, device)


def open_function(spec: str, *, arguments: int = 0) -> Callable:
    """Import a function by "FILE.py:FUNCTION"; it must accept this many arguments.

    ValueError for a mistake in file or function.
    """
    _, _, function = _located(spec, arguments)
    return function


_folders: set[Path] = set()  # import folders of all opened files


@contextmanager
def _importing(file: Path) -> Iterator[None]:
    """Prepare to run a user's file: set the import path, replace a missing GPU, print to stderr.

    Imports come from the file's folder; for a package, the folder above comes first. Afterwards the
    folders stay at the end of the path, for imports inside `forward`. Modules that another file
    imported under a name that exists here are forgotten. `sys.argv` holds no arguments.
    """
    folders = list(dict.fromkeys((root_of(file), file.parent)))
    inside = [path for folder in folders for path in folder.iterdir()]
    here = {path.stem for path in inside if path.is_dir() or path.suffix == ".py"}
    for name in [one for one in sys.modules if one.partition(".")[0] in here - {"capsviz"}]:
        above = Path(getattr(sys.modules[name], "__file__", None) or "").parents
        if not {*folders} & {*above} and not _folders.isdisjoint(above):
            del sys.modules[name]
    _folders.update(folders)
    sys.path[:0] = map(str, folders)
    typed, sys.argv = sys.argv, [str(file)]
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        with without_cuda(), on_stderr():
            yield
    finally:
        sys.argv = typed
        for place in map(str, folders):
            with suppress(ValueError):
                sys.path.remove(place)
            if place not in sys.path:
                sys.path.append(place)


def _located(spec: str, arguments: int = 0) -> tuple[Path, str, Callable]:
    """Import "FILE.py:FUNCTION" and return the file, the name and the function.

    ValueError for another format, or if the function does not accept this many arguments.
    """
    file, colon, name = str(spec).rpartition(":")
    path = Path(file).resolve()
    if not colon or not name.isidentifier() or path.suffix != ".py":
        raise ValueError(f"expected FILE.py:FUNCTION, got '{spec}'")
    if not path.is_file():
        raise ValueError(f"there is no file '{file}'")
    with _importing(path):
        module = _import(path)
    function = getattr(module, name, None)
    if not callable(function):
        named = {key: value for key, value in vars(module).items() if inspect.isfunction(value)}
        own = [key for key, value in named.items() if value.__module__ == module.__name__]
        raise ValueError(f"{path}: {unknown('function', name, own)}")
    if isinstance(function, nn.Module) and not arguments:
        raise ValueError(
            f"{path}: {name} is a network, not a function: write def build(): return {name}"
        )
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError as error:
        raise ValueError(
            f"{path}: {name} cannot be called with {arguments or 'no'} arguments: {error}"
        ) from error
    return path, name, function


def _import(path: Path) -> ModuleType:
    name = f"_network_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    package = ".".join(path.parent.relative_to(root_of(path)).parts)
    if package:
        name = f"{package}.{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # it is a .py file
    module = importlib.util.module_from_spec(spec)
    try:
        if package:
            importlib.import_module(package)
        sys.modules[name] = module  # dataclasses and pickle look it up there
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        raise ValueError(f"{path} cannot be imported: {in_words(error)}") from error
    return module


def _built(
    path: Path, name: str, function: Callable, weights: str | Path | None,
    dataset: Mapping | None, device: torch.device | str,
) -> tuple[nn.Module, dict]:  # fmt: skip
    """Call the function and load the weights; return the module and its card."""
    with _importing(path):
        try:
            module = function()
        except (Exception, SystemExit) as error:
            raise ValueError(f"{path}: {name}() raises {in_words(error)}") from error
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"{path}: {name}() returns {type(module).__name__}, expected a torch module or a "
            "network that capsviz.wrap made"
        )
    network = _inner(module)
    if isinstance(module, Bare):  # `wrap` ran in `without_cuda`, which hid a need for a GPU
        images = module.recipe.draw(module.recipe.smallest).to(like_of(network))
        with suppress(ValueError), evaluating(network), torch.no_grad():
            module.recipe = first_pass(network, module.recipe, images)[0]
    card = _card(path, name, network, dataset)
    _keep_order(card, abilities(module).class_names)
    if weights is not None:
        inner = as_written(network)
        weights, parameters = Path(weights), sum(p.numel() for p in inner.parameters())
        if note := load_into(inner, weights, f"{path}:{name}"):
            card.setdefault("notes", []).append(note)
        about = {"file": weights.name, "sha256": sha256(weights), "parameters": parameters}
        card["weights"] = about
    network.to(device)
    return module, card


def _keep_order(card: dict, own: Sequence[str] | None) -> None:
    """Put the card's classes in the network's order; add a note if the order is only assumed."""
    classes = card["dataset"].get("classes", [])
    if own and set(own) == set(classes):
        card["dataset"]["classes"] = list(own)
    elif own and classes:
        card["notes"] = [
            f"its classes are {some(own, 4)}, and those of the data {some(classes, 4)}: they are "
            "taken to be in the same order"
        ]
    elif card["dataset"]["name"] == "folder" and classes != sorted(classes):
        apart = [pair for pair in zip(classes, sorted(classes), strict=True) if len({*pair}) > 1]
        own, by_text = (some(names, 4) for names in zip(*apart, strict=True))
        card["notes"] = [
            f"it is taken to have the classes in the order ... {own} where torchvision's "
            f"ImageFolder has ... {by_text}: if it was trained with that, let the function return "
            "capsviz.wrap(network, ..., "
            'card={"dataset": {"name": "folder", "classes": image_folder.classes}})'
        ]


def _inner(module: nn.Module) -> nn.Module:
    return module.network if isinstance(module, Bare) else module


def _opened(
    module: Any, card: dict, image_shape, classes: int | None, spec: str, capsules: bool
) -> nn.Module:
    """Wrap the module unless it is wrapped or has `look`, and add the card."""
    offer = (
        f"{spec} has no capsules that capsviz can find, so it cannot be traced; evaluate, sweep "
        "and corrupt work on it"
    )
    able, config = abilities(module), {"image_shape": image_shape, "classes": classes}
    if isinstance(module, Bare):
        if capsules and not able.has_capsules:
            raise ValueError(offer)
        module.card = {**module.card, **card}
        return module
    if able.has_capsules:
        if not able.config and image_shape is not None and classes is not None:
            module.config = config
        able = abilities(module)
        card["model"]["config"] = dict(able.config)
        module.card = {**able.card, **card}
        if able.image_shape is not None:
            verify_once(module, torch.empty(0, *able.image_shape))
        return module
    if image_shape is None or classes is None:
        raise ValueError(
            f"{spec} returns a {type(module).__name__} that is not wrapped: name a data set, whose "
            "images and classes it takes, or let the function return capsviz.wrap(network, "
            "image_shape=..., classes=...)"
        )
    card["model"]["config"] = {**config, "image_shape": list(image_shape)}

    def wrapped(**options) -> nn.Module:
        try:
            return wrap(module, image_shape, classes, card=card, **options)
        except NoCapsulesError:
            raise
        except ValueError as error:
            raise ValueError(
                f"{spec}: {error}; if wrap needs an argument, give it where the function returns "
                "capsviz.wrap(network, ...), or image_shape=(C, H, W) for other images"
            ) from error

    try:
        return wrapped()
    except NoCapsulesError as error:
        if capsules:
            raise NoCapsulesError(f"{offer} ({error})") from error
    return wrapped(couplings=None)


def _card(path: Path, name: str, network: nn.Module, dataset: Mapping | None) -> dict:
    """Return a card for a custom network."""
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
            "commit": commit_of(path.parent, "-uno", "--", "."),
            "repr": text if len(text) <= 2000 else text[:2000] + " ...",
        },
    }
