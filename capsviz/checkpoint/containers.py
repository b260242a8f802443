"""Read weights saved by PyTorch, Lightning, timm or training scripts.

The format is recognised by content. No code in a file is run: `torch.load` uses
`weights_only=True`. An object of an unknown class, such as a Namespace of arguments, is replaced
by an empty object.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from capsviz import checkpoint
from capsviz.discovery import some

ADDED = re.compile(r"\.(module|_orig_mod)(?=\.)")  # by DataParallel and torch.compile
FIRST = (
    "",
    "state_dict",
    "model_state_dict",
    "model",
    "net",
    "network",
    "weights",
)  # table names, in order of preference if several fit equally well
TOP = "the top level"  # in messages, for the table named ""
DEEPEST, NAMED = 3, 4  # deepest level of nested tables; most names in a message


class Unread:
    """Stand in for an object of an unknown class."""

    def __init__(self, *_): ...
    def __setstate__(self, _): ...


PLAIN: Any = (lambda *_: {}, "collections.defaultdict")  # often holds the training history


def read(path: Path) -> dict[str, dict[str, Tensor]]:
    """Return all tables of tensors in a weight file, by name ("ema.state_dict" if nested).

    ValueError for a file that cannot be read safely or holds no such table.
    """
    if not path.is_file():
        raise ValueError(f"there is no file '{path}'")
    with path.open("rb") as file:
        head = file.read(9)
    if head[8:] == b"{":  # the header of safetensors begins with its length
        return {"": checkpoint.read_weights(path)}
    unknown: list[str] = []
    # Classes allowed by other code are removed for now: a partly allowed class fails to load.
    safe = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    try:
        with suppress(ValueError):  # raised for the format before PyTorch 1.6
            unknown = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        stand_ins = [(Unread, name) for name in unknown if name != PLAIN[1]]
        with torch.serialization.safe_globals([*stand_ins, PLAIN]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the type depends on the fault in the file
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]
        raise ValueError(
            f"{path} cannot be read with weights_only=True: expected network.state_dict() alone by "
            "torch.save (.pt, .pth, .ckpt), or one .safetensors file, merged if it is in parts. "
            f"Other pickles are not read, because they can run code ({reason})"
        ) from error
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(safe)
    tables = dict(_tables(content))
    if not tables:
        pickled = f", but pickled objects ({', '.join(unknown[:NAMED])})" if unknown else ""
        raise ValueError(
            f"{path} holds no state_dict: expected tensors by name{pickled}; save "
            "network.state_dict()"
        )
    return tables


def _tables(content: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, dict]]:
    if not isinstance(content, Mapping):
        return
    named = {key: value for key, value in content.items() if isinstance(key, str)}
    if tensors := {key: value for key, value in named.items() if isinstance(value, Tensor)}:
        yield name, tensors
    for key, value in named.items() if depth < DEEPEST else ():
        yield from _tables(value, f"{name}.{key}".strip("."), depth + 1)


def fitted(path: Path, own: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], str]:
    """Return the tensors of a weight file under a network's own names, and a note or "".

    Every table of the file is tried, with prefixes removed from its names or added to them. The
    one with most names of the network is used; `FIRST` decides a tie. The note lists tables with
    different weights in which more than half as many names fit.

    Raises
    ------
    ValueError  if different weights fit equally well, if names differ only by what `ADDED`
                matches, if weights are not floating-point numbers, or from `read`.
    """
    clean = {_clean(key): key for key in own}
    names = clean if len(clean) == len(own) else {key: key for key in own}
    found = []
    for table, held in read(path).items():
        tensors = {(_clean(k) if names is clean else k): v for k, v in held.items()}
        if len(tensors) < len(held):
            raise ValueError(
                f"{path} holds some weights twice, with and without .module or ._orig_mod in their "
                "names: save one of them alone"
            )
        for prefix in _prefixes(tensors, names):
            inside = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            found.append((f"{table}.{prefix}".strip("."), inside))
        for prefix in _prefixes(names, tensors)[1:]:
            found.append((table, {prefix + key: value for key, value in tensors.items()}))
    found.sort(key=lambda one: _order(one[0], one[1], names))
    (place, tensors), *others = found
    fits, *_ = best = _order(place, tensors, names)
    differing = {
        name or TOP: order for name, other in others
        if 2 * (order := _order(name, other, names))[0] < fits
        and (other.keys() != tensors.keys() or not all(other[k].equal(tensors[k]) for k in other))
    }  # fmt: skip
    if equals := [name for name, order in differing.items() if order == best]:
        raise ValueError(
            f"{path} holds weights that fit in {place or TOP} and in {some(equals, NAMED)}: save "
            "one of them alone"
        )
    note = f"{path.name} also holds {some(list(differing), NAMED)}: {place or TOP} is used"
    renamed = {names.get(key, key): value for key, value in tensors.items()}
    odd = [
        f"{key} {value.dtype}" for key, value in renamed.items()
        if key in own and own[key].is_floating_point() and not value.is_floating_point()
    ]  # fmt: skip
    if odd:
        raise ValueError(
            f"{path}: expected floating-point weights, got {some(odd, NAMED)}: save them as "
            "float32, those of a quantised network before it is quantised"
        )
    return renamed, note if differing else ""


def _order(place: str, tensors: Mapping, names: Mapping) -> tuple[int, int, int]:
    """Return a sort key, least for the best: -(fitting names), other names, rank in `FIRST`."""
    last = _clean(f".{place}.").strip(".").rpartition(".")[2]
    rank = FIRST.index(last) if last in FIRST else len(FIRST)
    return -len(tensors.keys() & names), len(tensors.keys() - names), rank


def _clean(name: str) -> str:
    return ADDED.sub("", name)


def _prefixes(longer: Mapping, shorter: Mapping) -> list[str]:
    """Return "" and each prefix that turns most names of `shorter` into names of `longer`.

    "Most" is more than half of the smaller table's names.
    """
    tried = list(shorter)[:3]  # several, because one may be missing in `longer`
    ends = [(key, long) for key in tried for long in longer if long.endswith(f".{key}")]
    found = dict.fromkeys(long.removesuffix(key) for key, long in ends)  # in the file's order
    half = min(len(longer), len(shorter)) / 2
    return ["", *(one for one in found if sum(one + key in longer for key in shorter) > half)]


def load_into(network: nn.Module, path: Path, called: str) -> str:
    """Load a weight file into a network; return a note on other weights in the file, or "".

    `called` names the network in messages. ValueError if the weights do not fit: it lists names and
    shapes, and for a missing name the nearest one in the file.
    """
    own = network.state_dict()
    tensors, note = fitted(path, own)
    try:
        network.load_state_dict(tensors)
    except Exception as error:  # a module's own loading hooks may raise anything
        wrong = unlike(own, tensors) or " ".join(str(error).split())[:300]
        raise ValueError(
            f"{path} holds weights of another network than {called}: {wrong}"
        ) from error
    return note


def unlike(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> str:
    """Return a description of names and shapes that differ from a network's; "" if all agree."""
    shape = {key: str(tuple(value.shape)) for key, value in {**tensors, **own}.items()}
    sizes = [
        f"{key} {tuple(tensors[key].shape)}, expected {shape[key]}"
        for key in own
        if key in tensors and own[key].shape != tensors[key].shape
    ]
    extra = [key for key in tensors if key not in own]
    near: list[str] = []
    far: list[str] = []
    for key in (key for key in own if key not in tensors):
        alike = [other for other in extra if tensors[other].shape == own[key].shape]
        match = difflib.get_close_matches(key, alike, 1) or difflib.get_close_matches(key, extra, 1)
        (near if match else far).append(
            f"{key} {shape[key]}" + "".join(f" (nearest: {m} {shape[m]})" for m in match)
        )
    kinds = {
        "of another size": sizes,
        "missing": near + far,
        "not the network's": [f"{key} {shape[key]}" for key in extra],
    }
    return "; ".join(
        f"{len(keys)} are {what}: {some(keys, NAMED)}" for what, keys in kinds.items() if keys
    )
